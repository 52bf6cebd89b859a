"""The standing of a job that does not move.

It has its position in time, what the message there changed and sent, and the first entries of its stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from streambench.checkpoint.api import Checkpoint
from streambench.container.observe.snapshot import ContainerSnapshot, PartitionSnapshot, lag_between
from streambench.debug.control.session import Session
from streambench.debug.effects.events import Change, Output
from streambench.debug.message_text import message_text
from streambench.debug.stopping.conditions import ConditionError
from streambench.debug.view.entries import Entries, Entry, first_entries
from streambench.debug.view.kept_commits import KeptCommit, kept_commits
from streambench.debug.view.position_figures import Figures, figures_of
from streambench.errors import StreambenchError
from streambench.model import SystemStreamPartition

_MOST_ENTRIES = 60
_MOST_OUTPUTS = 30
_MOST_OF_KEY = 60
_VALUE = 200
KEY_TEXT = 120
"""Characters by which a key is picked."""

_LOOK_BACK = 300
"""Messages whose outputs are looked for."""

_T = TypeVar("_T")


class Watched(Struct, frozen=True):
    """A watch: its value, or why there is none, as text. ``changed``: it was another one at the position
    shown before."""

    name: str
    expression: str
    value: str
    changed: bool = False


class KeyHistory(Struct, frozen=True):
    """The last ``changes`` of one key of a store of a task up to a position, the newest first, and the number
    of all."""

    task: str
    store: str
    key: Any
    changes: tuple[Change, ...] = ()
    count: int = 0


class Standing(Struct, frozen=True):
    """``position``: the number of messages processed there. ``oldest``: the first position that the history
    reaches, None where there is none; ``history_bytes``: its memory. ``message``: the envelope processed
    last. ``outputs``: the newest last; ``causes``: per position of an output, the message that it was made
    from. ``commits``: those that are kept, the newest first. ``search``: the text that the entries were
    searched for. ``key_history``: that of the key that was picked. ``figures``: the metrics there."""

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
    causes: Mapping[int, str] = {}
    watches: tuple[Watched, ...] = ()
    commits: tuple[KeptCommit, ...] = ()
    search: str = ""
    key_history: KeyHistory | None = None
    figures: Figures = Figures()

    @property
    def state_mark(self) -> str:
        """The mark of a page of state: "3 changed" by the last message."""
        return f"{len(self.changes)} changed" if self.changes else ""

    @property
    def outputs_mark(self) -> str:
        """The mark of a page of outputs: "2 new" of the last message."""
        new = sum(each.position == self.position for each in self.outputs)
        return f"{new} new" if new else ""

    @property
    def watches_mark(self) -> str:
        """The mark of a page of watches: "1 changed", else their number."""
        changed = sum(each.changed for each in self.watches)
        return f"{changed} changed" if changed else str(len(self.watches) or "")

    def cause(self, output: Output) -> str:
        """The message that an output was made from, or the callback that sent it; empty where it is not
        known."""
        return output.source or self.causes.get(output.position, "")


def _watched_text(value: Any) -> str:
    """The value of a watch, or why there is none."""
    return str(value) if isinstance(value, ConditionError) else message_text(value, _VALUE)


class StandingReader:
    """Reads where a session stands, when something has changed there. ``search``: for entries. ``picked``:
    the task, the store and the key, as text, whose history is read."""

    def __init__(self) -> None:
        self.search = ""
        self.picked: tuple[str, str, str] | None = None
        self._key: tuple[str, str, Any] | None = None
        self._read: tuple[object, ...] = ()
        self._last = Standing()
        self._values: dict[str, str] = {}
        self._marked: set[str] = set()
        """The watches whose values were others at the position before."""
        self._checkpoints: dict[str, list[Checkpoint]] = {}

    def read(self, session: Session, snapshot: ContainerSnapshot) -> Standing:
        """The standing of a session that is not running."""
        # A step of another thread may begin at any time: what is read is of one moment, between two messages.
        return session.between(lambda: self._read_between(session, snapshot))

    def _read_between(self, session: Session, snapshot: ContainerSnapshot) -> Standing:
        committed = tuple(tuple(offsets.values()) for offsets in snapshot.checkpoints.values())
        expressions = tuple(session.watch_expressions.items())
        at = (
            session,
            session.position,
            session.latest,
            session.branched,
            self.search,
            committed,
            expressions,
            self.picked,
            snapshot.processed,
            session.exchanges,
            session.has_memory_at_hand,
        )
        if at != self._read:
            if self._read[:1] + self._read[5:6] != (session, committed):
                is_open = session.container.state == "running"
                self._checkpoints = _known(session.checkpoints, {}) if is_open else {}
            self._last = replace(
                self._standing(session),
                watches=self._watched(session, moved=self._read[:4] != at[:4]),
                commits=kept_commits(self._checkpoints, snapshot.partitions),
                search=self.search,
            )
            if self._last.oldest is not None:
                self._last = replace(self._last, key_history=self._key_history(session, self._last))
            self._read = at
        return self._last

    def pick(self, task: str, store: str, key: str) -> None:
        """Read the history of a key from now on; of none where it is the one that was picked."""
        self.picked = None if self.picked == (task, store, key) else (task, store, key)
        self._key = None

    def _key_history(self, session: Session, standing: Standing) -> KeyHistory | None:
        if self.picked is None:
            return None
        if self._key is None:
            known: list[Change | Entry] = [*standing.changes, *standing.entries.shown]
            keys = [(each.task, each.store, each.key) for each in known]
            named = [key for key in keys if (*key[:2], message_text(key[2], KEY_TEXT)) == self.picked]
            if not named:
                return None
            self._key = named[0]
        task, store, key = self._key
        found: list[Change] = _known(lambda: session.changes(store, key), [])
        changes = [each for each in found if each.task == task]
        return KeyHistory(task, store, key, tuple(reversed(changes[-_MOST_OF_KEY:])), len(changes))

    def _watched(self, session: Session, *, moved: bool) -> tuple[Watched, ...]:
        """The watches, those marked whose values are others than at the position before. The marks stay where
        it has not moved since the last look."""
        expressions = session.watch_expressions
        found: dict[str, Any] = _known(session.watches, {}) if expressions else {}
        values = {name: _watched_text(value) for name, value in found.items()}
        former, self._values = self._values, values
        if moved:
            self._marked = {name for name, value in values.items() if former.get(name, value) != value}
        return tuple(
            Watched(name, expressions.get(name, ""), value, changed=name in self._marked)
            for name, value in values.items()
        )

    def _standing(self, session: Session) -> Standing:
        position, history = session.position, session.history
        entries = _known(lambda: first_entries(session, _MOST_ENTRIES, self.search), Entries())
        message = _known(lambda: session.message, None)
        figures = _known(lambda: figures_of(session), Figures())
        if history is None:
            return Standing(position, session.latest, message=message, entries=entries, figures=figures)
        since = max(0, history.oldest, position - _LOOK_BACK)
        changes: list[Change] = _known(lambda: session.changes_at(position), [])
        sent: list[Output] = _known(lambda: session.outputs(since), [])
        outputs = sent[-_MOST_OUTPUTS:]
        places = {each.position: history.message_ref(each.position) for each in outputs}
        return Standing(
            position=position,
            latest=session.latest,
            is_live=session.live,
            is_branch=session.branched,
            oldest=history.oldest,
            history_bytes=history.size,
            message=message,
            changes=tuple(changes),
            outputs=tuple(outputs),
            entries=entries,
            causes={at: f"{place[0]}@{place[1]}" for at, place in places.items() if place is not None},
            figures=figures,
        )


def in_the_past(snapshot: ContainerSnapshot, session: Session) -> ContainerSnapshot:
    """A snapshot with the positions of the past in which its session stands."""
    offsets: dict[str, dict[SystemStreamPartition, str]] = _known(session.offsets, {})
    last = {ssp: offset for of_task in offsets.values() for ssp, offset in of_task.items()}
    following: dict[SystemStreamPartition, str] = _known(session.next_offsets, {})

    def then(each: PartitionSnapshot) -> PartitionSnapshot:
        offset = last.get(each.ssp)
        if offset is not None and offset.isdecimal():
            position = str(int(offset) + 1)
        elif each.ssp in following:
            position = following[each.ssp]
        else:
            return each
        lag = lag_between(position, each.upcoming)
        status = "caught up" if lag == 0 else ""
        at_head = each.at_head and each.ssp not in following
        return replace(
            each, position=position, lag=lag, status=status, turn=None, waiting=0, at_head=at_head
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
