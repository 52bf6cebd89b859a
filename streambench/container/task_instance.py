"""One task in a container: the user's object, what it is handed, and how far it has come."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, TypeVar

from streambench.batch import MessageBatch
from streambench.config import Config
from streambench.container.batches import place_of
from streambench.container.handles import Collector, Context, Coordinator
from streambench.errors import ConfigError, StreambenchError, TaskError, described, located, shortened
from streambench.metrics.registry import MetricsRegistry, Timer
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.planning.model import TaskModel
from streambench.store.task_store import TaskStore
from streambench.task import MessageCollector, TaskCoordinator, TaskLifecycleListener

Process = Callable[[IncomingMessageEnvelope, MessageCollector, TaskCoordinator], Any]
_CALLBACKS = {
    "init": ("context",),
    "process": ("envelope", "collector", "coordinator"),
    "process_batch": ("batch", "collector", "coordinator"),
    "window": ("collector", "coordinator"),
    "end_of_stream": ("collector", "coordinator"),
    "close": (),
}
"""What the container calls of a task, and what it gives to it."""

ProcessBatch = Callable[[MessageBatch, MessageCollector, TaskCoordinator], Any]
_Given = TypeVar("_Given", IncomingMessageEnvelope, MessageBatch)
EventObserver = Callable[[str, str, str | None], None]
"""Called with event, task and detail as ``streambench.testing.Call`` describes them; and with ``ignored`` for each message at which an
exception was passed over."""


class Subscription:
    """One input partition of one task: what the event loop needs for a message of it, in one place.

    ``offset``: the last message processed, None before the first. ``skip_before``: the task begins here although the lane begins earlier
    (a broadcast input that another task reads from further back), None once it is reached. ``skipped``: how many messages before it.
    """

    __slots__ = ("collector", "coordinator", "offset", "process", "skip_before", "skipped", "ssp", "start", "task")

    def __init__(self, task: TaskInstance, ssp: SystemStreamPartition) -> None:
        self.task = task
        self.ssp = ssp
        self.process: Process = task.process
        self.collector: MessageCollector = task.collector
        self.coordinator: Coordinator = task.coordinator
        self.offset: str | None = None
        self.start: str = ""
        self.skip_before: str | None = None
        self.skipped = 0

    def time_next(self, timer: Timer) -> None:
        """Time the next call of ``process``, and only that one."""

        def timed(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            process = self.process = self.task.process
            began = time.perf_counter_ns()
            try:
                process(envelope, collector, coordinator)
            finally:
                timer.update(time.perf_counter_ns() - began)

        self.process = timed


class TaskInstance:
    """A task of a container.

    The user's callbacks are bound here and nowhere else (``bind``), so that code can be exchanged while the container lives.
    """

    def __init__(
        self,
        model: TaskModel,
        task: Any,
        context: Context,
        collector: Callable[[TaskInstance], Collector],
        coordinator: Callable[[TaskInstance], Coordinator],
        stores: dict[str, TaskStore],
        metrics: MetricsRegistry,
        listeners: Sequence[TaskLifecycleListener] = (),
        observer: EventObserver | None = None,
        timer: Timer | None = None,
        run_timer: Timer | None = None,
    ) -> None:
        """``timer`` times every call of process(), ``run_timer`` every call of process_batch()."""
        self.name = model.name
        self.model = model
        self.context = context
        self.stores = stores
        self.metrics = metrics
        self.collector = collector(self)
        self.coordinator = coordinator(self)
        self.window_coordinator = coordinator(self)
        self.end_coordinator = coordinator(self)
        self._listeners = listeners
        self._observer = observer
        self._has_begun = self._was_called = False
        self._timer, self._run_timer = timer, run_timer
        self.commits = 0
        self.committed: dict[SystemStreamPartition, str] = {}
        self.bind(task)
        self.subscriptions = tuple(Subscription(self, ssp) for ssp in model.partitions)
        self.open_inputs = len(self.subscriptions)
        """How many of its partitions have not come to their end."""

    def bind(self, task: Any) -> None:
        """Take ``task``'s methods as the callbacks from now on."""
        self.task = task
        process_batch = getattr(task, "process_batch", None)
        self.takes_batches = callable(process_batch)
        # Each stands in for the other: code may be exchanged for code that has the other one.
        process = self._with_hooks(_as_run(process_batch) if callable(process_batch) else task.process)
        self.process = process if self._timer is None else _timed(process, self._timer)
        process_batch = self._with_hooks_of_runs(process_batch if callable(process_batch) else _one_by_one(task.process))
        self.process_batch = process_batch if self._run_timer is None else _timed(process_batch, self._run_timer)
        self.window: Callable[[MessageCollector, TaskCoordinator], Any] | None = getattr(task, "window", None)
        self.end_of_stream: Callable[[MessageCollector, TaskCoordinator], Any] | None = getattr(task, "end_of_stream", None)
        for subscription in getattr(self, "subscriptions", ()):
            subscription.process = self.process

    def codes(self) -> list[CodeType]:
        """The code of its callbacks, of those that are written in Python."""
        found = [getattr(getattr(self.task, name, None), "__code__", None) for name in _CALLBACKS]
        return [code for code in found if isinstance(code, CodeType)]

    def _with_hooks(self, process: Process) -> Process:
        """The callback as the loop calls it: the task's own where nobody listens, so that listening costs only those who do."""
        listeners, observer, name, context = self._listeners, self._observer, self.name, self.context
        if not listeners and observer is None:
            return process

        def observed(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            detail = f"{envelope.ssp}@{envelope.offset}"
            if listeners:
                if observer:
                    observer("before_process", name, detail)
                for listener in listeners:
                    listener.before_process(envelope, context)
            if observer:
                observer("process", name, detail)
            process(envelope, collector, coordinator)
            if listeners:
                if observer:
                    observer("after_process", name, detail)
                for listener in listeners:
                    listener.after_process(envelope, context)

        return observed

    def _with_hooks_of_runs(self, process_batch: ProcessBatch) -> ProcessBatch:
        """The same for runs: listeners and observer are told of each message, before the run and after it."""
        listeners, observer, name, context = self._listeners, self._observer, self.name, self.context
        if not listeners and observer is None:
            return process_batch

        def tell(hook: str, batch: MessageBatch) -> None:
            if not listeners:
                return
            for envelope in batch.peek():
                if observer:
                    observer(hook, name, f"{envelope.ssp}@{envelope.offset}")
                for listener in listeners:
                    getattr(listener, hook)(envelope, context)

        def observed(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            tell("before_process", batch)
            if observer:
                for at in range(len(batch)):
                    observer("process", name, f"{batch.ssp}@{batch.offset(at)}")
            process_batch(batch, collector, coordinator)
            tell("after_process", batch)

        return observed

    def init(self) -> None:
        """Call the listeners' before_init, the task's init, the listeners' after_init. Raises TaskError."""
        self._has_begun = True
        self._around("init", "init", (self.context,))

    def close(self) -> None:
        """Call the listeners' before_close, the task's close, the listeners' after_close. Raises TaskError.

        A task that never began, since the init of another one failed, has nothing to close; where a listener failed before its init, its
        own close is left out."""
        if self._has_begun:
            self._around("close", "close", ())

    def _around(self, name: str, method: str, arguments: tuple[Any, ...]) -> None:
        with self._errors_named(f"in {method}()"):
            self._tell(f"before_{name}")
            callback = getattr(self.task, method, None) if method == "init" or self._was_called else None
            self._was_called = True
            if callback is not None:
                if self._observer:
                    self._observer(name, self.name, None)
                callback(*arguments)
            self._tell(f"after_{name}")

    def _tell(self, hook: str) -> None:
        if not self._listeners:
            return
        if self._observer:
            self._observer(hook, self.name, None)
        for listener in self._listeners:
            getattr(listener, hook)(self.context)

    @contextmanager
    def _errors_named(self, where: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self.failure(error, where) from error

    def failure(self, error: BaseException, where: str, envelope: IncomingMessageEnvelope | None = None) -> TaskError:
        """The TaskError for what the task raised, to be raised ``from`` it."""
        if envelope is None:
            return _caused(TaskError(f"{self.name} failed {where}: {described(error)}", task=self.name), error)
        key = "" if envelope.key is None else f", key {shortened(envelope.key)}"
        failure = TaskError(
            f"{self.name} failed at {envelope.ssp}@{envelope.offset}{key}: {described(error)}",
            task=self.name, ssp=envelope.ssp, offset=envelope.offset, key=envelope.key,
        )  # fmt: skip
        return _caused(failure, error)

    def failure_at_run(self, error: BaseException, batch: MessageBatch) -> TaskError:
        """The TaskError for what the task raised at a run, nothing of which counts as processed."""
        keys = [each.key for each in batch.peek(1)]
        failure = TaskError(
            f"{self.name} failed at {place_of(batch)}: {described(error)}",
            task=self.name, ssp=batch.ssp, offset=batch.first_offset, key=keys[0] if len(batch) == len(keys) else None,
            last_offset=batch.last_offset,
        )  # fmt: skip
        return _caused(failure, error)

    def callback(self, name: str) -> str:
        """One of the user's callbacks, for errors: its name, and where it is defined as far as that is known."""
        method: Any = getattr(self.task, name, None)
        function = inspect.unwrap(method)
        code = getattr(function, "__code__", None)
        shown = getattr(function, "__qualname__", name)
        return shown if code is None else f"{shown}, defined at {located(code.co_filename, code.co_firstlineno)}"

    def start_at(self, ssp: SystemStreamPartition, offset: str) -> None:
        """Begin to read a partition at ``offset``, whatever was processed before."""
        for subscription in self.subscriptions:
            if subscription.ssp == ssp:
                subscription.start, subscription.offset = offset, None

    def offsets(self) -> dict[SystemStreamPartition, str]:
        """Per input partition the last message processed; partitions of which none was are absent."""
        return {each.ssp: each.offset for each in self.subscriptions if each.offset is not None}

    def starts(self) -> dict[SystemStreamPartition, str]:
        """Where the task began, for the partitions of which nothing was processed yet."""
        return {each.ssp: each.start for each in self.subscriptions if each.offset is None}


def _caused(failure: TaskError, error: BaseException) -> TaskError:
    """``raise ... from`` would do, but not in a compiled module: mypyc does not know it."""
    failure.__cause__ = error
    return failure


def check_task(factory: Any) -> None:
    """Raise ConfigError for what is neither a task class nor a process function, or cannot be called as the container will.

    No task is made for it: making one may have effects."""
    if isinstance(factory, type):
        if not callable(getattr(factory, "process", None)) and not callable(getattr(factory, "process_batch", None)):
            raise ConfigError(
                f"task.class: {factory.__name__} has no process(envelope, collector, coordinator) method, "
                "nor process_batch(batch, collector, coordinator)",
                key="task.class",
            )
        missing = ", ".join(sorted(getattr(factory, "__abstractmethods__", ())))
        if missing:
            raise ConfigError(f"task.class: {factory.__name__} is abstract: it lacks {missing}", key="task.class")
        not_called = "process" if callable(getattr(factory, "process_batch", None)) else None
        for name in _CALLBACKS:
            method = inspect.getattr_static(factory, name, None)
            if isinstance(method, FunctionType) and name != not_called:
                _check_parameters(method, name, method.__qualname__, "self")
    elif hasattr(factory, "process") or not callable(factory):
        raise ConfigError(
            f"task.class: {factory!r} cannot be a task: give a class (one object is made per task) "
            "or a function process(envelope, collector, coordinator)",
            key="task.class",
        )
    else:
        _check_parameters(factory, "process", getattr(factory, "__qualname__", shortened(factory)))


def _check_parameters(function: Any, callback: str, name: str, *first: str) -> None:
    """Raise ConfigError, with the place of the function, where it does not take what it will be given (after ``first``), or where a call of
    it would only make a coroutine or a generator, none of whose code runs."""
    given = _CALLBACKS[callback]
    code = getattr(function, "__code__", None)
    place = f" ({located(code.co_filename, code.co_firstlineno)})" if code else ""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"{name}{place} is async: the container calls {callback}() and awaits nothing, so its code would never run; write def, and "
            "asyncio.run(...) inside for what is to be awaited",
            key="task.class",
        )
    if inspect.isgeneratorfunction(function):
        raise ConfigError(
            f"{name}{place} is a generator, since it has a yield: the container only calls {callback}(), so its code would never run; send "
            "messages with collector.send(...)",
            key="task.class",
        )
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # of what is not written in Python, nothing is known
    try:
        signature.bind(*first, *given)
    except TypeError as error:
        raise ConfigError(
            f"{name}{place} takes {signature}, but is called as {callback}({', '.join((*first, *given))}): {error}", key="task.class"
        ) from None


def task_object(factory: Any, config: Config) -> Any:
    """The user's object for one task: of a class, an instance; a function is taken as ``process``. Raises ConfigError."""
    if not isinstance(factory, type):
        return FunctionTask(factory)
    try:
        return factory()
    except StreambenchError:
        raise
    except Exception as error:
        code = getattr(inspect.getattr_static(factory, "__init__"), "__code__", None)
        place = f" ({located(code.co_filename, code.co_firstlineno)})" if code else ""
        raise config.error("task.class", f"cannot make a {factory.__name__}{place}: {described(error)}") from error


class FunctionTask:
    """A task that is nothing but its ``process`` function."""

    def __init__(self, process: Process) -> None:
        self.process = process


def _as_run(process_batch: ProcessBatch) -> Process:
    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        process_batch(MessageBatch.of([envelope]), collector, coordinator)

    return process


def _one_by_one(process: Process) -> ProcessBatch:
    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for envelope in batch:
            process(envelope, collector, coordinator)

    return process_batch


def is_ignored(error: BaseException, ignored: Collection[str]) -> bool:
    """Whether ``task.ignored.exceptions`` names this exception: its exact class, bare or dotted, or ``*``."""
    kind = type(error)
    return "*" in ignored or kind.__name__ in ignored or f"{kind.__module__}.{kind.__qualname__}" in ignored


def _timed(process: Callable[[_Given, MessageCollector, TaskCoordinator], Any], timer: Timer) -> Callable[..., None]:
    """The same callback, with every call of it timed."""
    read, update = time.perf_counter_ns, timer.update

    def timed(given: _Given, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        began = read()
        try:
            process(given, collector, coordinator)
        finally:
            update(read() - began)

    return timed
