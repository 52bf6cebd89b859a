"""Shrinking a failing recording to the fewest messages that still fail (delta debugging, ddmin)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from streambench.debug.replay.replay import replaying, run_to_end
from streambench.debug.stopping.interrupt import noted_interrupts
from streambench.errors import StreambenchError, TaskError, class_name
from streambench.recording.file import Row
from streambench.recording.recording import Recording
from streambench.recording.stream_rows import failure_row

log = logging.getLogger(__name__)

Failing = Callable[[Recording], bool]
"""Returns true where a recording fails as the one that is to be shrunk."""

ShrinkProgress = Callable[[int, int], object]
"""Is called with the number of messages of the smallest recording so far, and the recordings tried."""


def shrink(
    recording: Recording | str | Path,
    failing: Failing | None = None,
    *,
    task: Any = None,
    recorded_source: bool = False,
    progress: ShrinkProgress = lambda left, tried: None,
) -> Recording:
    """The recording with the fewest messages that still fails: none of them can be left out.

    ``failing``: returns true for a recording that fails; without it, the one that fails with the same
    exception, raised at the same line. That failure is the one of the result. ``task`` and
    ``recorded_source``: the code to run, as for ``open``.

    A KeyboardInterrupt ends it with the smallest recording so far. Raises StreambenchError where the
    recording does not fail."""
    whole = recording if isinstance(recording, Recording) else Recording.read(recording)
    same = _SameFailure(task, recorded_source=recorded_source)
    fails = failing or same
    if not fails(whole):
        raise StreambenchError(
            f"{whole.path or whole.job} does not fail when it is run again: there is nothing to shrink"
        )
    best = list(range(len(whole)))

    def still_fails(positions: Sequence[int]) -> bool:
        if interrupted.is_set():
            raise KeyboardInterrupt
        return fails(whole.only(positions))

    try:
        with noted_interrupts() as interrupted:
            for smaller in _smaller(best, still_fails, progress):
                best = smaller
    except KeyboardInterrupt:
        log.warning("interrupted: the smallest recording so far has %d messages", len(best))
    return whole.only(best) if failing else same.ended(whole.only(best))


def small_path(path: Path) -> Path:
    """The path of a shrunk recording, beside the one that it was made of."""
    return path.with_name(f"{path.stem}.small{path.suffix}")


def _smaller(
    positions: Sequence[int], fails: Callable[[Sequence[int]], bool], progress: ShrinkProgress
) -> Iterator[list[int]]:
    """Ever fewer of these positions for which ``fails`` is true; of the last ones none can be left out."""
    left, parts, tried = list(positions), 2, 0
    yield left
    while len(left) > 1 and parts:
        size = -(-len(left) // parts)
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        # The later messages alone, first: what leads to a failure is mostly near to it.
        candidates = [*reversed(chunks)] if parts == 2 else []
        candidates += [
            [position for other in chunks if other is not chunk for position in other] for chunk in chunks
        ]
        found = None
        for candidate in candidates:
            tried += 1
            progress(len(left), tried)
            if candidate and fails(candidate):
                found = candidate
                break
        if found is not None:
            left, parts = found, max(parts - 1, 2)
            yield left
        else:
            parts = 0 if size == 1 else min(len(left), parts * 2)


class _SameFailure:
    """Returns true where a recording fails as the first one does that it is given."""

    def __init__(self, task: Any, *, recorded_source: bool) -> None:
        self._task, self._recorded_source = task, recorded_source
        self._wanted: str | None = None
        self._row: Row | None = None
        self._end = 0

    def __call__(self, recording: Recording) -> bool:
        how = {"recorded_source": self._recorded_source, "history": False, "at_end": False}
        with replaying(recording, self._task, **how) as session:
            try:
                run_to_end(session)
            except StreambenchError as error:
                kind = _kind(error)
                self._wanted = self._wanted or kind
                if kind == self._wanted:
                    done, failing = session.position, session.container.status.progress.unfinished_count
                    self._row = failure_row(error, done)
                    self._end = len(recording) if self._row.source is None else done + failing
                    return True
        return False

    def ended(self, recording: Recording) -> Recording:
        """The last recording that failed so, up to its failing message, with its failure."""
        return recording.only(range(min(self._end, len(recording)))).with_failure(self._row)


def _kind(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, TaskError) and error.__cause__ is not None else error
    place = ""
    trace = cause.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{class_name(type(cause))} at {place}"
