"""Streams as DataFrames of a Spark session: registering the format, and shorthands for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streambench.config import Config
from streambench.errors import StreambenchError
from streambench.spark.session import active_session, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Its data sources take filters and write Arrow batches.
_LEAST = (4, 1)
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
# Spark logs a warning where a format is registered twice, and does not say which ones a session has.
_REGISTERED = "spark.streambench.registered"


def register(spark: SparkSession | None = None) -> SparkSession:
    """Make ``format("streambench")`` known to a session, the active one if none is given, and return it.

    Raises MissingExtraError, and StreambenchError where there is no session, or an older Spark."""
    require()
    _require_data_sources()
    from streambench.spark.source.data_source import StreamDataSource

    session = spark or active_session()
    if session is None:
        raise StreambenchError(
            "there is no active Spark session: SparkSession.builder.getOrCreate() makes one"
        )
    if session.conf.get(_REGISTERED, "") != "true":
        session.dataSource.register(StreamDataSource)
        session.conf.set(_REGISTERED, "true")
    return session


def _require_data_sources() -> None:
    """Raise StreambenchError where the data sources of this PySpark lack what is needed."""
    import pyspark

    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _LEAST:
        raise StreambenchError(
            f"streams as DataFrames need PySpark {'.'.join(map(str, _LEAST))} or newer, and this is "
            f"{pyspark.__version__}: pip install -U pyspark; deploy works with both"
        )


def read(
    config: Config | Mapping[str, Any] | str | Path,
    stream: str,
    spark: SparkSession | None = None,
    *,
    schema: str | None = None,
    **options: Any,
) -> DataFrame:
    """A stream as a DataFrame, a row per message: ``read("job.properties", "log.flights")``.

    ``config``: a Config, a mapping, or the path of a properties file. ``schema``: fields of the messages
    instead of the columns that every message has. ``options``: those of the format, ``start="oldest"``. The
    end is looked up when the DataFrame is first used. Raises ConfigError and what ``register`` raises."""
    return _load(spark, config, schema, stream=stream, **options)


def read_store(
    config: Config | Mapping[str, Any] | str | Path,
    store: str,
    spark: SparkSession | None = None,
    *,
    schema: str | None = None,
) -> DataFrame:
    """A store of a job as a DataFrame, as of the job's last checkpoints: task, key and value.

    ``schema``: of these three those that are wanted, with other types, and fields of the values. Raises what
    ``read`` raises."""
    return _load(spark, config, schema, store=store)


def _load(
    spark: SparkSession | None,
    config: Config | Mapping[str, Any] | str | Path,
    schema: str | None,
    **options: Any,
) -> DataFrame:
    from streambench.spark.source.options import as_options

    session = register(spark)
    if str(options.get("pushdown", "")).lower() == "true":
        session.conf.set(_PUSHDOWN, "true")
    reader = session.read.format("streambench").options(**as_options(Config.of(config)))
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**options).load()
