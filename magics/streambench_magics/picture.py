"""What a panel shows: one snapshot of a job, and what only successive snapshots can tell (rates, and where commits were)."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from streambench.container.snapshot import ContainerSnapshot, PartitionSnapshot
from streambench.debug.view import Rates, Row, rows
from streambench.errors import StreambenchError
from streambench.model import SystemStream, SystemStreamPartition
from streambench_magics.jobs import Job
from streambench_magics.tables import message_text

_MOST_ROWS = 100_000


class Picture(Struct, frozen=True):
    """All that a rendering may use.

    ``why``: why it stands still (or that it moves). ``message``: the message chosen last, as text. ``rows``: the lines of the inputs;
    those of a folded stream follow it where it is ``opened``. ``rate``: messages per second in all. ``commits``: the choices after which
    a commit is known. ``behind``: the snapshot is an old one, since the task has been busy with one message for long. ``notice``: what a
    button could not do.
    """

    name: str
    snapshot: ContainerSnapshot
    why: str
    message: str | None = None
    rows: tuple[Row, ...] = ()
    opened: frozenset[SystemStream] = frozenset()
    rate: float | None = None
    commits: frozenset[tuple[SystemStreamPartition, str]] = frozenset()
    behind: bool = False
    notice: str = ""

    @property
    def state(self) -> str:
        return self.snapshot.state

    @property
    def streams(self) -> list[SystemStream]:
        """The input streams, sorted: their order decides their colours."""
        return sorted({each.ssp.system_stream for each in self.snapshot.partitions})


class Viewer:
    """Takes pictures of one job. Used by one thread."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.opened: set[SystemStream] = set()
        self._rates = Rates()
        self._commits: set[tuple[SystemStreamPartition, str]] = set()
        self._session: object = None
        self._before: ContainerSnapshot | None = None

    def look(self, notice: str = "") -> Picture:
        """A picture of the job now."""
        job = self.job
        if job.session is not self._session:
            self._session, self._rates, self._commits = job.session, Rates(), set()
        snapshot = job.snapshot()
        behind = snapshot.state == "running" and self._before is not None and snapshot.time_ms == self._before.time_ms
        self._before = snapshot
        self._rates.add(snapshot)
        moving = snapshot.state == "running"
        self._remember_commits(snapshot)
        return Picture(
            job.name, snapshot, why(snapshot), _message(job, snapshot),
            rows=tuple(self._rows(snapshot, self._rates if moving else None)), opened=frozenset(self.opened),
            rate=self._rates.total() if moving else None, commits=frozenset(self._commits), behind=behind, notice=notice,
        )  # fmt: skip

    def _remember_commits(self, snapshot: ContainerSnapshot) -> None:
        for offsets in snapshot.checkpoints.values():
            self._commits.update(offsets.items())
        self._commits &= {(choice.ssp, choice.offset) for choice in snapshot.choices}

    def _rows(self, snapshot: ContainerSnapshot, rates: Rates | None) -> list[Row]:
        shown = rows(snapshot, rates)
        if not self.opened or not any(row.folded for row in shown):
            return shown
        every = rows(snapshot, rates, max_rows=_MOST_ROWS)
        return [
            each for row in shown for each in (row, *(part for part in every if row.stream in self.opened and part.stream == row.stream))
        ]


def still(job: Job) -> Picture:
    """A picture of a job on its own: without rates, so that it is the same whenever the job is in the same state."""
    return Viewer(job).look()


def why(snapshot: ContainerSnapshot) -> str:
    """Why a job stands still, or what it does."""
    if snapshot.state == "failed":
        return snapshot.reason
    if snapshot.state == "new":
        return "not started"
    if snapshot.state == "stopped":
        return snapshot.reason or "everything is committed"
    if snapshot.is_caught_up:
        return "caught up with all inputs"
    lag = snapshot.lag
    left = "" if lag is None else f", {lag:,} left"
    if snapshot.state == "running":
        return left[2:]
    return f"after message {snapshot.processed:,}{left}" if snapshot.processed else f"before the first message{left}"


def to_do_again(partitions: Collection[PartitionSnapshot]) -> int | None:
    """How many messages would be processed again after a crash now; None where offsets are no numbers."""
    again = 0
    for each in partitions:
        if each.checkpointed is None:
            again += each.processed
        elif each.checkpointed.isdecimal() and each.position.isdecimal():
            again += max(0, int(each.position) - int(each.checkpointed) - 1)
        else:
            return None
    return again


def _message(job: Job, snapshot: ContainerSnapshot) -> str | None:
    message = job.last_message(snapshot)
    if message is None:
        return None
    try:
        return message_text(message)
    except (RuntimeError, StreambenchError):
        # The task may be changing the very message that is drawn here; the next picture has it.
        return "(changing)"
