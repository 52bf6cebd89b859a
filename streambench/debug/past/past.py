"""A container that is looked at in its past: a replica at some position, and branches from there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from streambench.container.observer import ContainerObserver
from streambench.container.outputs.outgoing_batch import OutgoingBatch
from streambench.container.outputs.traced_send import Unencoded, sent_noter, with_fates
from streambench.container.outputs.transactional_outbox import TransactionalOutbox
from streambench.container.tasks.task_instance import TaskInstance
from streambench.container.trace import Sent
from streambench.debug.history.attributes import TaskMemory, empty_object
from streambench.debug.history.block import Block, position_of
from streambench.debug.history.history import History
from streambench.debug.history.position_metrics import Readings, has_own, readings_at, windows_at
from streambench.debug.history.round_robin import is_round_robin
from streambench.debug.history.writes import StoreWrite
from streambench.debug.past.adoption import take_over
from streambench.debug.past.recorded_tasks import RecordedTasks
from streambench.debug.past.replica import Replica
from streambench.debug.past.shared_values import SharedValues
from streambench.debug.past.way import Way
from streambench.debug.stopping.moment import ShownTask
from streambench.errors import ContainerStateError, UnknownStreamError
from streambench.metrics.registry import Counter, Gauge, Reading
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStreamPartition
from streambench.serde.api import Serde
from streambench.serde.streams import readable
from streambench.store.overlay import OverlayEngine
from streambench.store.traced import traced_engine
from streambench.wording import words

log = logging.getLogger(__name__)

_MOST_NAMED = 5
_SLOW_S = 0.5


class BranchSwap(Struct, frozen=True):
    """Code that was exchanged in the past, at a position; ``init``: its ``init`` was called."""

    position: int
    factory: Any
    init: bool


class Past:
    """The past of a container that stands still, at ``position``. To go to what was recorded runs no code:
    messages, outputs and the values of stores are known. What tasks keep in memory is that of ``replica``.

    ``branch``: the code exchanged in the past, in order; empty while only what was recorded is followed."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._warn_of_uncopied()
        self.branch: list[BranchSwap] = []
        self._way: Way | None = None
        self._recorded = RecordedTasks(history, self._copy_of)
        self._position = history.latest
        self._is_warned = False

    @property
    def replica(self) -> Replica:
        """The container at the position: a copy, whose tasks run again up to there when it is asked for.
        Raises what they raise."""
        return self._reach()

    def run_again(self) -> None:
        """Have what the tasks keep in memory at hand. Raises what they raise."""
        self._reach()

    @property
    def tasks(self) -> Sequence[ShownTask]:
        """The tasks at the position. Where it was recorded they run again only when their objects or contexts
        are looked at."""
        return self.replica.tasks if self.branch else self._recorded.at(self._position)

    @property
    def position(self) -> int:
        """The position that is looked at; during a move, the former one."""
        return self._position

    @property
    def message(self) -> IncomingMessageEnvelope | None:
        """The message processed last; None at the begin of the history."""
        return self.replica.message if self.branch else self.history.message_at(self._position)

    def offsets(self) -> dict[str, dict[SystemStreamPartition, str]]:
        """Per task, the last offset processed of each partition."""
        return self.replica.offsets() if self.branch else self.history.offsets_at(self._position)

    @property
    def is_at_hand(self) -> bool:
        """True where no message has to run again to have what the tasks keep in memory."""
        way = self._way
        return (
            way is not None
            and way.replica.position == self._position
            and self._can_go_on(way.replica, self._position)
        )

    def metrics(self) -> Readings:
        """The metrics at the position by the task, those of the container under no name. Tasks run again for
        the metrics that they have registered. Raises what they raise."""
        history, position = self.history, self._position
        own: Readings = {}
        if self.branch or has_own(history, position):
            own = self.replica.own_metrics()
        readings = readings_at(history, position, self.offsets(), own)
        readings[""] += self._windows()
        return readings

    def gauges_at_hand(self) -> tuple[Readings, int]:
        """The number of windows, and the gauges and counters that tasks have registered where no task has to
        run again for them. And the number of messages to run where they have to."""
        history, position = self.history, self._position
        of_container = {"": self._windows()}
        if not (self.branch or has_own(history, position)):
            return of_container, 0
        if self.branch or self.is_at_hand:
            return {**of_container, **self.replica.own_metrics((Gauge, Counter))}, 0
        return of_container, max(1, position - history.block_at(position).start)

    def _windows(self) -> list[Reading]:
        # Those of a branch depend on its code.
        return [] if self.branch else [windows_at(self.history, self._position)]

    def go_to(self, position: int) -> None:
        """Go to a position, or to the end of the batch that it is in. Before the begin of a branch, the
        branch is dropped. Raises ContainerStateError, and in a branch what its tasks raise."""
        self.branch = [each for each in self.branch if each.position <= position]
        position = self.history.next_edge(position)
        self.history.block_at(position)  # raises for what is not in the history
        if not self.branch:
            self._position = position
            return
        was_there = self._way is not None
        try:
            self._position = self._reach(position).position
        except Exception:
            if was_there:
                self._go_back()
            raise

    def _reach(self, position: int | None = None) -> Replica:
        """Run the tasks again up to a position, the one that is shown if none is given."""
        position = self._position if position is None else position
        way = self._way
        if way is not None and not self._can_go_on(way.replica, position):
            way = None
        if way is not None and way.replica.position == position:
            return way.replica
        code = self.branch[-1].factory if self.branch else self.history.container.factory
        shared = None if "shared" in self.history.warned else SharedValues(code)
        self._way = None  # what fails in the middle of a message is no position
        if way is None or (
            way.replica.position > position and (self.branch or not way.go_back(position))
        ):
            way = Way(self._begun(position))
        try:
            self._advance(way, position)
        finally:
            if shared is not None:
                self._warn_of_shared(shared)
        self._way = way
        return way.replica

    def _go_back(self) -> None:
        """Return to the former position after a move that failed."""
        try:
            self._reach()
        except Exception:
            log.debug("the former position cannot be shown again", exc_info=True)

    def at(self, position: int) -> Replica:
        """Another replica, at a position of what was recorded, or at the end of the batch that it is in."""
        position = self.history.next_edge(position)
        replica = Replica(self.history, self.history.block_at(position))
        self._follow(replica, position)
        return replica

    def step(self, n: int) -> int:
        """Process up to ``n`` messages; how many. A task of a branch that raises is brought back to before
        its message."""
        before = self.position
        target = min(before + n, self.history.latest)
        try:
            self.go_to(target)
        except Exception:
            reached = self._reached(before, target)
            self.go_to(reached)
            raise
        return self.position - before

    def step_observed(self, observer: ContainerObserver) -> None:
        """Process the next message, whose callbacks the observer sees. Raises what tasks of a branch raise,
        and stands before the message then."""
        before, replica = self.position, self.replica
        way, self._way = self._way, None  # what fails in the middle of a message is no position
        try:
            with replica.observed(observer):
                replica.go_to(before + 1)
                self._correct(replica)
        except Exception:
            self.go_to(before)
            raise
        self._way = way
        self._position = replica.position

    def swap(self, factory: Any, *, init: bool) -> None:
        """Exchange the code: from here on this is a branch. Raises ConfigError, TaskError."""
        position = self.position
        try:
            self.replica.branch(factory, init=init)
        except BaseException:
            self._way = None
            self.go_to(position)
            raise
        self.branch.append(BranchSwap(position, factory, init))

    def undo(self) -> bool:
        """Take the last exchange of this branch back; False where there is none."""
        if not self.branch:
            return False
        position = self.position
        self.branch.pop()
        self._way = None
        self.go_to(position)
        return True

    def adopt(self) -> None:
        """Make the branch the truth: run it to the newest position, and give its state to the container.

        Nothing durable changes before the next commit. Raises ContainerStateError where that cannot be, and
        what tasks raise. An output that cannot be sent fails the container, as it does where a task sends
        it."""
        self._check_adoptable()
        history, container = self.history, self.history.container
        self.go_to(history.latest)
        replica = self.replica
        if replica.position < history.latest:
            raise ContainerStateError(
                f"the branch ends at {replica.position:,}, where its tasks asked for the end: messages up "
                f"to {history.latest:,} would be lost; {words('swap')} to code that goes on, or "
                f"{words('live')}"
            )
        begin = self.branch[0].position
        outbox = container.runtime.outbox
        holds = isinstance(outbox, TransactionalOutbox)
        pending = [sent for sent in history.pending if position_of(sent) <= begin] if holds else []
        outputs: list[Sent] = []
        made: dict[int, list[Sent]] = {}

        def give() -> None:
            self._give_state(replica)
            if isinstance(outbox, TransactionalOutbox):
                outbox.drop_outputs()
            for sent in pending:
                self._send(sent)
            for at, sent in replica.outputs:
                # The outbox of the container makes dead letters itself.
                if at > begin and not sent.is_letter:
                    made[id(sent)] = self._send(sent)
                    outputs.extend(each for each in made[id(sent)] if not each.is_refused)

        history.read()
        history.trace.active = False  # it gets what the branch has noted
        try:
            container.replace(give, replica.factory)
        finally:
            history.trace.active = True
        take_over(history, replica, made, pending + outputs if holds else [])

    def _warn_once(self, of: str, text: str, *values: object) -> None:
        """Warn of this with the first move of the history that has it."""
        if of not in self.history.warned:
            self.history.warned.add(of)
            log.warning(f"%s: {text}", self.history.container.name, *values)

    def _warn_of_uncopied(self) -> None:
        """Warn of what no position brings back, and what that means."""
        names = [f"{name} ({reason})" for name, reason in self.history.uncopied().items()]
        if names:
            self._warn_once(
                "uncopied",
                "in the past these are as they are now, since they cannot be copied: %s. What a task does "
                "with them there is done again",
                _named(names, "; "),
            )

    def _warn_of_slow(self, block: Block) -> None:
        """Warn of an attribute that makes a look at attributes take long."""
        if not block.memory:
            return
        (seconds, name), task = max((each.slowest, task) for task, each in block.memory.items())
        if seconds >= _SLOW_S:
            self._warn_once(
                "slow",
                "a look at attributes in the past copies all of them, %s of %s for %.1f s: a store, or an "
                "array, is faster",
                name,
                task,
                seconds,
            )

    def _warn_of_shared(self, shared: SharedValues) -> None:
        """Warn of values that are not the task's own, and that it has changed on its way."""
        if names := shared.changed():
            self._warn_once(
                "shared",
                "on the way there the task ran again and changed what no position brings back: %s. Keep it "
                "in the context or in self",
                _named(names, ", "),
            )

    def _check_adoptable(self) -> None:
        if not self.branch:
            raise ContainerStateError(
                f"there is no branch to adopt: in the past, {words('swap')} begins one, then {words('step')}"
            )
        begin, committed = self.branch[0].position, self.history.last_commit
        if begin < committed:
            raise ContainerStateError(
                f"the branch begins at {begin:,}, before the commit at {committed:,}: what was committed "
                f"stays; a branch from {committed:,} on can be adopted"
            )
        if isinstance(self.history.container.runtime.outbox, TransactionalOutbox):
            return
        out = [(at, sent) for at, sent in self.history.outputs(begin) if not sent.is_refused]
        if out:
            at, sent = out[0]
            raise ContainerStateError(
                f"outputs of the messages after {begin:,} are out already: {len(out):,}, the first to "
                f"{sent.stream} at {at:,}; with task.processing.guarantee=exactly-once they would be held "
                f"until the commit. {words('live')} drops the branch, and {words('swap')} there gives its "
                "code to the messages to come"
            )

    def _give_state(self, replica: Replica) -> None:
        container = self.history.container
        for task, mine in zip(container.tasks, replica.tasks, strict=True):
            memory = TaskMemory(mine)
            for name, store in task.stores.items():
                live = traced_engine(store.engine).engine
                overlay = traced_engine(mine.stores[name].engine).engine
                assert isinstance(overlay, OverlayEngine)
                changed = {key: value for key, value in overlay.changed().items() if live.get(key) != value}
                store.overwrite(changed)
            task.bind(empty_object(replica.factory, task.context))
            memory.give(task)

    def _send(self, sent: Sent) -> list[Sent]:
        """Have the container send an output of the branch; what became of it, with its dead letters."""
        runtime, trace = self.history.container.runtime, self.history.trace
        collected = runtime.collected
        trace.refused.clear()
        # The list of the container: dead letters are added to it.
        collected.append((sent.task, self._envelope(sent), None, None, None))
        runtime.outbox.send(collected)
        note = sent_noter(self.replica.serdes, lambda: sent.at)
        made = with_fates([sent], collected, trace, note)
        collected.clear()
        return made

    def _envelope(self, sent: Sent) -> OutgoingMessageEnvelope | OutgoingBatch:
        if isinstance(sent.message, OutgoingBatch):
            return sent.message
        partition = sent.partition
        if is_round_robin(sent.partition_key):
            systems = self.history.container.status.systems
            try:
                partition = int(sent.partition_key) % len(systems.metadata([sent.stream])[sent.stream])
            except UnknownStreamError:
                partition = None  # the outbox creates the stream, and begins with its first partition
        key_serde, message_serde = self.replica.serdes.for_stream(sent.stream)
        return OutgoingMessageEnvelope(
            sent.stream,
            _as_sent(message_serde, sent.message),
            _as_sent(key_serde, sent.key),
            None if is_round_robin(sent.partition_key) else sent.partition_key,
            partition,
            sent.timestamp,
            sent.headers,
        )

    def _can_go_on(self, replica: Replica, position: int) -> bool:
        """True where a replica runs the code of the branch, or of what was recorded at a position."""
        code = self.branch[-1].factory if self.branch else replica.block.factory
        if replica.factory is not code or replica.changes != len(self.branch):
            return False
        return bool(self.branch) or replica.block is self.history.block_at(position)

    def _copy_of(self, task: str) -> TaskInstance:
        """A task, by its name, that has run up to the position."""
        return next(each for each in self.replica.tasks if each.name == task)

    def _begun(self, position: int) -> Replica:
        """A new replica, not yet at the position."""
        begin = self.branch[0].position if self.branch else position
        replica = Replica(self.history, self.history.block_at(begin))
        self._warn_of_slow(replica.block)
        for each in self.branch:
            self._follow(replica, each.position)
            replica.branch(each.factory, init=each.init)
        return replica

    def _advance(self, way: Way, position: int) -> None:
        if self.branch:
            way.replica.go_to(position)
        else:
            way.go_to(position)
            self._correct(way.replica)

    def _follow(self, replica: Replica, position: int) -> None:
        """Go on to a position."""
        replica.go_to(position)
        self._correct(replica)

    def _correct(self, replica: Replica) -> None:
        """Have stores hold what they held at the position, whatever the tasks did when they ran again."""
        if replica.changes:
            return
        self._compare_writes(replica)
        replica.set_values(self.history.values_at(replica.position))

    def _compare_writes(self, replica: Replica) -> None:
        """Say so where tasks do not do the same when they run again."""
        if self._is_warned:
            return
        block, begin = replica.block, replica.ran_from
        writes = block.writes if begin == block.start else block.writes.between(begin, None)
        for was, now in zip(self._compared(writes), self._compared(replica.writes), strict=False):
            if was[:3] != now[:3] or (was[4] != now[4] and not self._expires(was[1])):
                self._is_warned = True
                log.warning(
                    "%s: the task is not deterministic: run again, it writes something else at %d. Stores "
                    "are shown as they were, attributes as they are when it runs again",
                    self.history.container.name,
                    was[0],
                )
                return

    def _compared(self, writes: Iterable[StoreWrite]) -> Iterator[StoreWrite]:
        """The writes of tasks: what a store removes by itself when it has expired is left out."""
        return (each for each in writes if each[4] is not None or not self._expires(each[1]))

    def _expires(self, store: int) -> bool:
        _, name = self.history.trace.stores[store]
        return self.history.container.runtime.task_stores.definitions[name].ttl_ms is not None

    def _reached(self, before: int, target: int) -> int:
        """The last position before the message at which a branch raises."""
        self._way = None
        replica = self._begun(before)
        reached = before
        try:
            replica.go_to(before)
            while replica.position < target:
                replica.go_to(replica.position + 1)
                reached = replica.position
        except Exception:
            log.debug("a branch stops at %d", reached + 1, exc_info=True)
        return reached


def _named(names: Sequence[str], separator: str) -> str:
    return separator.join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")


def _as_sent(serde: Serde | None, kept: Any) -> Any:
    """A key or message as the task sent it, of what was kept of it; what cannot be encoded was kept as it
    was."""
    return bytes(kept) if isinstance(kept, Unencoded) else readable(serde, kept)


def resume(history: History) -> None:
    """Have a container stand again before the message at which it failed: as if its task had not seen it.

    Raises ContainerStateError where the container is closed, and what tasks raise when they run again, which
    closes it. After an interrupt of that it can be called again."""
    container = history.container
    pieces, message = history.failed_messages()
    try:
        replica = Past(history).at(history.latest)
    except Exception:
        container.failure_hold.end()
        raise

    def bring_back() -> None:
        history.take_back_unfinished()
        for task, mine in zip(container.tasks, replica.tasks, strict=True):
            TaskMemory(mine).give(task)
            for each, was in zip(task.subscriptions, mine.subscriptions, strict=True):
                each.offset, each.skip_before = was.offset, was.skip_before
        waiting = container.runtime.multiplexer.partitions[message.ssp].waiting
        if waiting is not None:
            waiting.put_back(pieces)

    container.failure_hold.resume(container.runtime, message, bring_back)


def find_back(
    history: History, position: int, at: Callable[[int], Replica], holds: Callable[[Replica], bool]
) -> int | None:
    """The last position before this one at which a condition holds; None where there is none. ``at`` makes a
    replica at a position."""
    for block in reversed(history.blocks):
        if block.start >= position:
            continue
        replica = at(block.start)
        found = None
        for each in range(block.start, min(block.end, position - 1) + 1):
            replica.go_to(each, min(block.end, position - 1))
            # It stands behind the whole batch at once.
            if replica.position == each and replica.message is not None and holds(replica):
                found = each
        if found is not None:
            return found
    return None
