"""The Spark session of a deployment: one that is there, that of ``spark-submit``, or one of its own."""

from __future__ import annotations

import atexit
import logging
import os
import socket
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from streambench.config import Config
from streambench.errors import ConfigError, MissingExtraError, StreambenchError
from streambench.spark.master import check_master, with_attempts
from streambench.spark.own_session import CHANGES, OwnSession, signals_untouched
from streambench.spark.session_handle import CONNECT_PORT, SessionHandle, first_line, is_connect, setting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_SPECULATION = "spark.speculation"
_SHUT_OUT = "two attempts at one container would fence each other"
_DEFAULT_MASTER = "local[*]"
_CONNECT_S = 10


def session_for(spark: SparkSession | None, master: str | None, config: Config) -> SessionHandle:
    """The given session, else the active one, else that of ``spark-submit``, else a new one. One that was
    started here for another user of this process ends when both have closed it.

    The new one is on ``master``, ``SPARK_REMOTE`` or the configuration's ``spark.master`` (``local[*]`` if
    none is given).

    Raises MissingExtraError, and StreambenchError where Spark does not start or another session is there than
    ``master`` names."""
    require()
    with CHANGES:
        own = OwnSession.present()
        if own is not None and (spark is None or own.is_of(spark)):
            if spark is None:
                present = with_attempts(own.master)
                _check_same(master, present, f"there is an active Spark session on {present}")
            assert own.context is not None
            _refuse_speculation(own.context.getConf().get(_SPECULATION, ""), "the session")
            return own.joined()
        if spark is None:
            spark = active_session()
            if spark is not None and not _is_on_server(spark, master):
                _check_same(master, _master(spark), f"there is an active Spark session on {_master(spark)}")
        if spark is None and _is_submitted():
            spark = _submitted(master, config)
        if spark is not None:
            _refuse_speculation(setting(spark, _SPECULATION), "the session")
            return SessionHandle(spark, _master(spark))
        master = master or chosen_master(config)
        return _ConnectSession(master) if master.startswith("sc://") else OwnSession(master, config)


def open_session(master: str | None = None, config: Config | Mapping[str, Any] | None = None) -> SparkSession:
    """A quiet session for a notebook or a program, on ``master`` (as ``deploy`` chooses it if none is given).

    Deployments and DataFrames then use it as the active one.

    It ends with its ``stop()``, or with this process; its JVM and its temporary files go with it.
    ``config``: a job's, whose keys under ``spark.`` it takes. Raises what ``session_for`` raises."""
    with CHANGES:
        session = session_for(None, master, Config.of(config or {}))
        own = OwnSession.present()
        if own is not None:
            return own.handed_out()
    atexit.register(session.close, quickly=True)
    return session.spark


def check_settings(config: Config) -> None:
    """Raise ConfigError for settings of the configuration under ``spark.`` that a deployment cannot live
    with."""
    if (config.text(_SPECULATION) or "").strip().lower() == "true":
        raise config.error(_SPECULATION, f"is true: {_SHUT_OUT}; leave it out")


def _refuse_speculation(set_to: str | None, which: str) -> None:
    if (set_to or "").strip().lower() == "true":
        raise ConfigError(f"{_SPECULATION} is true: {_SHUT_OUT}; start {which} without it", key=_SPECULATION)


def likely_master(config: Config) -> str:
    """The master that a deployment uses if it names none; for displays, before anything is started."""
    active = active_session()
    if active is not None:
        return _master(active)
    return "the master of spark-submit" if _is_submitted() else chosen_master(config)


def chosen_master(config: Config) -> str:
    """The master of a session that a deployment starts by itself and for which none is named."""
    given = config.below("spark.").get("master")
    master = os.environ.get("SPARK_REMOTE") or given or _DEFAULT_MASTER
    check_master(master)
    return master


def require() -> None:
    """Raise MissingExtraError unless everything that DataFrame.mapInArrow needs is installed."""
    if find_spec("pyspark") is None or find_spec("pandas") is None:
        raise MissingExtraError("deploying on Spark", "spark")


def active_session() -> SparkSession | None:
    """The active session of this process; None where it has none."""
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkException:
        pass
    # A context alone is that of another deployment: a process can have only one.
    classic = sys.modules.get("pyspark.core.context")
    context = None if classic is None else classic.SparkContext._active_spark_context
    return None if context is None or context._jsc is None else SparkSession(context)


def _is_submitted() -> bool:
    """True where ``spark-submit`` has started this program, and its JVM waits for a session."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted(master: str | None, config: Config) -> SparkSession:
    """The session of ``spark-submit``, which ends with the program: a JVM that has stopped one starts no
    other on some masters. It takes the keys of the configuration under ``spark.`` that were not submitted."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    conf = SparkConf()
    submitted = conf.get("spark.master", "") or ""
    if submitted:
        _check_same(master, submitted, f"spark-submit has started this program on {submitted}")
    else:
        conf.set("spark.master", with_attempts(master or chosen_master(config)))
    for key, value in config.below("spark.").items():
        if not conf.contains(f"spark.{key}"):
            conf.set(f"spark.{key}", value)
    with signals_untouched():
        return SparkSession.builder.config(conf=conf).getOrCreate()


def _check_same(master: str | None, present: str, there: str) -> None:
    if master is not None and with_attempts(master) != with_attempts(present):
        raise StreambenchError(
            f"{there}, and this process can have only one: stop it (spark.stop()), or name no master"
        )


def _is_on_server(spark: SparkSession, url: str | None) -> bool:
    """True for a client of the Spark Connect server of a URL. Its own ``spark.master`` is the server's."""
    if url is None or not url.startswith("sc://") or not is_connect(spark):
        return False
    from pyspark.sql.connect.client import DefaultChannelBuilder

    client: Any = spark.client
    return bool(DefaultChannelBuilder(url).endpoint == getattr(client._builder, "endpoint", None))


def _master(spark: SparkSession) -> str:
    return setting(spark, "spark.master")


class _ConnectSession(SessionHandle):
    """A Spark Connect client."""

    def __init__(self, url: str) -> None:
        if find_spec("grpc") is None:
            raise MissingExtraError(f"deploying on {url}", "spark")
        from pyspark.sql.connect.session import SparkSession

        place = urlsplit(url)
        shown = f"sc://{place.hostname}:{place.port or CONNECT_PORT}"  # what follows may hold a token
        try:
            # The client itself would go on trying for minutes.
            socket.create_connection((place.hostname or "", place.port or CONNECT_PORT), _CONNECT_S).close()
            spark: Any = SparkSession.builder.remote(url).create()
        except Exception as error:
            raise StreambenchError(f"cannot reach Spark Connect at {shown}: {first_line(error)}") from error
        super().__init__(spark, shown)
        try:
            _refuse_speculation(setting(spark, _SPECULATION), "the Spark Connect server")
        except BaseException:
            self.close()
            raise

    def close(self, *, quickly: bool = False) -> None:
        self.spark.stop()
