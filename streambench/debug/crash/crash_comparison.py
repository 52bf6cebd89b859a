"""The comparison of a run that was not disturbed with one that starts again after a crash."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from streambench.container.outputs.outgoing_batch import OutgoingBatch
from streambench.container.trace import Sent
from streambench.debug.crash.restart import Restart
from streambench.debug.history.block import position_of
from streambench.debug.history.epochs import Epoch, Mark, TaskGroup
from streambench.debug.history.history import History
from streambench.debug.history.round_robin import is_round_robin
from streambench.debug.history.writes import StoreWrite, Values
from streambench.errors import StreambenchError
from streambench.store.expiry import STAMP_BYTES
from streambench.store.overlay import OverlayEngine
from streambench.store.traced import traced_engine

_Item = TypeVar("_Item")

Identity = tuple[Any, ...]
"""The stream, partition, key and message of an output, by which it is found again."""

StoreKey = tuple[int, bytes]
"""The number of a store, and a key in it."""

StoreValues = dict[StoreKey, bytes | None]

SentItem = tuple[Identity, Sent, int]
"""An output, or one of a batch by its index."""


class CrashComparison:
    """Tasks that start again at the begin of an epoch, beside what was recorded of them since then.

    ``go_to`` moves both forward. ``recorded``, ``repeated``: the outputs since the begin. ``balance``: per
    output, how many times more it was recorded than repeated. ``differing``: the keys of stores that
    differ, and ``values`` the recorded values and those of the restart. ``at_commit``: the values at the
    begin of keys that have changed since. ``error``: why the restart fails."""

    def __init__(
        self, history: History, group: TaskGroup, epoch: Epoch, values: Values, factory: Any
    ) -> None:
        self.recorded: list[SentItem] = []
        self.repeated: list[SentItem] = []
        self.by_stream: Counter[str] = Counter()
        self.balance: Counter[Identity] = Counter()
        self.differing: dict[StoreKey, None] = {}
        self.values: tuple[StoreValues, StoreValues] = {}, {}
        self.at_commit: StoreValues = {}
        self.error: str | None = None
        self._epoch = epoch
        self._tasks = frozenset(group.tasks)
        self._stores = _stores_of(history, self._tasks)
        self._outputs = _Numbered(history.outputs_from(epoch.begin.sent), epoch.begin.sent)
        self._writes = _Numbered(history.writes_from(epoch.begin.written), epoch.begin.written)
        self._seen_outputs = self._seen_writes = 0
        self._letters: dict[Identity, Sent | None] = {}
        """The dead letters of outputs that were refused; None for one that was dropped."""
        self._refused: deque[Identity] = deque()
        self.restart: Restart | None = None
        self._lose_stores(history)
        try:
            self.restart = Restart(history, group, epoch, values, factory)
            self.restart.begin()
            self._read_restart(self.restart)
        except StreambenchError as error:
            self.error = str(error)

    def go_to(self, position: int, *, inside_commit: bool = False) -> None:
        """Move both to a position; ``inside_commit``: only to before the commit that ends the epoch."""
        self._read_recorded(position, self._epoch.end if inside_commit else None)
        if self.restart is None or self.error is not None:
            return
        try:
            self.restart.go_to(position)
        except StreambenchError as error:
            self.error = str(error)
        self._read_restart(self.restart)

    def _lose_stores(self, history: History) -> None:
        """Note the entries of stores without a changelog: a restart has lost them."""
        lost = [number for number, store in self._stores.items() if store.is_lost]
        if not lost:
            return
        values: Values = [{} for _ in history.trace.stores]
        history.undo_writes(values, self._epoch.begin.written)
        tasks = {task.name: task for task in history.container.tasks}
        for number in lost:
            task, name = history.trace.stores[number]
            below = traced_engine(tasks[task].stores[name].engine).engine
            for key, value in OverlayEngine(below, values[number]).range(None, None):
                self._set(0, (number, key), value, None)

    def _read_recorded(self, position: int, end: Mark | None) -> None:
        outputs, writes = self._outputs, self._writes
        while (output := outputs.next) is not None and (
            outputs.number < end.sent if end is not None else position_of(output) <= position
        ):
            if output.task in self._tasks:
                self._count_recorded(output)
            outputs.take()
        while (write := writes.next) is not None and (
            writes.number < end.written if end is not None else write[0] <= position
        ):
            self._note(0, write)
            writes.take()

    def _count_recorded(self, output: Sent) -> None:
        """Take an output of the recorded run. One that was refused is its dead letter, if there is one."""
        if output.fate == "refused":
            refused = identities(output)
            self._letters |= dict.fromkeys(refused)
            self._refused.extend(refused)
            return
        if output.fate == "cut":
            self._refused.rotate(-1)  # what it was cut to comes after the other dead letters
            return
        if output.fate == "letter" and self._refused:
            self._letters[self._refused.popleft()] = output
        self._count(self.recorded, output, 1)

    def _as_sent(self, output: Sent) -> list[Sent]:
        """An output of the restart as a real one sends it: nothing where it is refused.

        What was refused before would be so again, also by what only a broker knows: it is a dead letter, or
        nothing. Of a batch that holds for each row."""
        if output.fate != "sent":
            return [] if output.is_refused else [output]
        of_rows = identities(output) if self._letters else []
        rows = [row for row, identity in enumerate(of_rows) if identity in self._letters]
        if not rows:
            return [output]
        letters = [each for row in rows if (each := self._letters[of_rows[row]]) is not None]
        if len(rows) == len(of_rows):
            return letters
        return [replace(output, message=output.message.without(rows)), *letters]

    def _read_restart(self, restart: Restart) -> None:
        outputs = [output for _, output in restart.outputs[self._seen_outputs :]]
        # What the restart refuses by itself needs no record, which may mean another of the same content.
        for output in outputs:
            if output.fate == "refused":
                for identity in identities(output):
                    self._letters.pop(identity, None)
        for output in outputs:
            for sent in self._as_sent(output):
                self.by_stream[str(sent.stream)] += self._count(self.repeated, sent, -1)
        self._seen_outputs = len(restart.outputs)
        for write in restart.writes_from(self._seen_writes):
            self._note(1, write)
            self._seen_writes += 1

    def _count(self, items: list[SentItem], output: Sent, by: int) -> int:
        """Take an output, or those of a batch, into the balance; how many."""
        found = identities(output)
        for index, identity in enumerate(found):
            items.append((identity, output, index))
            balance = self.balance[identity] + by
            if balance:
                self.balance[identity] = balance
            else:
                del self.balance[identity]
        return len(found)

    def _note(self, side: int, write: StoreWrite) -> None:
        _, number, key, former, value = write
        store = self._stores.get(number)
        if store is not None:
            self._set(side, (number, key), value, None if store.is_lost else former)

    def _set(self, side: int, key: StoreKey, value: bytes | None, former: bytes | None) -> None:
        """Set a value of one side. ``former``: the value of both before it was written first."""
        self.values[side][key] = value
        if side == 0:
            self.at_commit.setdefault(key, former)
        other = self.values[1 - side].setdefault(key, former)
        skip = self._stores[key[0]].skip
        if value is other or (value is not None and other is not None and value[skip:] == other[skip:]):
            self.differing.pop(key, None)
        else:
            self.differing[key] = None


class _Store(NamedTuple):
    """A store of a task: ``is_lost`` with a restart, and ``skip`` bytes of its values are their age."""

    is_lost: bool
    skip: int


class _Numbered(Generic[_Item]):
    """Items one by one: the ``next`` one and its ``number``."""

    def __init__(self, items: Iterator[_Item], number: int) -> None:
        self._items = items
        self.number = number
        self.next = next(items, None)

    def take(self) -> None:
        """Go on to the one after."""
        self.next = next(self._items, None)
        self.number += 1


def identities(output: Sent) -> list[Identity]:
    """The identity of an output, or those of a batch. One that goes to the partitions round robin has
    no partition in it: the rotation begins again with each start."""
    if isinstance(output.message, OutgoingBatch):
        batch = output.message
        keys: Any = [None] * len(batch) if batch.keys is None else batch.keys
        messages: Any = batch.messages
        return [
            (output.stream, None, _known(key), _known(message))
            for key, message in zip(keys, messages, strict=False)
        ]
    to = None if is_round_robin(output.partition_key) else (output.partition, _known(output.partition_key))
    return [(output.stream, to, _known(output.key), _known(output.message))]


def _known(value: Any) -> Any:
    """A value, or its text where it cannot be looked up."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _stores_of(history: History, tasks: Collection[str]) -> dict[int, _Store]:
    found = {}
    for number, (task, name) in enumerate(history.trace.stores):
        if task in tasks:
            definition = history.container.runtime.task_stores.definitions[name]
            skip = 0 if definition.ttl_ms is None else STAMP_BYTES
            found[number] = _Store(definition.changelog is None, skip)
    return found
