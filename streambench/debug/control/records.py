"""The part of a session that records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from streambench.checkpoint.api import Checkpoint
from streambench.container.observer import ContainerObserver
from streambench.debug.control.driving import between_messages
from streambench.debug.control.hot_swap import HotSwap
from streambench.debug.control.recorder import DEFAULT_MB, Recorded, Recorder, write_capture
from streambench.debug.history.history import History
from streambench.errors import ContainerStateError, StreambenchError
from streambench.recording.captures import capture_limit, shown_path
from streambench.recording.file import check_target
from streambench.recording.recording import Recording
from streambench.wording import words

log = logging.getLogger(__name__)


class Records(HotSwap):
    """A session's way to record. ``recording``: the one that the session replays; None for a live job.
    ``recorded``: the last one that it has made, and that has ended; None for none. ``cut_recording``: the one
    that ended with the failure at which the session stands."""

    recording: Recording | None = None
    recorded: Recorded | None = None
    cut_recording: Recorded | None = None
    _recorder: Recorder | None = None
    _to_record: tuple[Path, int] | None = None
    _at_commit: _AtCommit | None = None
    _warned_of: Path | None = None

    def record(self, path: str | Path, *, mb: int = DEFAULT_MB) -> None:
        """Record to a file, until ``stop_recording``, or until the session stops.

        It begins at the start, or here where nothing was processed since the last commit, else with the next
        commit. Where tasks commit by themselves, that is one behind which all of them are committed. A task
        that failed at a message is recorded once it goes on there. The recording ends at ``mb`` megabytes.

        A recording of that name is replaced. A relative path is of the working directory at this call.

        Raises ContainerStateError without a history and where the session has ended for good,
        StreambenchError where the file cannot be written, or is no recording."""
        self._history()
        target = Path(path).absolute()
        if self.container.state not in ("new", "running") and not self.can_resume:
            raise ContainerStateError(
                f"{self.name} is {self.container.state}, and this session ended: record its next one, before "
                "its start"
            )
        if self._recorder is not None and self._recorder.is_open:
            raise ContainerStateError(
                f"{self.name} is being recorded already, to {shown_path(self._recorder.path)}: "
                f"{words('stop recording')} ends that"
            )
        # Its own recording has the lock of that file: to record twice has the remedy above.
        check_target(Path(path))

        def begin() -> None:
            self._to_record, self._warned_of = (target, mb), None
            if self.container.state == "running":
                self._begin_here_or_at_commit()

        self._require_live("record")
        self.between(begin)

    @between_messages
    def stop_recording(self) -> Recorded:
        """End the recording, between two messages; the job goes on. One that has not begun yet is given up,
        and has no messages. Raises ContainerStateError where nothing is being recorded."""
        if self._to_record is not None:
            path, _ = self._to_record
            self._to_record = None
            self._wait_for_no_commit()
            return Recorded(path, 0, 0)
        if self.recorded_to is None:
            raise ContainerStateError(f"{self.name} {self.not_recorded}: {words('record')} begins it")
        self._close_record()
        assert self.recorded is not None
        return self.recorded

    def _exchange(self, factory: Any, *, init: bool) -> None:
        super()._exchange(factory, init=init)
        self._note_swap(init=init)

    def _exchange_back(self) -> None:
        after_init = self._former[-1][1] is not None
        super()._exchange_back()
        self._note_swap(init=False, is_undone=after_init)

    def adopt(self) -> int:
        branch = [] if self._past is None else [*self._past.branch]
        position = super().adopt()
        if self._recorder is not None:
            self._recorder.note_adopted([(each.position, each.factory, each.init) for each in branch])
        return position

    def _note_swap(self, *, init: bool, is_undone: bool = False) -> None:
        if self._recorder is not None:
            container = self.container
            self._recorder.note_swap(container.processed, container.factory, init=init, is_undone=is_undone)

    def _resume(self) -> None:
        was_failed = self.can_resume
        super()._resume()
        self.cut_recording = None
        if was_failed and self._to_record is not None:
            self.between(self._begin_here_or_at_commit)

    def _begin_here_or_at_commit(self) -> None:
        """Begin to record here where nothing was processed since the last commit of each task, else at the
        next commit behind which that is so."""
        history = self._history()
        if history.latest in (0, history.last_commit) and self._is_committed:
            self._begin_record()
        elif self._at_commit is None:
            self._at_commit = _AtCommit(self._begin_at_commit)
            self.container.observe(self._at_commit)

    @property
    def _is_committed(self) -> bool:
        """True where no task has processed more than it has committed. Tasks may commit by themselves: a
        replay begins with the state of all of them, and a crash in it goes back to its begin."""
        return all(task.offsets() == task.committed for task in self.container.tasks)

    def _wait_for_no_commit(self) -> None:
        """Wait for the next commit no longer. Between two messages."""
        waiting, self._at_commit = self._at_commit, None
        if waiting is not None:
            self.container.stop_observing(waiting)

    def _begin_history(self, history: int | bool | None) -> None:
        super()._begin_history(history)
        if self.history is not None:
            self.container.status.capture = partial(_capture, self.history)

    def replays(self, recording: Recording) -> None:
        """Note that the session replays a recording: none of its outputs leaves it."""
        self.recording, self._holds_all = recording, True
        self.container.failure_hold.is_replay = True

    def record_as(self, former: Records) -> None:
        """Record what was asked for of a former session of the same job, and did not begin there."""
        self._to_record = former._to_record

    @property
    def recorded_to(self) -> Path | None:
        """The file that is being recorded to; None where nothing is, or not yet."""
        return self._recorder.path if self._recorder is not None and self._recorder.is_open else None

    @property
    def not_recorded(self) -> str:
        """The words for a session that is not being recorded, with the recording that ended by itself."""
        ended = self.recorded
        if ended is None or not ended.reason:
            return "is not being recorded"
        return (
            f"is not being recorded any more (the recording to {shown_path(ended.path)} ended after "
            f"{ended.messages:,} messages, {ended.reason})"
        )

    @property
    def to_record(self) -> Path | None:
        """The file of a recording that has not begun yet; None where there is none."""
        return None if self._to_record is None else self._to_record[0]

    def _begin_record(self) -> None:
        """Begin what ``record`` asked for."""
        if self._to_record is None:
            return
        path, mb = self._to_record
        self._to_record = None
        history: History = self._history()
        try:
            recorder = Recorder(history, path, mb, on_end=self._note_ended)
        except OSError as error:
            raise StreambenchError(
                f"cannot record to {shown_path(path)}: {error.strerror or error}"
            ) from error
        if recorder.is_open:
            self._recorder = history.reader = recorder
        else:
            self.recorded = recorder.recorded

    def _note_ended(self) -> None:
        """Note that the recording ended by itself: nothing more is noted for it."""
        if self._recorder is not None:
            self.recorded = self._recorder.recorded
            self._recorder = self._history().reader = None

    def _begin_at_commit(self) -> None:
        """Begin the recording, except at the last commit of a stop: no message comes after it, and an earlier
        recording of that name stays. A file that cannot be written is a warning by now, and no failure."""
        if not self._is_committed and not self.container.is_stopping:
            return
        waiting, self._at_commit = self._at_commit, None
        if waiting is None:
            return  # the recording has begun; its observer goes once the loop takes commands
        self.container.post(partial(self.container.stop_observing, waiting))
        if self.container.is_stopping:
            self._warn_of_none()
            self._to_record = None
            return
        try:
            self._begin_record()
        except StreambenchError as error:
            log.warning("%s: %s; the job goes on", self.name, error)

    def _give_up_record(self) -> None:
        """End the recording of a container that was abandoned while a thread is in it."""
        if self._recorder is not None:
            self._recorder.give_up("the job was given up in the middle of a message")

    def _flush_record(self) -> None:
        if self._recorder is not None:
            self._history().read()
            self._recorder.flush()

    def _end_record(self, error: BaseException | None = None) -> None:
        """End the recording of a container that stopped or failed."""
        if self._to_record is not None and not self.can_resume:
            self._warn_of_none()
        if self._recorder is not None:
            self._close_record(error)

    def _warn_of_none(self) -> None:
        path = self.to_record
        if path is None or path == self._warned_of:
            return
        self._warned_of = path
        log.warning(
            "%s: nothing was recorded to %s: no commit of all tasks came before the end",
            self.name,
            shown_path(path),
        )

    def _close_record(self, error: BaseException | None = None) -> None:
        recorder, history = self._recorder, self._history()
        assert recorder is not None
        history.read()
        recorder.close(error)
        self.recorded = recorder.recorded
        self.cut_recording = None if error is None else self.recorded
        self._recorder = history.reader = None


def _capture(history: History, error: BaseException, path: Path) -> None:
    write_capture(history, error, path, capture_limit(history.container.config))


class _AtCommit(ContainerObserver):
    """Calls a function at each commit."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def commit_made(self, tasks: Sequence[str], checkpoints: Mapping[str, Checkpoint]) -> None:
        self._call()
