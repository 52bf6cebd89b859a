"""Differences of what two versions of a task do with the same messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from streambench.debug.effects.effects import Effects
from streambench.debug.effects.events import Change, Output
from streambench.debug.message_text import changed_text, short_text
from streambench.model import SystemStreamPartition

_Step = TypeVar("_Step")
_PART = 2_000

Stores = dict[str, dict[str, dict[Any, Any]]]
"""Per task, store and key the values."""


class MessageRef(NamedTuple):
    """A message: its position, and its offset where that is known."""

    position: int
    ssp: SystemStreamPartition | None = None
    offset: str | None = None


class Difference(Struct, frozen=True):
    """The first difference between two versions of a task at one message.

    ``what``: ``state``, ``output``, ``error`` or ``order``. ``name``: ``store[key]``, or the stream.
    ``before``, ``after``: what the first and the second version did. These are the values written (None: no
    value), the outputs (None: no output), the errors, or the messages chosen. Of outputs with one message
    they are the keys or the partitions, in words."""

    position: int
    ssp: SystemStreamPartition | None
    offset: str | None
    what: str
    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.what == "error" and self.before is None:
            return f"{self.position:,}: {self.after}"
        name = {"output": f"-> {self.name} ", "state": f"{self.name} "}.get(self.what, "")
        return f"{self.position:,}: {name}{changed_text(self.before, self.after)}"


def differences(
    one: Mapping[_Step, Effects],
    other: Mapping[_Step, Effects],
    order: Sequence[_Step],
    message_of: Callable[[_Step], MessageRef],
) -> Iterator[Difference]:
    """The first difference at each step that is not alike, in this order of the steps.

    Where values differ already, and both change them alike (the same fields by the same amounts), that is no
    difference of its own."""
    nothing = Effects(0)
    for step in order:
        before, after = one.get(step, nothing), other.get(step, nothing)
        found = _of_state(before.changes, after.changes) or _of_outputs(before.outputs, after.outputs)
        if found is not None:
            yield Difference(*message_of(step), *found)


def differences_in_parts(
    one: Mapping[_Step, Effects],
    other: Mapping[_Step, Effects],
    order: Sequence[_Step],
    message_of: Callable[[_Step], MessageRef],
) -> Iterator[tuple[int, list[Difference]]]:
    """``differences`` part by part: again and again the number of steps looked at, and all differences at
    them."""
    found: list[Difference] = []
    for begin in range(0, len(order), _PART):
        part = order[begin : begin + _PART]
        # Another list: an interrupt leaves the last one with its number.
        found = [*found, *differences(one, other, part, message_of)]
        yield begin + len(part), found


_Found = tuple[str, str, Any, Any]


def _of_state(one: Sequence[Change], other: Sequence[Change]) -> _Found | None:
    """The first key that the two leave with other values."""
    before, after = _by_key(one), _by_key(other)
    for key in [*before, *(each for each in after if each not in before)]:
        was, now = before.get(key), after.get(key)
        # A key that only one has changed is with the other as it was before.
        left = was.after if was is not None else now.before if now is not None else None
        right = now.after if now is not None else was.before if was is not None else None
        if left != right and not (was is not None and now is not None and _is_carried(was, now)):
            change = was or now
            assert change is not None
            return "state", f"{change.store}[{short_text(change.key)}]", left, right
    return None


def _is_carried(was: Change, now: Change) -> bool:
    """True where two changes of values that differed before are alike."""
    if was.before == now.before:
        return False
    values = was.before, was.after, now.before, now.after
    if not all(isinstance(each, dict) for each in values):
        return _is_same_step(*values)
    names = {name for each in values for name in each}
    return all(_is_same_step(*(each.get(name) for each in values)) for name in names)


def _is_same_step(was_before: Any, was_after: Any, now_before: Any, now_after: Any) -> bool:
    """True where two values change by the same amount, or to the same value, or not at all."""
    if was_before == was_after or now_before == now_after:
        return bool(was_before == was_after and now_before == now_after)
    values = was_before, was_after, now_before, now_after
    if all(isinstance(each, int | float) for each in values):
        return bool(was_after - was_before == now_after - now_before)
    return bool(was_after == now_after)


def _by_key(changes: Sequence[Change]) -> dict[tuple[str, str, str], Change]:
    return {(each.task, each.store, repr(each.key)): each for each in changes}


def _of_outputs(one: Sequence[Output], other: Sequence[Output]) -> _Found | None:
    """The first output that the two do not both send."""
    for number in range(max(len(one), len(other))):
        was = one[number] if number < len(one) else None
        now = other[number] if number < len(other) else None
        if was is None or now is None:
            stream = now.stream if now is not None else was.stream if was is not None else ""
            return "output", stream, was and was.message, now and now.message
        if (was.stream, was.message) != (now.stream, now.message):
            return "output", now.stream, was.message, now.message
        if was.key != now.key:
            return "output", now.stream, f"key {short_text(was.key)}", f"key {short_text(now.key)}"
        if _are_apart(was, now):
            return "output", now.stream, f"partition {was.partition}", f"partition {now.partition}"
    return None


def _are_apart(was: Output, now: Output) -> bool:
    """True where two outputs go to different partitions, and not only as their turn was."""
    is_known = was.is_placed and now.is_placed and None not in (was.partition, now.partition)
    return is_known and was.partition != now.partition


def differing_entries(one: Stores, other: Stores) -> dict[str, dict[str, dict[Any, tuple[Any, Any]]]]:
    """Per task, store and key the two values that differ; None for no value."""
    found = {task: differing_values(one.get(task, {}), other.get(task, {})) for task in {**one, **other}}
    return {task: stores for task, stores in found.items() if stores}


def differing_values(
    one: Mapping[str, Mapping[Any, Any]], other: Mapping[str, Mapping[Any, Any]]
) -> dict[str, dict[Any, tuple[Any, Any]]]:
    """Per name and key the two values that differ; None for no value."""
    found: dict[str, dict[Any, tuple[Any, Any]]] = {}
    for name in {**one, **other}:
        left, right = one.get(name, {}), other.get(name, {})
        for key in {**left, **right}:
            if left.get(key) != right.get(key):
                found.setdefault(name, {})[key] = left.get(key), right.get(key)
    return found
