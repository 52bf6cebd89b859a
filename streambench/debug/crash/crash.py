"""Simulation of crashes: what a start after ``kill -9`` does again, and what differs then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from streambench.debug.crash.crash_comparison import CrashComparison, SentItem, StoreKey
from streambench.debug.crash.crash_report import Covered, CrashStep, Report
from streambench.debug.effects.events import Output, Outputs
from streambench.debug.effects.store_keys import store_key
from streambench.debug.history.block import position_of
from streambench.debug.history.epochs import Epoch, TaskGroup, task_groups
from streambench.debug.history.history import History
from streambench.debug.history.writes import Values
from streambench.debug.stopping.interrupt import noted_interrupts
from streambench.errors import ContainerStateError
from streambench.model import IncomingMessageEnvelope

Differences = Mapping[str, Mapping[str, Mapping[Any, tuple[Any, Any]]]]


class Crash(Struct, frozen=True, kw_only=True):
    """A crash after the message at ``position``, and the start that follows it. Nothing of it is real.

    ``again``: the messages that come again, in order. ``outputs_twice``: the outputs that streams hold twice
    then. ``state``: per task, store and key the value at the crash and the one with which the job starts
    again (None: no value).

    When the messages have come again, all should be as before. ``differs``: the keys of stores for which it
    is not, with the value at the crash and the one then. ``outputs_new``: outputs that were not sent before.
    ``outputs_lost``: those that are not sent again, and no stream has. ``error``: the error of a task that
    fails.

    ``committed``: per task the position of the commit that it starts from. ``inside_commit``: the crash
    came before the commit at the position was done. ``swapped``: the positions since the earliest of these
    commits at which the code was swapped. What comes again runs with the newest code."""

    position: int
    guarantee: str
    inside_commit: bool
    committed: Mapping[str, int]
    again: tuple[IncomingMessageEnvelope, ...]
    outputs_twice: tuple[Output, ...]
    outputs_new: tuple[Output, ...]
    outputs_lost: tuple[Output, ...]
    state: Differences
    differs: Differences
    error: str | None = None
    swapped: tuple[int, ...] = ()

    @property
    def safe(self) -> bool:
        """True where streams and stores are in the end as without the crash."""
        unlike = self.outputs_twice or self.outputs_new or self.outputs_lost or self.differs
        return not unlike and self.error is None


def crash_at(history: History, position: int, outputs: Outputs, *, inside_commit: bool = False) -> Crash:
    """Simulate a crash at a position. ``inside_commit``: before the commit there is done. Raises
    ContainerStateError."""
    found: list[tuple[TaskGroup, Epoch, CrashComparison]] = []
    ends = False
    for group in task_groups(history):
        epoch, is_inside = _epoch_at(group, position, inside_commit=inside_commit)
        values: Values = [{} for _ in history.trace.stores]
        history.undo_writes(values, epoch.begin.written)
        comparison = CrashComparison(history, group, epoch, values, history.block_at(position).factory)
        comparison.go_to(position, inside_commit=is_inside)
        found.append((group, epoch, comparison))
        ends = ends or is_inside
    if inside_commit and not ends:
        raise ContainerStateError(f"no task was committed at {position:,}: crash there without inside_commit")
    comparisons = [each for _, _, each in found]
    again = {at for each in comparisons if each.restart for at in each.restart.positions if at <= position}
    fate = _Fate(comparisons, outputs, is_whole=history.container.runtime.outbox.commits_all_tasks)
    return Crash(
        position=position,
        guarantee=guarantee_of(history),
        inside_commit=inside_commit,
        committed={task: epoch.begin.position for group, epoch, _ in found for task in group.tasks},
        again=tuple(each for at in sorted(again) if (each := history.message_at(at)) is not None),
        outputs_twice=fate.twice,
        outputs_new=fate.new,
        outputs_lost=fate.lost,
        state=_decoded(history, _changed_since_commit(comparisons)),
        differs=_decoded(history, _differing(comparisons)),
        error=next((each.error for each in comparisons if each.error is not None), None),
        swapped=_swapped(history, min(epoch.begin.position for _, epoch, _ in found), position),
    )


def crash_steps(history: History, progress: Callable[[int, int], object]) -> Report:
    """The verdict of a crash after each step of a history, and inside each commit. A KeyboardInterrupt ends
    it with the verdicts so far. Raises ContainerStateError."""
    groups = task_groups(history)
    first = max(group.epochs[0].begin.position for group in groups)
    covered = Covered(first, history.latest, len(groups))
    unsafe: dict[int, list[CrashStep]] = {}
    try:
        with noted_interrupts() as interrupted:
            for number, step in _all_steps(history, groups, covered):
                if not step.safe and step.position > first:
                    unsafe.setdefault(step.position, []).append(step)
                covered.add(number, step.position)
                progress(covered.done // len(groups), covered.total)
                if interrupted.is_set():
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        is_interrupted = True
    else:
        is_interrupted = False
    merged = tuple(CrashStep.merged(unsafe[position]) for position in sorted(unsafe))
    left = covered.total - covered.decided(unsafe) if is_interrupted else 0
    return Report(first, history.latest, guarantee_of(history), merged, left)


def guarantee_of(history: History) -> str:
    """The processing guarantee of a container."""
    return history.container.config.required("task.processing.guarantee")


def _all_steps(
    history: History, groups: Sequence[TaskGroup], covered: Covered
) -> Iterator[tuple[int, CrashStep]]:
    """The crashes of all groups, each with the number of its group."""
    is_whole = history.container.runtime.outbox.commits_all_tasks
    values: Values = [{} for _ in history.trace.stores]
    written: int | None = None
    epochs = [(each, number) for number, group in enumerate(groups) for each in group.epochs]
    # From the last epoch back: so the values of stores are undone only once, and an interrupt leaves the
    # last steps looked at in all groups.
    for epoch, number in sorted(epochs, key=lambda each: each[0].begin.event, reverse=True):
        history.undo_writes(values, epoch.begin.written, written)
        written = epoch.begin.written
        covered.begin(number, epoch.begin.position)
        for step in _steps(history, groups[number], epoch, values, history.latest, is_whole=is_whole):
            yield number, step
        covered.end(number)


def _steps(
    history: History, group: TaskGroup, epoch: Epoch, values: Values, latest: int, *, is_whole: bool
) -> Iterator[CrashStep]:
    """The crashes that lead back to the begin of an epoch."""
    comparison: CrashComparison | None = None
    factory: Any = None
    last = latest if epoch.end is None else epoch.end.position
    for position in range(epoch.begin.position, last + 1):
        if history.next_edge(position) != position:
            continue  # a batch is processed as a whole
        is_inside = epoch.end is not None and position == last
        code = history.block_at(position).factory
        if comparison is None or code is not factory:
            factory = code
            copied: Values = [dict(each) for each in values]
            comparison = CrashComparison(history, group, epoch, copied, factory)
        comparison.go_to(position, inside_commit=is_inside)
        yield _step(comparison, position, is_inside=is_inside, is_whole=is_whole)


def _step(comparison: CrashComparison, position: int, *, is_inside: bool, is_whole: bool) -> CrashStep:
    more: Counter[str] = Counter()
    fewer: Counter[str] = Counter()
    for (stream, *_), count in comparison.balance.items():
        (fewer if count > 0 else more)[str(stream)] += abs(count)
    twice = Counter() if is_whole else comparison.by_stream - more
    return CrashStep(
        position=position,
        inside_commit=is_inside,
        twice=dict(twice),
        new=dict(more),
        lost=dict(fewer) if is_whole else {},
        keys=len(comparison.differing),
        error=comparison.error,
    )


def _epoch_at(group: TaskGroup, position: int, *, inside_commit: bool) -> tuple[Epoch, bool]:
    """The epoch to whose begin a crash leads back, and whether it ends with the commit at the position."""
    if inside_commit:
        ending = [each for each in group.epochs if each.end is not None and each.end.position == position]
        if ending:
            return ending[0], True
    found = next((each for each in reversed(group.epochs) if each.has(position)), None)
    if found is None:
        raise ContainerStateError(
            f"the history holds no commit of {', '.join(group.tasks)} at {position:,} or before: nothing is "
            "known of the start after a crash there"
        )
    return found, False


def _swapped(history: History, begin: int, position: int) -> tuple[int, ...]:
    """The positions behind ``begin``, and up to ``position``, from which on other code ran than before."""
    # Of several swaps at one position the last one counts.
    codes = {each.start: each.factory for each in history.since(history.block_at(begin))}
    return tuple(at for before, at in pairwise(codes) if at <= position and codes[at] is not codes[before])


class _Fate:
    """The outputs after a crash, by what becomes of them."""

    def __init__(self, comparisons: Sequence[CrashComparison], outputs: Outputs, *, is_whole: bool) -> None:
        """``is_whole``: no output has left the container since the commit."""
        recorded = [item for each in comparisons for item in each.recorded]
        repeated = [item for each in comparisons for item in each.repeated]
        self._outputs = outputs
        both, missing = _split(recorded, repeated)
        self.twice = () if is_whole else self._made(both)
        self.new = self._made(_split(repeated, recorded)[1])
        self.lost = self._made(missing) if is_whole else ()

    def _made(self, items: Sequence[SentItem]) -> tuple[Output, ...]:
        made: dict[int, list[Output]] = {}  # by identity: those of a batch are made once
        for _, sent, _ in items:
            if id(sent) not in made:
                made[id(sent)] = self._outputs.of(position_of(sent), sent, held=False)
        return tuple(made[id(sent)][index] for _, sent, index in items)


def _split(items: Sequence[SentItem], others: Sequence[SentItem]) -> tuple[list[SentItem], list[SentItem]]:
    """The items that are among the others, too, as often as they are; and the rest."""
    left = Counter(identity for identity, _, _ in others)
    both, alone = [], []
    for item in items:
        if left[item[0]] > 0:
            left[item[0]] -= 1
            both.append(item)
        else:
            alone.append(item)
    return both, alone


_Entry = tuple[StoreKey, bytes | None, bytes | None]


def _changed_since_commit(comparisons: Iterable[CrashComparison]) -> Iterator[_Entry]:
    for each in comparisons:
        for key, was in each.at_commit.items():
            yield key, each.values[0].get(key), was


def _differing(comparisons: Iterable[CrashComparison]) -> Iterator[_Entry]:
    for each in comparisons:
        for key in each.differing:
            yield key, each.values[0].get(key), each.values[1].get(key)


def _decoded(history: History, entries: Iterable[_Entry]) -> Differences:
    """Per task, store and key the two values; equal ones are left out."""
    definitions = history.container.runtime.task_stores.definitions
    found: dict[str, dict[str, dict[Any, tuple[Any, Any]]]] = {}
    for (number, key), before, after in entries:
        task, store = history.trace.stores[number]
        definition = definitions[store]
        one, other = definition.shown_write(before), definition.shown_write(after)
        if one != other:
            known = store_key(definition.shown_key(key))
            found.setdefault(task, {}).setdefault(store, {})[known] = (one, other)
    return found
