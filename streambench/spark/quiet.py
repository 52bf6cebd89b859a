"""Silence of a session's JVM while a deployment shows its own progress: a notebook has both in one cell."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

_NEVER_MS = 1 << 62

_changes = threading.Lock()
_silenced: dict[SparkContext, tuple[int, tuple[Any, ...]]] = {}
"""Of each context the number of deployments that have silenced it, and the steps that undo it."""


@contextmanager
def quiet(context: SparkContext | None) -> Iterator[None]:
    """Have the progress bars of Spark wait, and its warnings, where warnings are the lowest level that is
    shown. A session that shows more was made to. None: a session of Spark Connect, which prints nothing.

    Of deployments that overlap on one session, the last one that ends undoes it."""
    if context is None:
        yield
        return
    with _changes:
        users, restores = _silenced.get(context) or (0, (_hide_bars(context), _hide_warnings(context)))
        _silenced[context] = users + 1, restores
    try:
        yield
    finally:
        with _changes:
            users, restores = _silenced.pop(context)
            if users > 1:
                _silenced[context] = users - 1, restores
            else:
                for restore in restores:
                    _try(restore)


def _hide_bars(context: Any) -> Any:
    """Have stages run for ever before they get a bar; return what undoes it."""

    def set_delay(to_ms: int | None) -> int:
        bar = context._jsc.sc().progressBar()
        if bar.isEmpty():
            return 0
        field = bar.get().getClass().getDeclaredField("firstDelayMSec")
        field.setAccessible(True)
        before: int = field.get(bar.get())
        if to_ms:
            field.set(bar.get(), to_ms)
        return before

    before = _try(lambda: set_delay(_NEVER_MS))
    return lambda: set_delay(before)


def _hide_warnings(context: Any) -> Any:
    def level() -> str:
        return str(context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel())

    if _try(level) != "WARN":
        return lambda: None
    _try(lambda: context.setLogLevel("ERROR"))
    return lambda: context.setLogLevel("WARN")


def _try(step: Any) -> Any:
    """Silence is no reason to fail: other versions of Spark may lack what is used here."""
    try:
        return step()
    except Exception as error:
        log.debug("Spark stays as loud as it is: %s", error)
        return None
