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

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession | None = None) -> SparkSession:
    """Make ``format("streambench")`` known to a session, the active one if none is given, and return it.

    Conditions on ``partition`` and ``offset`` are pushed down, which Spark has to be allowed
    (``spark.sql.python.filterPushdown.enabled``). Raises MissingExtraError, and StreambenchError where there
    is no session."""
    require()
    from streambench.spark.source.data_source import StreamDataSource

    session = spark or active_session()
    if session is None:
        raise StreambenchError(
            "there is no active Spark session: make one (SparkSession.builder.getOrCreate()) and give it"
        )
    session.dataSource.register(StreamDataSource)
    session.conf.set(_PUSHDOWN, "true")
    return session


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
    from streambench.spark.source.options import as_options

    session = register(spark)
    reader = session.read.format("streambench").options(**as_options(Config.of(config)), stream=stream)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**options).load()
