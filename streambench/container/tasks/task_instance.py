"""Step 2: one task of a container: the user's object, its handles, and its offsets."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeVar

from streambench.batch import MessageBatch, place_of
from streambench.config import Config
from streambench.container.observer import ContainerObserver, Observation
from streambench.container.tasks.functions import (
    CALLBACKS,
    FunctionTask,
    MadeWithContext,
    TaskOfFunctions,
    given_to,
)
from streambench.container.tasks.task_handles import Context, Coordinator, SharedHandles
from streambench.errors import (
    ConfigError,
    StreambenchError,
    TaskError,
    class_name,
    described,
    located,
    shortened,
)
from streambench.metrics.registry import Timer
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.planning.model import TaskModel
from streambench.store.task_store import TaskStore
from streambench.task import MessageCollector, TaskContext, TaskCoordinator, TaskLifecycleListener
from streambench.user_code import user_line

Process = Callable[[IncomingMessageEnvelope, MessageCollector, TaskCoordinator], Any]
_CALLBACK_METHODS = ("callback_begun", "callback_ended", "callback_raised")
_RAISED_IN = "_streambench_raised_in"

ProcessBatch = Callable[[MessageBatch, MessageCollector, TaskCoordinator], Any]
_Given = TypeVar("_Given", IncomingMessageEnvelope, MessageBatch)


class TaskPartition:
    """One input partition of one task, which the event loop calls a subscription: all that it needs for a
    message of it, in one place.

    ``offset``: the last message processed, None before the first. ``skip_before``: the task begins here
    although the partition begins earlier (a broadcast input that another task reads from further back), None
    once it is reached. ``skipped``: how many messages before it."""

    __slots__ = (
        "collector",
        "coordinator",
        "offset",
        "process",
        "skip_before",
        "skipped",
        "ssp",
        "start",
        "task",
    )

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

        def timed(
            envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            process = self.process = self.task.process
            began = time.perf_counter_ns()
            try:
                process(envelope, collector, coordinator)
            finally:
                timer.update(time.perf_counter_ns() - began)

        self.process = timed


class CallTimers(NamedTuple):
    """The timers of every call of a callback; None where it is not timed."""

    process: Timer | None
    process_batch: Timer | None


class TaskInstance:
    """A task of a container.

    The user's callbacks are bound here and nowhere else (``bind``), so that code can be exchanged while the
    container lives.
    """

    def __init__(
        self,
        model: TaskModel,
        task: Any,
        context: Context,
        handles: SharedHandles,
        stores: dict[str, TaskStore],
        listeners: Sequence[TaskLifecycleListener] = (),
        observation: Observation | None = None,
        timers: CallTimers | None = None,
    ) -> None:
        self.name = model.name
        self.model = model
        self.context = context
        self.stores = stores
        self.metrics = context.metrics
        self.collector = handles.collector(self.name)
        self.coordinator = handles.coordinator(self.name)
        self.window_coordinator = handles.coordinator(self.name)
        self.end_coordinator = handles.coordinator(self.name)
        self._listeners = listeners
        self._observation = observation or Observation()
        self._has_begun = self._was_called = False
        self._timers = timers or CallTimers(None, None)
        self.commits = 0
        self.committed: Mapping[SystemStreamPartition, str] = {}
        self.window_ms: int | None = None
        """The wall time from which its next window counts; None without windows. ``window_committed``: as its
        checkpoint has it."""
        self.window_committed: int | None = None
        self.window_begins = False
        """True where no checkpoint has such a time, so that it runs from the start of the event loop."""
        self.window_sent = False
        """True where a window has sent something since the last commit."""
        self.keeps_start = False
        """True where its checkpoint is a start point that it was rewound to."""
        self.bind(task)
        self.subscriptions = tuple(TaskPartition(self, ssp) for ssp in model.partitions)
        self.open_inputs = len(self.subscriptions)
        """The number of its partitions that have not ended."""

    def bind(self, task: Any) -> None:
        """Take ``task``'s methods as the callbacks from now on."""
        self.task = task
        process_batch = getattr(task, "process_batch", None)
        self.takes_batches = callable(process_batch)
        # Each stands in for the other: code may be exchanged for code that has the other one.
        process = _as_run(process_batch) if callable(process_batch) else task.process
        batches = process_batch if callable(process_batch) else _one_by_one(task.process)
        self.process: Process = self._bound(process, "process", _alone, self._timers.process)
        self.process_batch: ProcessBatch = self._bound(
            batches, "process_batch", MessageBatch.peek, self._timers.process_batch
        )
        self.window: Callable[[MessageCollector, TaskCoordinator], Any] | None = getattr(task, "window", None)
        self.end_of_stream: Callable[[MessageCollector, TaskCoordinator], Any] | None = getattr(
            task, "end_of_stream", None
        )
        for subscription in getattr(self, "subscriptions", ()):
            subscription.process = self.process

    def observe(self) -> None:
        """Have the current observers see callbacks and writes to stores; where there are none, neither is
        wrapped. Between two messages."""
        self.bind(self.task)
        observer = self._observation.of("store_written")
        for store in self.stores.values():
            store.observe(None if observer is None else partial(observer.store_written, self.name, store))

    def codes(self) -> list[CodeType]:
        """The code of its callbacks, of those that are written in Python."""
        callbacks: list[Any] = [getattr(self.task, name, None) for name in CALLBACKS]
        found = [
            getattr(each, "__code__", None)
            for callback in callbacks
            for each in (callback, inspect.unwrap(callback))
        ]
        return [code for code in found if isinstance(code, CodeType)]

    def _bound(
        self,
        callback: Callable[[_Given, MessageCollector, TaskCoordinator], Any],
        name: str,
        messages: Callable[[_Given], Iterable[IncomingMessageEnvelope]],
        timer: Timer | None,
    ) -> Callable[[_Given, MessageCollector, TaskCoordinator], Any]:
        """The callback as the loop calls it: the task's own where there is no listener, observer or timer.
        ``messages``: those that a call gets, for the listeners."""
        observer = self._observation.of(*_CALLBACK_METHODS)
        if observer is not None:
            callback = self._observed(callback, name, observer)
        heard = self._heard(callback, messages) if self._listeners else callback
        return heard if timer is None else _timed(heard, timer)

    def _heard(
        self,
        callback: Callable[[_Given, MessageCollector, TaskCoordinator], Any],
        messages: Callable[[_Given], Iterable[IncomingMessageEnvelope]],
    ) -> Callable[[_Given, MessageCollector, TaskCoordinator], Any]:
        """The callback, with the listeners before and after it."""

        def heard(given: _Given, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            for envelope in messages(given):
                self._call_hooks("before_process", envelope)
            callback(given, collector, coordinator)
            for envelope in messages(given):
                self._call_hooks("after_process", envelope)

        return heard

    def _observed(
        self,
        process: Callable[[_Given, MessageCollector, TaskCoordinator], Any],
        callback: str,
        observer: ContainerObserver,
    ) -> Callable[[_Given, MessageCollector, TaskCoordinator], Any]:
        name = self.name

        def observed(given: _Given, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            observer.callback_begun(name, callback, given)
            try:
                process(given, collector, coordinator)
            except BaseException as error:
                observer.callback_raised(name, callback, given, error)
                raise
            observer.callback_ended(name, callback, given)

        return observed

    def call(self, name: str, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call a callback of the task that is given no message, and show the call to the observers."""
        observer = self._observation.observer
        if observer is None:
            callback(*arguments)
            return
        observer.callback_begun(self.name, name, None)
        try:
            callback(*arguments)
        except BaseException as error:
            observer.callback_raised(self.name, name, None, error)
            raise
        observer.callback_ended(self.name, name, None)

    def init(self) -> None:
        """Call the listeners' before_init, the task's init, the listeners' after_init. Raises TaskError."""
        self._has_begun = True
        self._around("init", "init", (self.context,))

    def init_again(self) -> None:
        """Call ``init`` of code that was exchanged, without listeners. Raises TaskError."""
        callback = getattr(self.task, "init", None)
        if callback is not None:
            with self._errors_named("in init()"):
                callback(self.context)

    def close(self) -> None:
        """Call the listeners' before_close, the task's close, the listeners' after_close. Raises TaskError.

        A task that never began, since the init of another one failed, has nothing to close. Where a listener
        failed before its init, its own close is omitted."""
        if self._has_begun:
            self._around("close", "close", ())

    def _around(self, name: str, method: str, arguments: tuple[Any, ...]) -> None:
        with self._errors_named(f"in {method}()"):
            self._call_hooks(f"before_{name}")
            callback = getattr(self.task, method, None) if method == "init" or self._was_called else None
            self._was_called = True
            if callback is not None:
                self.call(name, callback, *arguments)
            self._call_hooks(f"after_{name}")

    def _call_hooks(self, hook: str, *given: IncomingMessageEnvelope) -> None:
        if not self._listeners:
            return
        observer = self._observation.observer
        if observer is not None:
            observer.hook_called(self.name, hook, *given or (None,))
        for listener in self._listeners:
            try:
                getattr(listener, hook)(*given, self.context)
            except Exception as error:
                self._mark(error, listener, hook)
                raise

    def _mark(self, error: Exception, listener: TaskLifecycleListener, hook: str) -> None:
        """Note on an exception the listener that raised it, for ``failure``: it keeps its class, by which it
        may be ignored."""
        names = self.context.config.names("task.lifecycle.listeners")
        named = [name for name, each in zip(names, self._listeners, strict=False) if each is listener]
        which = f"{named[0]} ({class_name(type(listener))})" if named else class_name(type(listener))
        with suppress(Exception):  # an exception with __slots__ takes no mark
            setattr(error, _RAISED_IN, f"in {hook}() of the listener {which}")

    @contextmanager
    def _errors_named(self, where: str) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.failure(error, where) from error

    def failure(
        self, error: BaseException, where: str, envelope: IncomingMessageEnvelope | None = None
    ) -> TaskError:
        """The TaskError for what the task raised, to be raised ``from`` it."""
        raised_in = getattr(error, _RAISED_IN, "")
        if envelope is None:
            return _caused(
                TaskError(f"{self.name} failed {raised_in or where}: {_in_words(error)}", task=self.name),
                error,
            )
        key = "" if envelope.key is None else f", key {shortened(envelope.key)}"
        failure = TaskError(
            f"{self.name} failed at {envelope.ssp}@{envelope.offset}{key}{raised_in and f', {raised_in}'}: "
            f"{_in_words(error)}",
            task=self.name,
            ssp=envelope.ssp,
            offset=envelope.offset,
            key=envelope.key,
        )
        return _caused(failure, error)

    def failure_at_batch(self, error: BaseException, batch: MessageBatch) -> TaskError:
        """The TaskError for what the task raised at a batch, nothing of which counts as processed."""
        keys = [each.key for each in batch.peek(1)]
        raised_in = getattr(error, _RAISED_IN, "")
        failure = TaskError(
            f"{self.name} failed at {place_of(batch)}{raised_in and f', {raised_in}'}: {_in_words(error)}",
            task=self.name,
            ssp=batch.ssp,
            offset=batch.first_offset,
            key=keys[0] if len(batch) == len(keys) else None,
            last_offset=batch.last_offset,
        )
        return _caused(failure, error)

    def callback(self, name: str) -> str:
        """One of the user's callbacks, for errors: its name, and where it is defined, if that is known."""
        method: Any = getattr(self.task, name, None)
        function = inspect.unwrap(method)
        code = getattr(function, "__code__", None)
        shown = getattr(function, "__qualname__", name)
        return (
            shown if code is None else f"{shown}, defined at {located(code.co_filename, code.co_firstlineno)}"
        )

    def start_at(self, ssp: SystemStreamPartition, offset: str) -> None:
        """Begin to read a partition at ``offset``, whatever was processed before."""
        for subscription in self.subscriptions:
            if subscription.ssp == ssp:
                subscription.start, subscription.offset = offset, None

    def offsets(self) -> dict[SystemStreamPartition, str]:
        """Per input partition the last message processed; partitions of which none was are absent."""
        return {each.ssp: each.offset for each in self.subscriptions if each.offset is not None}

    def starts(self) -> dict[SystemStreamPartition, str]:
        """The starting offsets of the partitions of which nothing was processed yet."""
        return {each.ssp: each.start for each in self.subscriptions if each.offset is None}


def _caused(failure: TaskError, error: BaseException) -> TaskError:
    """``raise ... from`` would do, but not in a compiled module: mypyc does not know it."""
    failure.__cause__ = error
    return failure


def _in_words(error: BaseException) -> str:
    """An exception of a task in words, with what to call instead of sys.exit(), and the place of an attribute
    that envelopes do not have."""
    if isinstance(error, AttributeError) and isinstance(error.obj, IncomingMessageEnvelope):
        at_ssp = f" (did you mean envelope.ssp.{error.name}?)"
        return described(error) + at_ssp * hasattr(error.obj.ssp, error.name or "")
    if not isinstance(error, SystemExit):
        return described(error)
    line = user_line(error)
    return (
        f"RuntimeError: sys.exit({'' if error.code is None else repr(error.code)}) was called"
        + (f" ({line})" if line else "")
        + ", which would end the whole process; coordinator.shutdown() ends the job"
    )


def check_task(factory: Any, key: str = "task.class") -> None:
    """Raise ConfigError for what is neither a task class nor a process function, or cannot be called as the
    container will. ``key``: ``task.class`` as errors name it, with its place.

    No task is made for it: making one may have effects."""
    if isinstance(factory, type):
        if not callable(getattr(factory, "process", None)) and not callable(
            getattr(factory, "process_batch", None)
        ):
            raise ConfigError(
                f"{key}: {factory.__name__} has no process(envelope, collector, coordinator) method, "
                "nor process_batch(batch, collector, coordinator)",
                key="task.class",
            )
        missing = ", ".join(sorted(getattr(factory, "__abstractmethods__", ())))
        if missing:
            raise ConfigError(
                f"{key}: {factory.__name__} is abstract: it lacks {missing}", key="task.class"
            )
        not_called = "process" if callable(getattr(factory, "process_batch", None)) else None
        for name in CALLBACKS:
            method = inspect.getattr_static(factory, name, None)
            if name == not_called:
                continue
            if isinstance(method, FunctionType):
                _check_parameters(method, name, method.__qualname__, "self")
            elif isinstance(method, staticmethod):
                plain = method.__func__
                _check_parameters(
                    plain,
                    name,
                    getattr(plain, "__qualname__", name),
                    takes_context=issubclass(factory, TaskOfFunctions),
                )
    elif hasattr(factory, "process") or not callable(factory):
        raise ConfigError(
            f"{key}: {factory!r} cannot be a task: give a class (one object is made per task) "
            "or a function process(envelope, collector, coordinator)",
            key="task.class",
        )
    else:
        _check_parameters(
            factory, "process", getattr(factory, "__qualname__", shortened(factory)), takes_context=True
        )


def _check_parameters(
    function: Any, callback: str, name: str, *first: str, takes_context: bool = False
) -> None:
    """Raise ConfigError, with file and line of the function, where it does not take its arguments (after
    ``first``). Also where a call of it would only make a coroutine or a generator, none of whose code runs.
    ``takes_context``: it may take its task's context as well."""
    given = CALLBACKS[callback]
    code = getattr(function, "__code__", None)
    place = f" ({located(code.co_filename, code.co_firstlineno)})" if code else ""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"{name}{place} is async: the container calls {callback}() and awaits nothing, so its code "
            "would never run; write def, and "
            "asyncio.run(...) inside for what is to be awaited",
            key="task.class",
        )
    if inspect.isgeneratorfunction(function):
        raise ConfigError(
            f"{name}{place} is a generator, since it has a yield: the container only calls {callback}(), so "
            "its code would never run; send "
            "messages with collector.send(...)",
            key="task.class",
        )
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # of what is not written in Python, nothing is known
    try:
        if takes_context:
            given_to(callback, function)
        else:
            signature.bind(*first, *given)
    except TypeError as error:
        called = f"{callback}({', '.join((*first, *given))})"
        also = (
            f", or with the task's context behind: {callback}({', '.join((*given, 'context'))})"
            if takes_context and given
            else ""
        )
        raise ConfigError(
            f"{name}{place} takes {signature}, but is called as {called}{also}: {error}", key="task.class"
        ) from None


def task_object(factory: Any, config: Config, context: TaskContext) -> Any:
    """The user's object for one task: of a class, an instance; a function is taken as ``process``. Raises
    ConfigError."""
    if not isinstance(factory, type):
        return FunctionTask(factory, context)
    try:
        return factory(context) if issubclass(factory, MadeWithContext) else factory()
    except StreambenchError:
        raise
    except Exception as error:
        code = getattr(inspect.getattr_static(factory, "__init__"), "__code__", None)
        place = f" ({located(code.co_filename, code.co_firstlineno)})" if code else ""
        raise config.error(
            "task.class", f"cannot make a {factory.__name__}{place}: {described(error)}"
        ) from error


def _alone(envelope: IncomingMessageEnvelope) -> tuple[IncomingMessageEnvelope]:
    return (envelope,)


def _as_run(process_batch: ProcessBatch) -> Process:
    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        process_batch(MessageBatch.of([envelope]), collector, coordinator)

    return process


def _one_by_one(process: Process) -> ProcessBatch:
    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for envelope in batch:
            process(envelope, collector, coordinator)

    return process_batch


def is_ignored(error: BaseException, ignored: Collection[str]) -> bool:
    """True where ``task.ignored.exceptions`` names this exception: its exact class, bare or dotted, or
    ``*``."""
    kind = type(error)
    return "*" in ignored or kind.__name__ in ignored or f"{kind.__module__}.{kind.__qualname__}" in ignored


def _timed(
    process: Callable[[_Given, MessageCollector, TaskCoordinator], Any], timer: Timer
) -> Callable[..., None]:
    """The same callback, with every call of it timed."""
    read, update = time.perf_counter_ns, timer.update

    def timed(given: _Given, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        began = read()
        try:
            process(given, collector, coordinator)
        finally:
            update(read() - began)

    return timed
