"""One session for the rounds of one or more deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streambench.config import Config
from streambench.spark.session import session_for
from streambench.spark.session_handle import SessionHandle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSession:
    """A session that is made when there is something to do for the first time, and again after ``close``."""

    def __init__(self, spark: SparkSession | None, master: str | None) -> None:
        self._spark = spark
        self._master = master
        self._handle: SessionHandle | None = None

    @property
    def is_started(self) -> bool:
        """True from the first round that had something to do on."""
        return self._handle is not None

    def handle(self, config: Config) -> SessionHandle:
        """The session. ``config``: of the job that needs it, for the keys under ``spark.``."""
        if self._handle is None:
            self._handle = session_for(self._spark, self._master, config)
        return self._handle

    def close(self, *, quickly: bool = False) -> None:
        """Stop the session if it was made here; may be called more than once. ``quickly``: as for a
        ``SessionHandle``."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close(quickly=quickly)

    def __enter__(self) -> SharedSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.close(quickly=kind is not None)
