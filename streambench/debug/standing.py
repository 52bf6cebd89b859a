"""The standing of a job that does not move: its position in time, what the message there changed and
sent, and the first entries of its stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from streambench.container.observe.snapshot import ContainerSnapshot, PartitionSnapshot, lag_between
from streambench.debug.entries import Entries, first_entries
from streambench.debug.events import Change, Output
from streambench.debug.session import Session
from streambench.errors import StreambenchError
from streambench.model import SystemStreamPartition

_MOST_ENTRIES = 60
_MOST_OUTPUTS = 30
_LOOK_BACK = 300
"""Messages whose outputs are looked for."""

_T = TypeVar("_T")


class Standing(Struct, frozen=True):
    """``position``: the number of messages processed there. ``oldest``: the first position that the history
    reaches, None where there is none; ``history_bytes``: its memory. ``message``: the envelope processed
    last. ``outputs``: the newest last."""

    position: int = 0
    latest: int = 0
    is_live: bool = True
    is_branch: bool = False
    oldest: int | None = None
    history_bytes: int = 0
    message: Any = None
    changes: tuple[Change, ...] = ()
    outputs: tuple[Output, ...] = ()
    entries: Entries = Entries()

    @property
    def new_outputs(self) -> int:
        """The number of outputs that the last message sent."""
        return sum(each.position == self.position for each in self.outputs)


class StandingReader:
    """Reads where a session stands, when something has changed there. ``search``: for entries."""

    def __init__(self) -> None:
        self.search = ""
        self._read: tuple[object, ...] = ()
        self._last = Standing()

    def read(self, session: Session, snapshot: ContainerSnapshot) -> Standing:
        """The standing of a session that is not running."""
        committed = tuple(tuple(offsets.values()) for offsets in snapshot.checkpoints.values())
        at = (session, session.position, session.latest, session.branched, self.search, committed)
        if at != self._read:
            self._read, self._last = at, self._standing(session)
        return self._last

    def _standing(self, session: Session) -> Standing:
        position, history = session.position, session.history
        entries = _known(lambda: first_entries(session, _MOST_ENTRIES, self.search), Entries())
        message = _known(lambda: session.message, None)
        if history is None:
            return Standing(position, session.latest, message=message, entries=entries)
        since = max(0, history.oldest, position - _LOOK_BACK)
        changes: list[Change] = []
        outputs: list[Output] = []
        changes = _known(lambda: session.changes_at(position), changes)
        outputs = _known(lambda: session.outputs(since), outputs)
        return Standing(
            position,
            session.latest,
            session.live,
            session.branched,
            history.oldest,
            history.size,
            message,
            tuple(changes),
            tuple(outputs[-_MOST_OUTPUTS:]),
            entries,
        )


def in_the_past(snapshot: ContainerSnapshot, session: Session) -> ContainerSnapshot:
    """A snapshot with the positions of the past in which its session stands."""
    nothing: dict[str, dict[SystemStreamPartition, str]] = {}
    offsets = _known(session.offsets, nothing)
    last = {ssp: offset for of_task in offsets.values() for ssp, offset in of_task.items()}

    def then(each: PartitionSnapshot) -> PartitionSnapshot:
        offset = last.get(each.ssp)
        if offset is None or not offset.isdecimal():
            return each
        position = str(int(offset) + 1)
        return replace(
            each, position=position, lag=lag_between(position, each.upcoming), status="", turn=None, waiting=0
        )

    return replace(
        snapshot, processed=session.position, partitions=tuple(map(then, snapshot.partitions)), gate=""
    )


def _known(read: Callable[[], _T], otherwise: _T) -> _T:
    """The value that is read, or ``otherwise`` where the job has just ended or its history does not reach."""
    try:
        return read()
    except (StreambenchError, IndexError):
        return otherwise
