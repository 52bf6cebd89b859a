"""State of a panel: one snapshot of a job, and what only successive snapshots show (rates, and where
commits were)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from streambench.chooser.explanation import Candidate, closed
from streambench.container.observe.snapshot import Choice, ContainerSnapshot, PartitionSnapshot
from streambench.debug.control.session import Session
from streambench.debug.message_text import MessageText, message_block
from streambench.debug.names import middle_cut
from streambench.debug.stopping.breakpoints import Breakpoint
from streambench.debug.view.position_figures import Figures
from streambench.debug.view.rates import Rates
from streambench.debug.view.rows import Row, rows
from streambench.debug.view.standing import Standing, StandingReader, in_the_past
from streambench.errors import StreambenchError
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition

_MOST_ROWS = 100_000
_MOST_COMMITS = 30
_NAME = 24
_NAMED, _FEW = 6, 3
"""Candidates that are named; of streams with long names, fewer."""
_NAME_OF_ONE = 16
_POINTS = 120
"""Points of the figures over time."""


class ShownJob(Protocol):
    """The job that a panel shows: a session that is made when it is first needed, and may be followed by
    another one."""

    name: str
    session: Session | None

    @property
    def state(self) -> str:
        """new, paused, running, stopped or failed."""

    @property
    def busy_at(self) -> str:
        """The message that its task has been busy with for long, and where; else empty."""

    def snapshot(self) -> ContainerSnapshot:
        """A snapshot of it, in the state of its session."""


class Notice(NamedTuple):
    """A line about what a button or key did, or could not do. ``kind``: "" where it only informs."""

    text: str = ""
    kind: Literal["", "warning", "failure"] = ""


NO_NOTICE = Notice()


class Commit(Struct, frozen=True):
    """A commit that was seen: after message ``number``, at ``time_ms``."""

    number: int
    time_ms: int


class PanelState(Struct, frozen=True, dict=True):
    """All that a rendering may use.

    ``status_text``: why it stands still (or that it moves). ``message``: the message chosen last, as text.
    ``rows``: the lines of the inputs; those of a folded stream follow it where it is ``opened``. ``rate``:
    messages per second in all. ``commits``: numbers of the choices after which there was a commit.
    ``behind``: the snapshot is an old one, since the task has been busy with one message for long.
    ``notice``: about the last button. ``rates`` and ``lags``: over the last time that it ran.
    ``busy``: with which message its task has been busy for long, and where; ``at_work``: that message, None
    where it is busy with something else. ``last_commits``: those that were seen, the newest last.
    ``standing``: where it stands, while it stands still. ``live``: the snapshot of the container itself,
    where ``snapshot`` is of the past. ``speeds``: per partition, while it runs. ``stopped_at``: the
    breakpoint at which it stands, and what that saw.
    """

    name: str
    snapshot: ContainerSnapshot
    why: str
    message: MessageText | None = None
    rows: tuple[Row, ...] = ()
    opened: frozenset[SystemStream] = frozenset()
    rate: float | None = None
    commits: frozenset[int] = frozenset()
    behind: bool = False
    notice: Notice = NO_NOTICE
    rates: tuple[float, ...] = ()
    lags: tuple[float, ...] = ()
    busy: str = ""
    at_work: Choice | None = None
    last_commits: tuple[Commit, ...] = ()
    standing: Standing | None = None
    live: ContainerSnapshot | None = None
    speeds: Rates | None = None
    breakpoints: tuple[Breakpoint, ...] = ()
    stopped_at: str = ""

    @property
    def state(self) -> str:
        """That of the job, or "busy" where its task has been at one message for long, or "past"."""
        past = self.standing is not None and not self.standing.is_live
        return "busy" if self.busy else "past" if past else self.snapshot.state

    @property
    def figures(self) -> Figures:
        """The metrics of its position, where they are others than the counts of the snapshot."""
        return Figures() if self.standing is None else self.standing.figures

    @cached_property
    def choice(self) -> Choice | None:
        """The choice of the last message; in the past, that of the message there. Further back than the
        choices that are remembered it has no rule. While its task is busy for long: the message that it is
        at."""
        if self.busy:
            return self.at_work
        choices, standing = self.snapshot.choices, self.standing
        if standing is None or standing.is_live:
            if choices:
                return choices[-1]
        elif found := [each for each in choices if each.number == standing.position]:
            return found[0]
        envelope = None if standing is None else standing.message
        if envelope is None or not self.snapshot.processed:
            return None
        return Choice(self.snapshot.processed, envelope.ssp, envelope.offset, envelope.key)

    @cached_property
    def is_pending(self) -> bool:
        """True where the message chosen last is not processed: a breakpoint stands before it, or the task is
        at it or has failed there."""
        if self.choice is None or self.state == "running":
            return False
        return self.choice.number > self.snapshot.processed

    @property
    def last_is_pending(self) -> bool:
        """True where that message is among the choices of the snapshot. While a task is busy, the snapshot is
        from before its message."""
        return self.is_pending and self.choice in self.snapshot.choices[-1:]

    @cached_property
    def one_system(self) -> bool:
        """True where the inputs are all of one system, which need not be named then."""
        return len({each.system for each in self.streams}) == 1

    @cached_property
    def one_stream(self) -> bool:
        """True where there is one input stream."""
        return len(self.streams) == 1

    @cached_property
    def worst(self) -> dict[SystemStream, PartitionSnapshot]:
        """Per stream, the partition with the largest lag."""
        worst: dict[SystemStream, PartitionSnapshot] = {}
        for each in self.snapshot.partitions:
            before = worst.get(each.ssp.system_stream)
            if each.lag and (before is None or each.lag > (before.lag or 0)):
                worst[each.ssp.system_stream] = each
        return worst

    def status(self, row: Row) -> str:
        """The status of a row: "chosen" for the partition that was chosen last, "busy" while the task is at
        its message for long. Of a folded stream also the partition that was chosen, and the one with the
        largest lag."""
        last = None if self.choice is None else self.choice.ssp
        is_there = last is not None and last.system_stream == row.stream
        if not row.folded:
            return (
                ("busy" if self.busy else "chosen")
                if is_there and last is not None and last.partition == row.partition
                else row.standing
            )
        chose = "busy at" if self.busy else "chose"
        chosen = f"{chose} .{last.partition} · " if is_there and last is not None else ""
        worst = self.worst.get(row.stream)
        lag = "" if worst is None else f" · worst lag {worst.lag:,} in .{worst.ssp.partition}"
        return f"{chosen}{row.standing}{lag}"

    def others(self) -> list[str]:
        """The other candidates when the last message was chosen, those held back and by what; and that the
        gate is closed."""
        why = self.choice.explanation if self.choice is not None else None
        most = _FEW if any(len(each.stream) > _NAME for each in self.streams) else _NAMED
        others = why.others(self._short, most) if why is not None else []
        return [*others, *closed(self.snapshot.gate)]

    def _short(self, candidate: Candidate) -> str:
        name = str(candidate.ssp)
        name = name.removeprefix(f"{candidate.ssp.system}.") if self.one_system else name
        # The candidates of one stream differ in their partition only.
        name = middle_cut(name, _NAME_OF_ONE if self.one_stream else _NAME)
        return name if candidate.offset is None else f"{name}@{candidate.offset}"

    @cached_property
    def streams(self) -> list[SystemStream]:
        """The input streams, sorted: their order decides their colours."""
        return sorted({each.ssp.system_stream for each in self.snapshot.partitions})


class _Seen(NamedTuple):
    """A position of a job: its snapshot, that of the container itself (``live``), and the message there."""

    snapshot: ContainerSnapshot
    live: ContainerSnapshot
    why: str
    envelope: IncomingMessageEnvelope | None
    standing: Standing | None = None
    at_work: Choice | None = None


class PanelStateReader:
    """Takes snapshots of one job. Used by one thread."""

    def __init__(self, job: ShownJob) -> None:
        self.job = job
        self.opened: set[SystemStream] = set()
        self.standing = StandingReader()
        self._rates = Rates()
        self._commits: set[int] = set()
        self._committed: set[tuple[SystemStreamPartition, str]] = set()
        self._last_commits: deque[Commit] = deque(maxlen=_MOST_COMMITS)
        self._rated: deque[float] = deque(maxlen=_POINTS)
        self._lagged: deque[float] = deque(maxlen=_POINTS)
        self._session: object = None
        self._before: ContainerSnapshot | None = None

    def take(self, notice: Notice = NO_NOTICE) -> PanelState:
        """A snapshot of the job now."""
        job = self.job
        if job.session is not self._session:
            self._session, self._rates = job.session, Rates()
            self._commits, self._committed = set(), set()
            self._last_commits.clear()
        snapshot = job.snapshot()
        moving = snapshot.state == "running"
        behind = moving and self._before is not None and snapshot.time_ms == self._before.time_ms
        self._before = snapshot
        self._rates.add(snapshot)
        self._remember_commits(snapshot)
        rate = self._rates.total() if moving else None
        if rate is not None and not behind:
            self._rated.append(rate)
            self._lagged.append(snapshot.lag or 0)
        busy = job.busy_at
        seen = _busy(job, snapshot, busy) if busy else self._look(snapshot)
        standing = seen.standing
        return PanelState(
            job.name,
            seen.snapshot,
            seen.why,
            _laid_out(seen.envelope),
            rows=tuple(self._rows(seen.snapshot, self._rates if moving else None)),
            opened=frozenset(self.opened),
            rate=rate,
            commits=frozenset(self._commits),
            behind=behind or bool(busy),
            notice=notice,
            rates=tuple(self._rated),
            lags=tuple(self._lagged),
            busy=busy,
            at_work=seen.at_work,
            last_commits=tuple(self._last_commits),
            standing=standing,
            live=seen.live,
            speeds=self._rates if moving else None,
            breakpoints=() if job.session is None else tuple(job.session.breakpoints),
            stopped_at=_stopped_at(job) if standing is not None and standing.is_live else "",
        )

    def _look(self, snapshot: ContainerSnapshot) -> _Seen:
        """The position that the job shows: the newest one, or one in the past."""
        job, session = self.job, self.job.session
        if session is None or (session.live and job.state not in ("paused", "failed")):
            return _Seen(snapshot, snapshot, status_text(snapshot), _last_chosen(job, snapshot))
        standing = self.standing.read(session, snapshot)
        if standing.is_live and standing.position != snapshot.processed:
            # A step came between the two: a frame must not show the one before and the other after it.
            snapshot = job.snapshot()
            standing = self.standing.read(session, snapshot)
        if not standing.is_live:
            past = in_the_past(snapshot, session)
            return _Seen(past, snapshot, _past(standing), standing.message, standing)
        envelope = _as_read(standing.message, snapshot, _last_chosen(job, snapshot))
        return _Seen(snapshot, snapshot, status_text(snapshot), envelope, standing)

    def _remember_commits(self, snapshot: ContainerSnapshot) -> None:
        """One commit is one mark: behind the last choice that it covers."""
        committed = {each for offsets in snapshot.checkpoints.values() for each in offsets.items()}
        new, self._committed = committed - self._committed, committed
        covered = [choice.number for choice in snapshot.choices if (choice.ssp, choice.offset) in new]
        if covered:
            self._last_commits.append(Commit(covered[-1], snapshot.time_ms))
        first = snapshot.choices[0].number if snapshot.choices else 0
        self._commits = {number for number in self._commits if number >= first} | set(covered[-1:])

    def _rows(self, snapshot: ContainerSnapshot, rates: Rates | None) -> list[Row]:
        shown = rows(snapshot, rates)
        if not self.opened or not any(row.folded for row in shown):
            return shown
        every = rows(snapshot, rates, max_rows=_MOST_ROWS)
        # An open stream is followed by its partitions, also by those beyond the usual number of rows.
        return [
            each
            for row in shown
            for each in (
                row,
                *(part for part in every if row.stream in self.opened and part.stream == row.stream),
            )
        ]


def static_view(job: ShownJob) -> PanelState:
    """A snapshot of a job on its own: without rates, so that it is the same whenever the job is in the same
    state."""
    return PanelStateReader(job).take()


def status_text(snapshot: ContainerSnapshot) -> str:
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
    return (
        f"after message {snapshot.processed:,}{left}"
        if snapshot.processed
        else f"before the first message{left}"
    )


def to_do_again(partitions: Collection[PartitionSnapshot]) -> int | None:
    """Number of messages to process again after a crash now; None where offsets are no numbers."""
    again = 0
    for each in partitions:
        if each.checkpointed is None:
            again += each.processed
        elif each.checkpointed.isdecimal() and each.position.isdecimal():
            again += max(0, int(each.position) - int(each.checkpointed) - 1)
        else:
            return None
    return again


def _stopped_at(job: ShownJob) -> str:
    stopped = None if job.session is None else job.session.stopped_at
    if stopped is None:
        return ""
    number = f"breakpoint {stopped.breakpoint.id}: " if stopped.breakpoint.id else ""
    return f"{number}{stopped.text}"


def _past(standing: Standing) -> str:
    branch = "in a branch, its outputs are held back: " if standing.is_branch else ""
    return f"{branch}at message {standing.position:,} of {standing.latest:,}"


def _last_chosen(job: ShownJob, snapshot: ContainerSnapshot) -> IncomingMessageEnvelope | None:
    """The message of the last choice; None where it is not known any more."""
    if job.session is None or not snapshot.choices:
        return None
    last = snapshot.choices[-1]
    for envelope in reversed(tuple(job.session.container.choices)):
        if envelope.offset == last.offset and envelope.ssp == last.ssp:
            return envelope
    return None


def _as_read(
    envelope: IncomingMessageEnvelope | None,
    snapshot: ContainerSnapshot,
    otherwise: IncomingMessageEnvelope | None,
) -> IncomingMessageEnvelope | None:
    """The message of the last choice as it was read: that of the choice may be changed by its task."""
    last = snapshot.choices[-1] if snapshot.choices else None
    if envelope is None or last is None or (envelope.ssp, envelope.offset) != (last.ssp, last.offset):
        return otherwise
    return envelope


def _busy(job: ShownJob, snapshot: ContainerSnapshot, why: str) -> _Seen:
    """A job whose task is busy: at a message, which is also the choice behind those of the snapshot, or at
    something else."""
    envelope = None if job.session is None else job.session.container.current_input
    if envelope is None:
        return _Seen(snapshot, snapshot, why, None)
    choice = Choice(snapshot.processed + 1, envelope.ssp, envelope.offset, envelope.key)
    return _Seen(snapshot, snapshot, why, envelope, at_work=choice)


def _laid_out(envelope: IncomingMessageEnvelope | None) -> MessageText | None:
    """The text of a message, which takes its time: once a frame."""
    if envelope is None or envelope.message is None:
        return None
    try:
        return message_block(envelope.message)
    except (RuntimeError, StreambenchError):
        # The task may be changing the very message that is drawn here; the next frame has it.
        return MessageText("(changing)", 0)
