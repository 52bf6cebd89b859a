"""The records that a session shows of its history: outputs, changes of state, differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from streambench.container.outputs.outgoing_batch import Column, OutgoingBatch
from streambench.container.outputs.stream_writers import hashed_bytes
from streambench.container.trace import Callback, Sent
from streambench.debug.history.round_robin import is_round_robin
from streambench.errors import StreambenchError
from streambench.model import SystemStream, SystemStreamPartition
from streambench.serde.api import Serde
from streambench.serde.streams import StreamSerdes, readable
from streambench.system.partitioner import partition_for

Hold = Literal["commit", "branch", "replay"]

HELD: Mapping[Hold, str] = {
    "commit": "held until the commit",
    "branch": "held until the branch is adopted",
    "replay": "not sent, in a replay",
}
"""Per reason, what is said of an output that has not left the container."""


class Output(Struct, frozen=True, gc=False):
    """A message that a task sent. ``position``: that of the message that it was made from. ``stream``:
    as ``system.stream``. ``partition``: None where the stream does not exist yet, and in a batch for messages
    without a key, unless there is only one. ``held``: nothing has left
    the container yet, until what ``hold`` names. ``is_placed``: its partition follows from its key, or from
    what the task named. ``callback``: ``window`` or ``end_of_stream``, where that sent it, behind that
    message; else None."""

    position: int
    stream: str
    partition: int | None
    key: Any
    message: Any
    held: bool
    task: str = ""
    is_placed: bool = False
    hold: Hold = "commit"
    callback: Callback | None = None

    @property
    def source(self) -> str:
        """The callback that sent it, and its task, in words; empty where it was made from a message."""
        return _callback_text(self.callback, self.task)

    @property
    def destination(self) -> str:
        """The stream and partition that it goes to, as ``system.stream.0``; the stream alone where the
        partition is not known."""
        return self.stream if self.partition is None else f"{self.stream}.{self.partition}"

    @property
    def held_text(self) -> str:
        """Why nothing has left the container yet, in words; empty where it has."""
        return HELD[self.hold] if self.held else ""


class Change(Struct, frozen=True, gc=False):
    """A change of one key of a store. ``position``: after this many messages, the last of which is
    ``ssp@offset`` (None: there was none, or it is not known any more). ``before``, ``after``: the values,
    None for no value."""

    position: int
    ssp: SystemStreamPartition | None
    offset: str | None
    before: Any
    after: Any
    task: str = ""
    store: str = ""
    key: Any = None


class Cause(Struct, frozen=True):
    """The cause of an output: the message that sent it, and the changes of state at that message. ``ssp`` and
    ``offset`` are None where the message is not known any more. Both are None as well for an output of
    ``callback``, the ``window`` or ``end_of_stream`` of ``task`` behind the message at the position."""

    position: int
    ssp: SystemStreamPartition | None
    offset: str | None
    key: Any
    message: Any
    changes: tuple[Change, ...]
    callback: Callback | None = None
    task: str = ""

    @property
    def source(self) -> str:
        """The callback that sent the output, and its task, in words; empty where a message did."""
        return _callback_text(self.callback, self.task)


def _shown(serde: Serde | None, column: Column) -> Sequence[Any]:
    """The keys or messages of a batch. Those of an Arrow array of bytes are encoded; a list has objects."""
    if isinstance(column, list):
        return column
    return [readable(serde, value) for value in column.to_pylist()]


def _placed_rows(sent: Sent, batch: OutgoingBatch, key_serde: Serde | None) -> Iterator[Sent]:
    """A note of each message of a batch, of what its partition follows from."""
    for row in batch.envelopes():
        key = row.key
        # Only an Arrow array has keys that are encoded already.
        is_encoded = isinstance(key, bytes) and not isinstance(batch.keys, list)
        if key_serde is not None and key is not None and not is_encoded:
            key = _encoded(key_serde, key)
        yield Sent(sent.at, sent.task, sent.stream, key, None, row.partition, row.partition_key)


def _encoded(serde: Serde, key: Any) -> bytes | None:
    """A key as bytes; None where it cannot be encoded, which a replica may not have checked."""
    try:
        return serde.to_bytes(key)
    except Exception:
        return None


def _callback_text(callback: Callback | None, task: str) -> str:
    return f"{callback}() of {task}" if callback else ""


class PositionDiff(Struct, frozen=True):
    """The difference of two positions. ``stores``: per task, store and key the two values (None for no
    value). ``attributes``: per task and name the two values. ``offsets``: per task and partition the two
    offsets. ``outputs``: those between the two."""

    before: int
    after: int
    stores: Mapping[str, Mapping[str, Mapping[Any, tuple[Any, Any]]]]
    attributes: Mapping[str, Mapping[str, tuple[Any, Any]]]
    offsets: Mapping[str, Mapping[SystemStreamPartition, tuple[str | None, str | None]]]
    outputs: tuple[Output, ...]


class Outputs:
    """Makes outputs from the trace of what was sent. ``partitions(stream)``: the number of its partitions,
    None where it is not known; asked once for each."""

    def __init__(self, serdes: StreamSerdes, partitions: Callable[[SystemStream], int | None]) -> None:
        self._serdes = serdes
        self._partitions = partitions
        self._counts: dict[SystemStream, int | None] = {}

    def of(self, position: int, sent: Sent, *, held: bool, hold: Hold = "commit") -> list[Output]:
        """The output, or those of a batch."""
        key_serde, message_serde = self._serdes.for_stream(sent.stream)
        stream, callback = str(sent.stream), None if sent.is_letter else sent.callback
        if isinstance(sent.message, OutgoingBatch):
            batch = sent.message
            keys = [None] * len(batch) if batch.keys is None else _shown(key_serde, batch.keys)
            messages = _shown(message_serde, batch.messages)
            rows = _placed_rows(sent, batch, key_serde)
            return [
                Output(
                    position, stream, self.partition_of(row), key, message, held, sent.task,
                    row.partition is not None or row.partition_key is not None or key is not None,
                    hold, callback,
                )
                for row, key, message in zip(rows, keys, messages, strict=True)
            ]  # fmt: skip
        return [
            Output(
                position,
                stream,
                self.partition_of(sent),
                readable(key_serde, sent.key),
                readable(message_serde, sent.message),
                held,
                sent.task,
                not is_round_robin(sent.partition_key),
                hold,
                callback,
            )
        ]

    def partition_of(self, sent: Sent) -> int | None:
        """The partition of an output; None where the number of partitions is not known, or a message of a
        batch has its turn."""
        if sent.partition is not None:
            return sent.partition
        if sent.stream not in self._counts:
            self._counts[sent.stream] = self._partitions(sent.stream)
        count = self._counts[sent.stream]
        if not count:
            return None
        if is_round_robin(sent.partition_key):
            return int(sent.partition_key) % count
        hashed = sent.key if sent.partition_key is None else sent.partition_key
        if hashed is None:
            return 0 if count == 1 else None
        try:
            return partition_for(hashed_bytes(hashed), count)
        except StreambenchError:
            return None
