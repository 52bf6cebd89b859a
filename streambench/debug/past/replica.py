"""A replica of a container at a former position.

It has tasks and stores of its own, and reads what was recorded in the recorded order. The event loop drives
it like any container. It writes to no stream, no checkpoint, and no store of the container, which has to
stand still meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from streambench.container.burst import BurstPlanner, BurstRunner
from streambench.container.coordination import Coordination
from streambench.container.dispatch import Dispatcher
from streambench.container.event_loop import EventLoop
from streambench.container.failures import Failures
from streambench.container.inputs.consumers import Consumers
from streambench.container.inputs.multiplexer import Multiplexer
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.container.loop_context import LoopContext
from streambench.container.loop_parts import ChoiceWatch, LoopParts
from streambench.container.observer import ContainerObserver, Observation
from streambench.container.outputs.dead_letters import DeadLetters
from streambench.container.progress import LoopProgress
from streambench.container.tasks.task_handles import Context, SharedHandles
from streambench.container.tasks.task_instance import TaskInstance, task_object
from streambench.container.timers import Timers, Windows
from streambench.container.trace import WRITE_FIELDS, Sent, TraceEvent
from streambench.debug.history.attributes import empty_object
from streambench.debug.history.block import Block
from streambench.debug.history.history import History
from streambench.debug.history.position_metrics import kept_readings
from streambench.debug.history.recorded_inputs import RecordedConsumer
from streambench.debug.history.writes import StoreWrite, Values
from streambench.debug.past.exchange import exchange, exchange_and_fill
from streambench.debug.past.output_check import OutputCheck
from streambench.debug.past.script import Script, Waypoint, recorded_script
from streambench.debug.past.scripted import HeldOutputs, ScriptedChooser, ScriptedClock
from streambench.metrics.registry import MetricsRegistry, Reading
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.serde.streams import StreamSerdes
from streambench.store.memory import MemoryEngine
from streambench.store.overlay import OverlayEngine
from streambench.store.task_store import TaskStore
from streambench.store.traced import TracedEngine, traced_engine

_FETCHED = 1_000


class Done(NamedTuple):
    """The numbers of the outputs and of the writes of a replica so far."""

    sent: int
    written: int


class Cut(NamedTuple):
    """An exchange of the code of a replica. ``block``: begins with it, and holds nothing yet. ``before``,
    ``after``: what the replica had done. ``callbacks``: those without a message before it."""

    block: Block
    before: Done
    after: Done
    callbacks: int


class Replica:
    """A container as it was at the begin of a block; ``go_to`` moves it forward.

    Once its code was exchanged, it treats outputs that cannot be sent as the container does: it fails, leaves
    them out, or makes dead letters. What was recorded is repeated as it was.

    ``writes`` and ``outputs`` are those since ``ran_from``: the begin of the block, or the waypoint that it
    was turned back to last."""

    def __init__(
        self, history: History, block: Block, factory: Any = None, script: Script | None = None
    ) -> None:
        """``factory``: the code, where it is to be another than it was. ``script``: its begin and what it
        repeats, where that is not what was recorded from the block on."""
        script = script or recorded_script(history, block)
        self.history = history
        self.block = block
        self.factory = block.factory if factory is None else factory
        self.changes = 0
        """The number of times that its code was exchanged."""
        self.tasks: list[TaskInstance] = []
        self.traced: list[Any] = []
        self.ran_from = script.position
        """The position from which on it has run."""
        self.cuts: list[Cut] = []
        """The exchanges of its code, where it is a branch."""
        self.repeated: list[TraceEvent] = []
        """The callbacks without a message, with the numbers of its outputs and writes before them."""
        self._container = history.container
        self._context = LoopContext()
        self._handles = SharedHandles(self._context)
        self._observation = Observation()
        self.serdes = StreamSerdes(self._container.config)
        self._clock = ScriptedClock(self._read_clock)
        self._take(script)
        self._make_tasks(script)
        self._loop = self._built(script)

    def _take(self, script: Script) -> None:
        """Take what is to be repeated."""
        self._metrics = MetricsRegistry()
        self._events: deque[TraceEvent] = deque(script.events)
        self._ticks: deque[tuple[int, int, int]] = deque(script.ticks)
        self._callbacks = script.first_callback
        self._now_ms = script.now_ms
        self._batches = script.batches
        self._chooser = ScriptedChooser(script.order, script.position, script.batches)
        self._held = HeldOutputs(self.serdes, lambda: self.position, script.keyless)

    def waypoint(self) -> Waypoint:
        """All but memory that is needed to run from its position on once more."""
        return Waypoint(
            position=self.position,
            now_ms=self._now_ms,
            events=tuple(self._events),
            ticks=tuple(self._ticks),
            first_callback=self._callbacks,
            numbers=self.history.numbers_at(self.position),
            offsets={
                task.name: [(each.offset, each.skip_before) for each in task.subscriptions]
                for task in self.tasks
            },
            keyless=self._held.keyless,
        )

    def go_back(self, waypoint: Waypoint) -> None:
        """Stand where it stood. What its tasks keep in memory has been brought there."""
        script = waypoint.script(self.history, self.block, self.history.values_at(waypoint.position))
        self.ran_from = waypoint.position
        self.traced.clear()  # the list that the stores add to
        self.repeated.clear()
        self._handles.collected.clear()
        self._handles.requests.clear()
        self._context.input, self._context.until = None, 0
        self._take(script)
        for task in self.tasks:
            for coordinator in (task.coordinator, task.window_coordinator, task.end_coordinator):
                coordinator.forget()
            task.open_inputs, task.window_sent = len(task.subscriptions), False
            self._set_offsets(task, script)
        self.set_values(script.values)
        self._loop = self._built(script)

    @property
    def active(self) -> bool:
        """True: all its writes are traced, in ``traced``."""
        return True

    def at(self) -> int:
        """The position, for a write."""
        return self._chooser.position

    @property
    def writes(self) -> list[StoreWrite]:
        """The writes to stores since ``ran_from``."""
        return self.writes_from(0)

    def writes_from(self, number: int) -> list[StoreWrite]:
        """The writes to stores from a number on."""
        traced = self.traced[number * WRITE_FIELDS :]
        return list(zip(*(traced[field::WRITE_FIELDS] for field in range(WRITE_FIELDS)), strict=True))

    @property
    def position(self) -> int:
        """The number of messages processed."""
        return self._chooser.position

    @property
    def message(self) -> IncomingMessageEnvelope | None:
        """The message processed last, of a batch its last one; None at ``ran_from``."""
        last = self._chooser.last
        is_single = last is None or self._batches.count(self.position) == 1
        return last if is_single else self.history.message_at(self.position)

    @property
    def outputs(self) -> list[tuple[int, Sent]]:
        """The outputs since ``ran_from``."""
        return self._held.sent

    def go_to(self, position: int, target: int | None = None) -> int:
        """Process messages up to a position, and to the end of the batch there; how many. Raises what tasks
        raise. ``target``: that of the whole move, where it goes on from there."""
        self._context.take()
        before = self.position
        self.history.moving = lambda: (self.position, max(target or position, self.history.goal or 0))
        self._repeat_events()
        while self.position < position:
            due = self._events[0].position if self._events else position
            _, end = self._batches.edges(max(min(due, position), self.position + 1))
            if not self._loop.run(limit=end - self.position, stop_at_head=True):
                break
            self._repeat_events()
        return self.position - before

    def set_values(self, values: Values) -> None:
        """Replace what stores hold by these values above those of the container."""
        for (task, name), differing in zip(self.history.trace.stores, values, strict=True):
            store = next(each for each in self.tasks if each.name == task).stores[name]
            overlay = traced_engine(store.engine).engine
            assert isinstance(overlay, OverlayEngine)
            overlay.reset(differing)

    @contextmanager
    def observed(self, observer: ContainerObserver) -> Iterator[None]:
        """Meanwhile, have an observer see the callbacks of its tasks."""
        self._observation.add(observer)
        self._show_to_observers()
        try:
            yield
        finally:
            self._observation.remove(observer)
            self._show_to_observers()

    def _show_to_observers(self) -> None:
        for task in self.tasks:
            task.observe()

    def swap(self, factory: Any, *, init: bool = False, fill: bool = False) -> None:
        """Exchange the code of the tasks. ``fill``: ``init`` of the new code adds attributes. Raises
        ConfigError, TaskError."""
        self._context.take()
        if fill and not init:
            exchange_and_fill(self.tasks, factory)
        else:
            exchange(self.tasks, factory, init=init)
        self.factory = factory
        self.changes += 1
        self._check_outputs()

    def _check_outputs(self) -> None:
        """Refuse outputs that cannot be sent."""
        self._held.check_output = OutputCheck(
            self._container.runtime.outbox, self._container.status.systems, self.serdes,
            self._dead_letters.unserialisable,
        )  # fmt: skip

    def branch(self, factory: Any, *, init: bool) -> None:
        """Exchange the code as ``swap`` does, and note what shows the branch from here on again."""
        before = self._done()
        self.swap(factory, init=init)
        block = Block(
            self.position, self.tasks, factory, self._now_ms, self.history.numbers_at(self.position),
            self._held.keyless, (0, 0, self._callbacks),
        )  # fmt: skip
        block.init = init
        self.cuts.append(Cut(block, before, self._done(), len(self.repeated)))

    def _done(self) -> Done:
        return Done(len(self.outputs), len(self.traced) // WRITE_FIELDS)

    def offsets(self) -> dict[str, dict[SystemStreamPartition, str]]:
        """Per task, the last offset processed of each partition."""
        return {task.name: task.offsets() for task in self.tasks}

    def own_metrics(self, kinds: tuple[type, ...] = (object,)) -> dict[str, list[Reading]]:
        """The readings of the metrics of these classes that its tasks have registered, by the task."""
        self._context.take()  # for gauges that read a store
        memory = (self.cuts[-1].block if self.cuts else self.block).memory
        return {
            task.name: list(kept_readings(task.metrics, memory[task.name], kinds)) for task in self.tasks
        }

    def _repeat_events(self) -> None:
        while self._events and self._events[0].position <= self.position:
            event = self._events.popleft()
            self._callbacks += 1
            self._now_ms = event.now_ms or self._now_ms
            self._loop.call_between(partial(self._repeat, event))

    def _repeat(self, event: TraceEvent) -> None:
        self.repeated.append(event._replace(**self._done()._asdict()))
        if event.kind == "window":
            self._held.callback = event.kind
            self._loop.timers.windows.call_again(event.tasks, None, self.position)
        elif event.kind == "end_of_stream":
            self._held.callback = event.kind
            self._loop.coordination.end_again(event.tasks)

    def _read_clock(self) -> int:
        while (
            self._ticks
            and self._ticks[0][0] <= self.position
            and self._ticks[0][2] <= self._callbacks
        ):
            self._now_ms = self._ticks.popleft()[1]
        return self._now_ms

    def _make_tasks(self, script: Script) -> None:
        numbers = {name: number for number, name in enumerate(self.history.trace.stores)}
        for live in self._container.tasks:
            if live.name in script.offsets:
                self.tasks.append(self._task(live, script, numbers))

    def _built(self, script: Script) -> EventLoop:
        config, status, handles = self._container.config, self._container.status, self._handles
        dead_letters = DeadLetters(config, status.systems, handles.collected, self._metrics, warns=False)
        self._dead_letters = dead_letters
        if self.changes:
            self._check_outputs()
        failures = Failures(config, self.tasks, handles.collected, dead_letters, self._metrics)
        buffers = self._buffers(keep=dead_letters.keeps_failed, longest=script.batches.longest)
        if dead_letters.keeps_failed:
            failures.original = lambda envelope: buffers[envelope.ssp].original(envelope)
        consumers = Consumers(self._clock)
        multiplexer = Multiplexer(consumers, self._chooser, buffers, compare=self._compare)
        windows = Windows(
            self.tasks, config, self._clock, collected=handles.collected, context=self._context,
            dead_letters=dead_letters, failures=failures, metrics=self._metrics,
        )  # fmt: skip
        parts = LoopParts(
            tasks=self.tasks, multiplexer=multiplexer, consumers=consumers, outbox=self._held,
            commit_tasks=lambda tasks: None, metrics=self._metrics, context=self._context,
            collected=handles.collected, requests=handles.requests, clock=self._clock, idle_ms=0,
            timing="false",
            failures=failures, progress=LoopProgress(),
            timers=Timers(windows, commit_ms=0, poll_ms=config.integer("task.poll.interval.ms")),
            coordination=Coordination(
                self.tasks, handles.requests, collected=handles.collected, context=self._context,
                dead_letters=dead_letters, failures=failures,
            ),
            dispatcher=Dispatcher(
                multiplexer, handles.collected, dead_letters, failures, self._compare,
                max_batch=script.batches.longest,
            ),
            burst_runner=BurstRunner(
                self._held, self._context, handles.collected, handles.requests, consumers.inbox,
                self._clock, BurstPlanner(buffers), failures.at_message,
            ),
            choice_watch=ChoiceWatch(dead_letters, None, observation=Observation()),
        )  # fmt: skip
        messages = self.history.inputs.since(script.numbers)
        for system in sorted({ssp.system for ssp in buffers}):
            own = {ssp: each for ssp, each in messages.items() if ssp.system == system and ssp in buffers}
            batches = any(buffers[ssp].waiting is not None for ssp in own)
            consumers.add(system, RecordedConsumer(own), dict.fromkeys(own, ""), _FETCHED, batches=batches)
        multiplexer.start()
        return EventLoop(parts)

    def _task(self, live: TaskInstance, script: Script, numbers: dict[tuple[str, str], int]) -> TaskInstance:
        stores = {
            name: self._store(live, name, script, numbers[live.name, name]) for name in live.stores
        }  # fmt: skip
        metrics = MetricsRegistry()
        context = Context(
            live.name, live.model.partitions, self._container.config, metrics, stores, self._context
        )
        task = TaskInstance(
            live.model, self._object(script, context), context,
            self._handles, stores, observation=self._observation,
        )  # fmt: skip
        if script.memory is not None:
            script.memory[live.name].give(task)
        for each, was in zip(task.subscriptions, live.subscriptions, strict=True):
            each.start = was.start
        self._set_offsets(task, script)
        return task

    def _set_offsets(self, task: TaskInstance, script: Script) -> None:
        for each, (offset, skip_before) in zip(task.subscriptions, script.offsets[task.name], strict=True):
            each.offset, each.skip_before = offset, skip_before

    def _object(self, script: Script, context: Context) -> Any:
        """The object of a task, to which its memory is given; a new one as after a start."""
        if script.memory is None:
            return task_object(self.factory, self._container.config, context)
        return empty_object(self.factory, context)

    def _store(self, live: TaskInstance, name: str, script: Script, number: int) -> TaskStore:
        definition = self._container.runtime.task_stores.definitions[name]
        below, values = traced_engine(live.stores[name].engine).engine, script.values[number]
        if definition.changelog is None and not script.keeps_all_stores:
            below, values = MemoryEngine(), {}
        engine = definition.with_expiry(
            TracedEngine(OverlayEngine(below, values), number, self), self._clock.now_ms
        )
        store = TaskStore(
            name, engine, definition.key_serde, definition.value_serde, changelog=False,
            owner=self._context, limit=definition.limit,
        )  # fmt: skip
        if self._container.config.names("task.ignored.exceptions"):
            store.undo_by(self._context)
        return store

    def _buffers(self, *, keep: bool, longest: int) -> dict[SystemStreamPartition, PartitionBuffer]:
        buffers: dict[SystemStreamPartition, PartitionBuffer] = {}
        read = {each.ssp for task in self.tasks for each in task.subscriptions}
        for ssp in filter(read.__contains__, self.history.inputs.ssps):
            buffers[ssp] = PartitionBuffer(ssp, "", _FETCHED)
            buffers[ssp].read_by(self.serdes)
            if keep:
                buffers[ssp].keep_originals()
        live = self._container.runtime.multiplexer.partitions
        for task in self.tasks:
            for subscription in task.subscriptions:
                buffer = buffers[subscription.ssp]
                buffer.subscriptions = (*buffer.subscriptions, subscription)
        for ssp, buffer in buffers.items():
            if live[ssp].waiting is not None:
                buffer.take_batches(longest, longest)
            buffer.find_sole_subscription()
        return buffers

    def _compare(self, system: str, offset: str, other: str) -> int | None:
        return self._container.status.systems.admin(system).compare(offset, other)
