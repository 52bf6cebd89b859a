"""Two tasks or two configurations over the same messages: what they do differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from streambench import imports
from streambench.config import Config
from streambench.debug.comparison.message_source import DEFAULT_INPUT, GivenMessages, read_range, recording_of
from streambench.debug.comparison.side_by_side import SideBySide
from streambench.debug.control.hot_swap import RunAgain
from streambench.debug.control.session import Session
from streambench.debug.effects.differences import (
    Difference,
    MessageRef,
    Stores,
    differences_in_parts,
    differing_entries,
)
from streambench.debug.effects.effects import Effects
from streambench.debug.effects.events import Output
from streambench.debug.replay.replay import replaying
from streambench.debug.stopping.interrupt import noted_interrupts
from streambench.debug.stopping.slices import Progress
from streambench.errors import ConfigError, UnknownStreamError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.recording.recording import Recording
from streambench.serde.streams import StreamSerdes, decoded

Side = Any
"""A task (a class, a function, ``file.py:Class``), or a configuration: a Config or the path of a properties
file stands for all of it, another mapping for the keys that differ."""

Over = str | Path | Recording | Session | GivenMessages

_HISTORY_MB = 2048
_CHOOSING = ("task.chooser.", "task.consumer.batch.size")
_OF_STREAM = (".samza.priority", ".samza.bootstrap")

_Step = tuple[SystemStreamPartition | None, str]
_BEGIN: _Step = (None, "")


class Comparison(Struct, frozen=True, kw_only=True):
    """The comparison of two versions, a and b, over the same messages.

    ``first``: the first message at which they differ, None where they do not. ``message``: that message.
    ``outputs``: per stream the outputs of each. ``stores``: per task, store and key the two values at the
    end, where they differ (None: no value). ``differing``: the first difference at each message that is not
    alike; values that differ already and change alike are no new one.
    ``processed``: the messages that each processed. ``errors``: the failures that ended them. ``order``: the
    first position at which the two chose another message; alone, it makes them no less ``equal``.
    ``interrupted``: a KeyboardInterrupt ended both, and this is what was found so far."""

    equal: bool
    first: Difference | None
    message: IncomingMessageEnvelope | None
    outputs: Mapping[str, tuple[Sequence[Output], Sequence[Output]]]
    stores: Mapping[str, Mapping[str, Mapping[Any, tuple[Any, Any]]]]
    differing: tuple[Difference, ...]
    processed: tuple[int, int]
    errors: tuple[str | None, str | None]
    order: Difference | None = None
    interrupted: bool = False

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Per stream the number of outputs of each."""
        return {stream: (len(a), len(b)) for stream, (a, b) in self.outputs.items()}

    def __repr__(self) -> str:
        """The first difference and figures: the outputs and values themselves may be very many."""
        differing = sum(len(keys) for stores in self.stores.values() for keys in stores.values())
        return (
            f"Comparison(equal={self.equal}, first={self.first!r}, differing={len(self.differing)} messages, "
            f"stores={differing} keys differ, counts={self.counts}, processed={self.processed}, "
            f"errors={self.errors}, order={self.order!r}, interrupted={self.interrupted})"
        )


def compare(
    a: Side,
    b: Side,
    over: Over,
    *,
    task: Any = None,
    config: Config | Mapping[str, Any] | str | Path | None = None,
    last: int | None = None,
    attributes: bool = False,
    progress: Progress = lambda done, total: None,
) -> Comparison:
    """Run two tasks or two configurations over the same messages, and compare everything that they do.

    ``over``: a Recording or its path; a session, of whose history the ``last`` messages are taken, with the
    state before them; or ``system.stream`` or ``system.stream.0@100..200``. It may also be messages: a list,
    or one per stream and partition. ``task``: the task of configurations; ``config``: the configuration of
    tasks. Nothing leaves the two: streams, stores and checkpoints stay as they are.

    Both begin with the stores of the first message, where these are recorded, and with the attributes that
    their own ``init`` makes. With ``attributes``, both begin with those of the first message, and those that
    ``init`` adds. ``progress`` gets the messages that both have processed, then those whose effects are
    compared. A KeyboardInterrupt ends either with what was found so far.

    Raises StreambenchError where there are no such messages, ConfigError where a version cannot be used."""
    if a is None or b is None:
        raise ConfigError("there is nothing to compare with None: give two tasks, or two configurations")
    if isinstance(over, Session):
        one, other, interrupted = _over_session(a, b, over, last, progress, attributes=attributes)
        return _compared(one, other, progress, interrupted=interrupted)
    base = None if config is None else Config.of(config)
    wholes = [each for each in (base, _whole_config(a), _whole_config(b)) if each is not None]
    tasks = [found for each in (task, a, b) if (found := _task_of(each)) is not None]
    recording = _recording(over, wholes[0] if wholes else None, tasks[0] if tasks else None)
    if base is not None:
        recording = _with_config(recording, recording.config.with_values(base))
    sides = [_Version(recording, each, _task_of(task)) for each in (a, b)]
    is_ordered = recording.header.ordered and not any(each.chooses for each in sides)
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(each.opened(recorded_order=is_ordered, attributes=attributes))
            for each in sides
        ]
        both = SideBySide(sessions[0], sessions[1])
        both.run(len(recording), progress)
        ran = [_ran(session, error) for session, error in zip(sessions, both.errors, strict=True)]
    return _compared(ran[0], ran[1], progress, interrupted=both.interrupted)


class _Ran(Struct):
    """Everything that a version did: its messages in their order, each with its position, and its effects by
    them."""

    steps: dict[_Step, int]
    effects: dict[_Step, Effects]
    outputs: Sequence[Output]
    stores: Stores
    message_of: Callable[[_Step], IncomingMessageEnvelope | None]
    serdes: StreamSerdes
    error: str | None = None
    failed_at: _Step | None = None

    def first(self, steps: Sequence[_Step]) -> _Ran:
        """The part of it up to the last of these steps. The stores at that place are not known."""
        last = self.steps[steps[-1]]
        here = {step: at for step, at in self.steps.items() if at <= last}
        effects = {step: each for step, each in self.effects.items() if step in here}
        outputs = [output for each in effects.values() for output in each.outputs]
        return msgspec.structs.replace(
            self, steps=here, effects=effects, outputs=outputs, stores={}, error=None, failed_at=None
        )


class _Version:
    """One side of a comparison: a recording with its configuration, and the task to run."""

    def __init__(self, recording: Recording, side: Side, task: Any) -> None:
        before = recording.config
        if _is_task(side):
            self._task, self._recording = _task_of(side), recording
        else:
            whole = _whole_config(side)
            self._task = _task_of(side) if task is None else task
            inputs = {key: before.get(key) for key in ("task.inputs", "task.broadcast.inputs")}
            wanted = before.with_values(side) if whole is None else whole.with_values(inputs)
            self._recording = _with_config(recording, wanted)
        after = self._recording.config
        self.chooses = any(
            _is_of_choice(key) and before.get(key) != after.get(key) for key in {*before, *after}
        )

    def opened(self, *, recorded_order: bool, attributes: bool) -> AbstractContextManager[Session]:
        """A session at the begin of the messages. Raises ConfigError where it cannot begin."""
        # Both sides are compared message by message, also where one takes batches.
        config = self._recording.config.with_values({"task.batch.messages": 1})
        return replaying(
            _with_config(self._recording, config), self._task, history=_HISTORY_MB, at_end=False,
            recorded_order=recorded_order, recorded_attributes=attributes,
        )  # fmt: skip


def _ran(session: Session, error: str | None) -> _Ran:
    history, recording = session.history, session.recording
    assert history is not None and recording is not None
    end = session.position
    places = {history.oldest: _BEGIN}
    places |= {at: (ssp, offset) for at, ssp, offset in history.message_refs(to=end)}
    all_effects = session.effects(0)
    effects = {places[each.position]: each for each in all_effects if each.position in places}
    outputs = [output for each in all_effects for output in each.outputs]
    failed = session.container.status.progress.unfinished
    messages: dict[_Step, IncomingMessageEnvelope] = {}
    messages.update(((each.ssp, each.offset), each) for each in recording.messages)
    return _Ran(
        {step: at for at, step in places.items()}, effects, outputs, session.stores(),
        messages.get, StreamSerdes(recording.config),
        error, None if failed is None or error is None else (failed.ssp, failed.offset),
    )  # fmt: skip


def _over_session(
    a: Side, b: Side, session: Session, last: int | None, progress: Progress, *, attributes: bool
) -> tuple[_Ran, _Ran, bool]:
    """Run the last messages of a session through two tasks, from the state before them on; and whether an
    interrupt ended that."""
    for each in (a, b):
        if not _is_task(each):
            raise ConfigError(
                "over the history of a session tasks are compared; configurations over a recording, a stream "
                "or messages"
            )
    one, other = session.run_again([a, b], last, attributes=attributes, progress=progress)
    return _of_session(session, one), _of_session(session, other), one.interrupted


def _of_session(session: Session, ran: RunAgain) -> _Ran:
    places: dict[int, _Step] = {ran.begin: _BEGIN}
    places |= {at: (ssp, offset) for at, ssp, offset in ran.refs}
    positions = {step: at for at, step in places.items()}
    failed = None if ran.error is None else places.pop(ran.end)
    outputs = [output for each in ran.effects.values() for output in each.outputs]
    effects = {places[at]: each for at, each in ran.effects.items() if at in places}
    steps = {step: at for at, step in places.items()}
    serdes = StreamSerdes(session.container.config)

    def message_of(step: _Step) -> IncomingMessageEnvelope | None:
        return session.message_at(positions[step]) if step in positions else None

    return _Ran(steps, effects, outputs, ran.stores, message_of, serdes, ran.error, failed)


def _compared(a: _Ran, b: _Ran, progress: Progress, *, interrupted: bool) -> Comparison:
    both = [step for step in a.steps if step in b.steps]

    def message_of(step: _Step) -> MessageRef:
        return MessageRef(a.steps[step], step[0], step[1] or None)

    found: list[Difference] = []
    done = 0
    try:
        with noted_interrupts() as pressed:
            for parts in differences_in_parts(a.effects, b.effects, both, message_of):
                done, found = parts
                progress(done - 1, len(both) - 1)  # one of them is the begin
                if pressed.is_set():
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        interrupted = True
        a, b = a.first(both[: max(done, 1)]), b.first(both[: max(done, 1)])
    if a.error != b.error:
        failed = next(each for each in (a.failed_at, b.failed_at, (None, "")) if each is not None)
        at = 1 + min(max(each.steps.values()) for each in (a, b) if each.error is not None)
        found.append(Difference(at, failed[0], failed[1] or None, "error", "", a.error, b.error))
    stores = differing_entries(a.stores, b.stores)
    outputs = _by_stream(a.outputs, b.outputs)
    order = _different_order(a.steps, b.steps)
    first = found[0] if found else order
    is_same = not found and not stores and len(a.steps) == len(b.steps)
    message = None if first is None else a.message_of((first.ssp, first.offset or ""))
    return Comparison(
        equal=is_same and all(_bag(one) == _bag(other) for one, other in outputs.values()),
        first=first,
        message=None if message is None else _decoded(message, a.serdes),
        outputs=outputs,
        stores=stores,
        differing=tuple(found),
        processed=(len(a.steps) - 1, len(b.steps) - 1),
        errors=(a.error, b.error),
        order=order,
        interrupted=interrupted,
    )


def _decoded(message: IncomingMessageEnvelope, serdes: StreamSerdes) -> IncomingMessageEnvelope:
    """A message as the task got it; as it was read where it cannot be decoded."""
    found = decoded(message, *serdes.for_stream(message.ssp.system_stream))
    return found if isinstance(found, IncomingMessageEnvelope) else message


def _different_order(a: Mapping[_Step, int], b: Mapping[_Step, int]) -> Difference | None:
    for one, other in zip(a, b, strict=False):
        if one != other:
            chosen = (f"{ssp}@{offset}" for ssp, offset in (one, other))
            return Difference(a[one], one[0], one[1], "order", "", *chosen)
    return None


def _by_stream(
    a: Iterable[Output], b: Iterable[Output]
) -> dict[str, tuple[Sequence[Output], Sequence[Output]]]:
    found: dict[str, tuple[list[Output], list[Output]]] = {}
    for number, outputs in enumerate((a, b)):
        for output in outputs:
            found.setdefault(output.stream, ([], []))[number].append(output)
    return {stream: found[stream] for stream in sorted(found)}


def _bag(outputs: Sequence[Output]) -> list[str]:
    return sorted(repr((each.partition, each.key, each.message)) for each in outputs)


def _recording(over: Any, config: Config | None, factory: Any) -> Recording:
    """The messages to compare over."""
    if isinstance(over, Recording):
        return over
    if isinstance(over, Path) or (isinstance(over, str) and Path(over).is_file()):
        return Recording.read(over)
    given = config or Config({f"systems.{DEFAULT_INPUT.system}.samza.factory": "memory"})
    if isinstance(over, str):
        if config is None:
            raise ConfigError(
                f"where is {over}? Give the configuration of its system: compare(..., config=...)"
            )
        try:
            over = read_range(over, config)
        except (ConfigError, UnknownStreamError) as error:
            raise ConfigError(f"{over} is neither a file nor a stream that can be read: {error}") from None
    if factory is None:
        raise ConfigError("which task? Give it: compare(..., task=...)", key="task.class")
    return recording_of(over, given, factory)


def _with_config(recording: Recording, config: Config) -> Recording:
    return recording.with_header(msgspec.structs.replace(recording.header, config=dict(config)))


def _is_task(side: Side) -> bool:
    if isinstance(side, str):
        return not side.endswith(".properties")
    return side is not None and not isinstance(side, Mapping | Config | Path)


def _task_of(side: Side) -> Any:
    """The task of a side; None where it is a configuration without one. Raises ConfigError."""
    if isinstance(side, str) and _is_task(side):
        return imports.by_path(Config({"the task": side}), "the task", side)
    if _is_task(side) or side is None:
        return side
    config = _whole_config(side)
    named = None if config is None else config.text("task.class")
    return None if config is None or named is None else imports.by_path(config, "task.class", named)


def _whole_config(side: Side) -> Config | None:
    """The configuration that a side is, where it is a whole one."""
    is_file = isinstance(side, Path) or (isinstance(side, str) and side.endswith(".properties"))
    return Config.of(side) if is_file or isinstance(side, Config) else None


def _is_of_choice(key: str) -> bool:
    return key.startswith(_CHOOSING) or key.endswith(_OF_STREAM)
