"""What user code is handed: collector, coordinator, context. They stay the same objects for the life of a task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from streambench.config import Config
from streambench.container.columns import OutgoingBatch
from streambench.errors import ContainerStateError, StoreError, WrongThreadError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.store.task_store import TaskStore
from streambench.task import RequestScope

if TYPE_CHECKING:
    from streambench.container.task_instance import TaskInstance

# Final, so that compiled code does not look them up anew.
_get_ident: Final = threading.get_ident
_Plain: Final = OutgoingMessageEnvelope

Outgoing = list[tuple[str, Any, IncomingMessageEnvelope | None, bytes | None, bytes | None]]
"""What was collected and is not sent yet: the task that did; an OutgoingMessageEnvelope, or the OutgoingBatch of ``send_batch``; the input
that it was made from, None for none; and message and key once more if it is *plain*: bytes, with a key that is bytes or none and nothing
else that its task could still change."""


class Owner:
    """Which thread drives the container at present; user code may use its handles on that thread only.

    ``input``: the message that is being processed, None between two. ``until``: when what has been collected is to be sent at the latest
    (monotonic, in nanoseconds); 0: as soon as its task returns, because it holds what could change until then.
    """

    __slots__ = ("ident", "input", "until")

    def __init__(self) -> None:
        self.ident = _get_ident()
        self.input: IncomingMessageEnvelope | None = None
        self.until = 0

    def take(self) -> None:
        """The calling thread drives the container from now on."""
        self.ident = _get_ident()

    def revoke(self) -> None:
        """No thread drives the container any more, whatever one of them may still be in the middle of."""
        self.ident = 0

    def check(self, what: str) -> None:
        """Raise WrongThreadError off the owner's thread."""
        if self.ident == 0:
            raise WrongThreadError(f"{what} was used after its container was abandoned: nothing that is done here has any effect")
        if _get_ident() != self.ident:
            raise WrongThreadError(
                f"{what} was used from the thread '{threading.current_thread().name}'; it belongs to the thread of the event loop. "
                "Do the work in process() or window(), or hand the result over through a queue that they read"
            )


class Collector:
    """The MessageCollector of one task."""

    __slots__ = ("_append", "_owner", "_source")

    def __init__(self, task: TaskInstance, outgoing: Outgoing, owner: Owner) -> None:
        self._source = task.name
        self._append = outgoing.append
        self._owner = owner

    # A plain method: what a slot holds instead of one takes the interpreter longer to find than to call.
    def send(self, envelope: OutgoingMessageEnvelope) -> None:
        owner, append = self._owner, self._append
        if _get_ident() != owner.ident:
            owner.check(f"the collector of {self._source}")
        # Not what inherits from it, which may be one that can change.
        if type(envelope) is _Plain:
            message = envelope.message
            if type(message) is bytes and envelope.headers is None and envelope.partition_key is None:
                key = envelope.key
                if key is None or type(key) is bytes:
                    append((self._source, envelope, owner.input, message, key))
                    return
        owner.until = 0
        append((self._source, envelope, owner.input, None, None))

    def send_batch(self, system_stream: SystemStream, messages: Any, keys: Any = None, **columns: Any) -> None:
        self._owner.check(f"the collector of {self._source}")
        batch = OutgoingBatch(system_stream, messages, keys, **columns)
        if len(batch):
            self._owner.until = 0
            self._append((self._source, batch, self._owner.input, None, None))


class Coordinator:
    """The TaskCoordinator of one task and one kind of callback. The last call of each kind within a callback counts, as in Samza."""

    __slots__ = ("_owner", "_requests", "commit_scope", "shutdown_scope", "task")

    def __init__(self, task: TaskInstance, requests: list[Coordinator], owner: Owner) -> None:
        self.task = task
        self._requests = requests
        self._owner = owner
        self.commit_scope: RequestScope | None = None
        self.shutdown_scope: RequestScope | None = None

    def commit(self, scope: RequestScope = RequestScope.CURRENT_TASK) -> None:
        self._note()
        self.commit_scope = RequestScope(scope)

    def shutdown(self, scope: RequestScope = RequestScope.CURRENT_TASK) -> None:
        self._note()
        self.shutdown_scope = RequestScope(scope)

    def forget(self) -> None:
        """Drop what was asked for: the callback raised, or it has been seen to."""
        if self in self._requests:
            self._requests.remove(self)
        self.commit_scope = self.shutdown_scope = None

    def _note(self) -> None:
        self._owner.check(f"the coordinator of {self.task.name}")
        if self.commit_scope is None and self.shutdown_scope is None:
            self._requests.append(self)


class Context:
    """The TaskContext of one task. ``start_at`` takes the starting offsets that the task sets; None when they are fixed."""

    def __init__(
        self,
        task_name: str,
        partitions: Sequence[SystemStreamPartition],
        config: Config,
        metrics: MetricsRegistry,
        stores: dict[str, TaskStore],
        owner: Owner,
    ) -> None:
        self.task_name = task_name
        self.partitions = tuple(partitions)
        self.config = config
        self.metrics = metrics
        self._stores = stores
        self._owner = owner
        self.start_at: Callable[[SystemStreamPartition, str], None] | None = None

    def store(self, name: str) -> TaskStore:
        try:
            return self._stores[name]
        except KeyError:
            known = ", ".join(sorted(self._stores)) or "none at all"
            raise StoreError(f"there is no store '{name}': define it with stores.{name}.factory=memory (there are: {known})") from None

    def set_starting_offset(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._owner.check(f"set_starting_offset of {self.task_name}")
        if self.start_at is None:
            raise ContainerStateError(f"{self.task_name}: set_starting_offset may only be called in init(): reading has begun")
        if ssp not in self.partitions:
            raise ContainerStateError(f"{self.task_name} does not read {ssp}; it reads {', '.join(map(str, self.partitions))}")
        self.start_at(ssp, str(offset))
