"""The trace of a container for the history: inputs, choices, writes and outputs, in order.

A trace is filled in bulk, by lists that the container appends to. So bursts stay possible, and a container
without a trace does nothing for it. ``streambench.debug.history.block_log`` reads it between two messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from streambench.chunk import Chunk, Messages
from streambench.clock import Clock
from streambench.model import IncomingMessageEnvelope, SystemStream
from streambench.system.copying import are_immutable

WRITE_FIELDS = 5
"""The entries of ``Trace.traced`` for each write to a store."""

Callback = Literal["window", "end_of_stream"]
EventKind = Literal[Callback, "commit", "ignored"]


class Input(Protocol):
    """The message in work."""

    @property
    def input(self) -> IncomingMessageEnvelope | None: ...


class Iteration(Protocol):
    """The progress of an event loop."""

    in_iteration: bool


class TraceEvent(NamedTuple):
    """A callback without a message of its own, or a commit, of some tasks, after ``position`` messages.
    ``sent``, ``written``: the numbers of outputs and of writes to stores that the trace held then."""

    position: int
    kind: EventKind
    tasks: tuple[str, ...]
    now_ms: int
    sent: int = 0
    written: int = 0


class Sent(Struct, gc=False):
    """An output as it was sent: key and message as the serdes of the stream made them, copies of objects
    where there are none. ``at``: the message that it was made from, else the position. ``fate``: it was sent,
    or refused because it cannot be sent, or it is the dead letter of one that was refused. A dead letter that
    is too large itself was ``cut``: a shorter one follows. ``callback``: the one that sent it, None for
    ``process``. It may have been called right behind the message ``at``."""

    at: IncomingMessageEnvelope | int
    task: str
    stream: SystemStream
    key: Any
    message: Any
    partition: int | None
    partition_key: Any
    timestamp: int | None = None
    headers: Mapping[str, bytes] | None = None
    fate: Literal["sent", "refused", "letter", "cut"] = "sent"
    callback: Callback | None = None

    @property
    def is_refused(self) -> bool:
        """True for what no stream has."""
        return self.fate in ("refused", "cut")

    @property
    def is_letter(self) -> bool:
        """True for a dead letter of an output, which the outbox makes."""
        return self.fate in ("letter", "cut")


class Trace:
    """Everything that happened in a container since ``clear``.

    ``chunks``: messages as they were read, in order per partition. ``chosen``: the messages chosen; of a
    batch its first one, as often as the batch has messages. ``batches``: the position after each batch of
    several messages, and their number. ``traced``: writes to stores, in order, five entries for each. These
    are the message in work or the position, the number of the store, the key, its former value and its new
    one. None stands for no value. ``sent``: outputs. ``events``: windows, ends of inputs, commits. ``ticks``:
    readings of the clock by stores whose entries expire. Each comes with the number of events before it, and
    with ``callbacks`` at that time. ``callbacks`` counts the callbacks without a message, since ``begin``.
    ``refused``: the outputs of the last call of the outbox that cannot be sent, as the task made them, also
    rows of batches (``OutgoingBatch.refused``).
    ``called``: callbacks without a message of their own whose outputs are not sent yet. Each comes with the
    numbers of outputs collected before it and at its end. ``base``: the messages chosen before
    ``chosen``. ``stores``: the task and the name of each store, by its number. ``on_check``: called from
    time to time inside an iteration.
    """

    def __init__(self) -> None:
        self.chunks: deque[Messages] = deque()
        self.chosen: list[IncomingMessageEnvelope] = []
        self.batches: list[tuple[int, int]] = []
        self.traced: list[Any] = []
        self.sent: list[Sent] = []
        self.refused: list[Any] = []
        self.events: list[TraceEvent] = []
        self.ticks: list[tuple[IncomingMessageEnvelope | int, int, int, int]] = []
        self.base = self.callbacks = 0
        self.called: list[tuple[int, int, Callback]] = []
        self.active = False
        self.stores: list[tuple[str, str]] = []
        self.on_check: Callable[[], None] | None = None
        self._context: Input | None = None
        self._progress: Iteration | None = None

    def begin(self, context: Input, progress: Iteration) -> None:
        """Trace from now on."""
        self._context, self._progress = context, progress
        self.clear()
        self.active = True

    def clear(self) -> None:
        """Drop what was read, and count it."""
        self.base += len(self.chosen)
        for each in (self.chosen, self.batches, self.traced, self.sent, self.events, self.ticks):
            each.clear()

    def read(self, chunks: Iterable[Messages]) -> None:
        """Note messages as they were read: copies, where they are objects that a task may change."""
        for chunk in chunks:
            if isinstance(chunk, Chunk) and not (are_immutable(chunk.messages) and are_immutable(chunk.keys)):
                chunk = replace(chunk, keys=deepcopy(chunk.keys), messages=deepcopy(chunk.messages))
            self.chunks.append(chunk)

    def note_batch(self, first: IncomingMessageEnvelope, count: int) -> None:
        """Note that a chosen message has become a batch, of so many messages."""
        self.chosen.extend(repeat(first, count - 1))
        self.batches.append((self.position, count))

    @property
    def position(self) -> int:
        """The number of messages chosen so far."""
        return self.base + len(self.chosen)

    def at(self) -> IncomingMessageEnvelope | int:
        """The message in work, else the position."""
        envelope = None if self._context is None else self._context.input
        return self.position if envelope is None else envelope

    def note_callback(self, kind: Callback, tasks: Sequence[str], now_ms: int, collected: int) -> None:
        """Note a callback without a message. ``collected``: the number of outputs collected before it."""
        if self.active:
            self.called = [each for each in self.called if each[0] < collected]
            self.called.append((collected, collected, kind))
            self.note_event(kind, tasks, now_ms)

    def end_callback(self, collected: int) -> None:
        """Note the end of the last callback without a message. ``collected``: the number of outputs there."""
        if self.active and self.called:
            first, _, kind = self.called[-1]
            self.called[-1] = first, collected, kind

    def note_event(self, kind: EventKind, tasks: Sequence[str], now_ms: int) -> None:
        """Note a callback without a message, or a commit."""
        if self.active:
            self.callbacks += kind != "commit"
            written = len(self.traced) // WRITE_FIELDS
            self.events.append(
                TraceEvent(self.position, kind, tuple(tasks), now_ms, len(self.sent), written)
            )

    @property
    def is_inside(self) -> bool:
        """True in an iteration of the event loop, False where something only looks between two."""
        return self.active and self._progress is not None and self._progress.in_iteration

    def number(self, task: str, store: str) -> int:
        """The number of a new store."""
        self.stores.append((task, store))
        return len(self.stores) - 1


class TracedClock:
    """A clock whose readings are traced: the age of entries that expire depends on them.

    The time stands still during a callback, for all stores: one reading for each is enough to repeat it."""

    def __init__(self, clock: Clock, trace: Trace) -> None:
        self._clock = clock
        self._trace = trace
        self._now = -1
        self._read_at: IncomingMessageEnvelope | int = -1
        self._callbacks = -1

    def now_ms(self) -> int:
        trace = self._trace
        if not trace.is_inside:
            return self._clock.now_ms()
        at, before = trace.at(), self._read_at
        is_same = at == before if isinstance(at, int) and isinstance(before, int) else at is before
        if is_same and trace.callbacks == self._callbacks:
            return self._now
        self._read_at, self._callbacks = at, trace.callbacks
        now = self._clock.now_ms()
        if now != self._now:
            self._now = now
            trace.ticks.append((at, now, len(trace.events), trace.callbacks))
        return now

    def monotonic_ns(self) -> int:
        return self._clock.monotonic_ns()
