"""Step 2: the handles of user code: collector, coordinator, context. They live as long as their task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from streambench.config import Config
from streambench.container.loop_context import LoopContext
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.outgoing_batch import OutgoingBatch
from streambench.errors import ContainerStateError, StoreError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.store.task_store import TaskStore
from streambench.task import RequestScope

# Final, so that compiled code does not look them up again.
_get_ident: Final = threading.get_ident
_Envelope: Final = OutgoingMessageEnvelope
_ABSENT: Final = object()
_REMEMBERED_STREAMS = 1_000


class Collector:
    """The MessageCollector of one task."""

    __slots__ = ("_collected", "_context", "_source")

    def __init__(self, task_name: str, collected: Collected, context: LoopContext) -> None:
        self._source = task_name
        self._collected = collected
        self._context = context

    # A method, and not a callable in a slot, which is slower to look up. Arguments beside an envelope are not
    # checked: that would cost time with every message.
    def send(
        self,
        envelope: Any,
        message: Any = _ABSENT,
        key: Any = None,
        partition_key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Collect one output, which step 4 sends: an envelope, or a stream and a message with its key and
        other parts. Bytes without headers and partition key are put beside the envelope, for a quicker send.
        """
        context, collected = self._context, self._collected
        if _get_ident() != context.ident:
            context.check(f"the collector of {self._source}")
        # Not an envelope of a subclass, which may be mutable.
        if type(envelope) is _Envelope:
            message = envelope.message
            if type(message) is bytes and envelope.headers is None and envelope.partition_key is None:
                key = envelope.key
                if key is None or type(key) is bytes:
                    collected.append((self._source, envelope, context.input, message, key))
                    return
        elif message is not _ABSENT and not isinstance(envelope, _Envelope):
            stream = _stream(envelope)
            self.send(_Envelope(stream, message, key, partition_key, partition, timestamp, headers))
            return
        context.until = 0  # sent right after ``process()``: the message may be an object that changes later
        collected.append((self._source, envelope, context.input, None, None))

    def send_batch(
        self, system_stream: SystemStream, messages: Any, keys: Any = None, **columns: Any
    ) -> None:
        """Collect many outputs by the column. Raises SerdeError for columns that do not fit together."""
        self._context.check(f"the collector of {self._source}")
        batch = OutgoingBatch(system_stream, messages, keys, **columns)
        if len(batch):
            self._context.until = 0
            self._collected.append((self._source, batch, self._context.input, None, None))


_streams: Final[dict[str, SystemStream]] = {}


def _stream(given: Any) -> Any:
    """The stream that a task names, as itself or as ``system.stream``. Raises ConfigError for text that names
    none; what is neither is refused when it is sent."""
    if not isinstance(given, str):
        return given
    known = _streams.get(given)
    if known is None:
        if len(_streams) >= _REMEMBERED_STREAMS:
            _streams.clear()
        known = _streams[given] = SystemStream.parse(given)
    return known


class Coordinator:
    """The TaskCoordinator of one task and one kind of callback. The last call of each kind within a callback
    counts, as in Samza."""

    __slots__ = ("_context", "_requests", "commit_scope", "shutdown_scope", "task_name")

    def __init__(self, task_name: str, requests: list[Coordinator], context: LoopContext) -> None:
        self.task_name = task_name
        self._requests = requests
        self._context = context
        self.commit_scope: RequestScope | None = None
        self.shutdown_scope: RequestScope | None = None

    def commit(self, scope: RequestScope = RequestScope.CURRENT_TASK) -> None:
        self._note()
        self.commit_scope = RequestScope(scope)

    def shutdown(self, scope: RequestScope = RequestScope.CURRENT_TASK) -> None:
        self._note()
        self.shutdown_scope = RequestScope(scope)

    def forget(self) -> None:
        """Drop what was asked for: the callback raised, or the request was handled."""
        if self in self._requests:
            self._requests.remove(self)
        self.commit_scope = self.shutdown_scope = None

    def _note(self) -> None:
        self._context.check(f"the coordinator of {self.task_name}")
        if self.commit_scope is None and self.shutdown_scope is None:
            self._requests.append(self)


class Context:
    """The TaskContext of one task. ``start_at`` takes the starting offsets that the task sets; None when they
    are fixed."""

    def __init__(
        self,
        task_name: str,
        partitions: Sequence[SystemStreamPartition],
        config: Config,
        metrics: MetricsRegistry,
        stores: dict[str, TaskStore],
        context: LoopContext,
    ) -> None:
        self.task_name = task_name
        self.partitions = tuple(partitions)
        self.config = config
        self.metrics = metrics
        self.user: Any = SimpleNamespace()
        self._stores = stores
        self._context = context
        self.start_at: Callable[[SystemStreamPartition, str], None] | None = None

    def store(self, name: str) -> TaskStore:
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted(self._stores)) or "none at all"
            raise StoreError(
                f"there is no store '{name}': define it with stores.{name}.factory=memory (there are: "
                f"{known})"
            ) from None

    def set_starting_offset(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._context.check(f"set_starting_offset of {self.task_name}")
        if self.start_at is None:
            raise ContainerStateError(
                f"{self.task_name}: set_starting_offset may only be called in init(): reading has begun"
            )
        if ssp not in self.partitions:
            raise ContainerStateError(
                f"{self.task_name} does not read {ssp}; it reads {', '.join(map(str, self.partitions))}"
            )
        self.start_at(ssp, str(offset))


class SharedHandles:
    """The parts that the handles of all tasks share: the thread and input of the loop, outputs, requests."""

    def __init__(self, context: LoopContext) -> None:
        self.context = context
        self.collected: Collected = []
        self.requests: list[Coordinator] = []

    def collector(self, task_name: str) -> Collector:
        return Collector(task_name, self.collected, self.context)

    def coordinator(self, task_name: str) -> Coordinator:
        return Coordinator(task_name, self.requests, self.context)
