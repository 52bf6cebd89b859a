"""Handles of Spark sessions: what a deployment needs of one, and its address."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from streambench.spark.master import is_local

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

UI = "spark.ui.enabled"
CONNECT_PORT = 15002

_EVENT_LOG = "spark.eventLog.enabled"


class SessionHandle:
    """A session for the time of a deployment. ``close`` stops it if it was made for it, and leaves it alone
    if it was not."""

    def __init__(self, spark: SparkSession | None, master: str) -> None:
        """``spark``: None where it is made when it is asked for."""
        self._spark = spark
        self.master = master

    @property
    def spark(self) -> SparkSession:
        """The session itself."""
        assert self._spark is not None
        return self._spark

    @property
    def context(self) -> SparkContext | None:
        """The session's SparkContext; None where its driver is another process."""
        return None if is_connect(self.spark) else self.spark.sparkContext

    @property
    def keeps_logs(self) -> bool:
        """True where what tasks print is shown, or still there when the session has ended."""
        return True

    @property
    def shows_metrics(self) -> bool:
        """True where the metrics of tasks can be looked at: it has a UI, or writes an event log."""
        if self.context is None:
            has_ui, writes = (setting(self.spark, key) for key in (UI, _EVENT_LOG))
            return has_ui != "false" or writes == "true"
        return self.context.uiWebUrl is not None or self.context.getConf().get(_EVENT_LOG) == "true"

    def host(self) -> str:
        """The address at which the executors reach this process; the loopback one where nothing better can be
        found out."""
        if is_connect(self.spark):
            # The executors are near the server, or reach this machine by the same way.
            return _address_towards(str(getattr(self.spark.client, "host", "")))
        if is_local(self.master):
            return "127.0.0.1"
        return setting(self.spark, "spark.driver.host") or "127.0.0.1"

    def close(self, *, quickly: bool = False) -> None:
        """Release the session, once for each ``session_for``. ``quickly``: only what has to be done."""


def is_connect(spark: SparkSession) -> bool:
    """True where a session is a Spark Connect client, whose driver is another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def setting(spark: SparkSession, key: str) -> str:
    """A setting of a session; empty where it has none, or does not show it."""
    try:
        return spark.conf.get(key, "") or ""
    except Exception as error:
        log.debug("no %s: %s", key, error)
        return ""


def _address_towards(host: str) -> str:
    """The address of this machine on the way to another one; the loopback one where there is no way."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, CONNECT_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as way:
            way.connect(place)  # sends nothing
            return str(way.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def first_line(error: BaseException) -> str:
    """The first line of an error that says something; else its kind."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
