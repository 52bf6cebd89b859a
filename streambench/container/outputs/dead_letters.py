"""Dead letters: messages that cannot be decoded, and outputs that cannot be sent. Each is counted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from streambench.config import Config
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.stream_writers import Write
from streambench.errors import ConfigError, MessageTooLargeError, SerdeError, described, shortened
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.planning.plan import all_inputs
from streambench.serde.letters import LETTER, as_bytes, letter_headers, shorter, user_traceback
from streambench.serde.streams import DEAD_LETTERS, dead_letter_stream
from streambench.system.systems import Systems, abilities_of, kind_name

log = logging.getLogger(__name__)

_DROP_INPUTS = "task.drop.deserialization.errors"
_DROP_OUTPUTS = "task.drop.serialization.errors"
_KEEP_FAILED = "task.ignored.exceptions.dead.letter"


class IgnoredFailure(Struct, frozen=True):
    """The failures of one class that ``task.ignored.exceptions`` passed over: ``count`` of them, and where
    the first of them was.

    ``callback``: the task's method that raised. ``ssp``, ``offset``, ``key``: the message it was given, None
    outside ``process``; of a batch the first and last offset, and no key. The key is text. ``line``:
    ``file.py:12`` in the user's own code, empty where it is not known. ``text``: the exception in words.
    """

    kind: str
    count: int
    task: str
    callback: str
    ssp: SystemStreamPartition | None
    offset: str | None
    key: str | None
    line: str
    text: str

    def times(self, count: int) -> IgnoredFailure:
        """The same with another count."""
        return replace(self, count=count)

    def place(self) -> str:
        """The first failure and its place, on one line."""
        at = f"in {self.callback}()" if self.ssp is None else f"at {self.ssp}@{self.offset}"
        key = "" if self.key is None else f", key {self.key}"
        line = f" ({self.line})" if self.line else ""
        return f"{self.task} failed {at}{key}{line}: {' '.join(self.text.split())}"

    def __str__(self) -> str:
        if self.count == 1:
            return f"ignored 1 {self.kind}: {self.place()}"
        return f"ignored {self.count:,} {self.kind}, the first: {self.place()}"


class ErrorCounts(Struct, frozen=True):
    """Counts of the messages that a container did not process, or did not send, and went on.

    ``undecodable`` inputs and ``unserialisable`` outputs: all of them are in the dead-letter stream or were
    dropped. ``ignored``: failures of tasks that ``task.ignored.exceptions`` names; ``kinds``: these by class,
    with the place of the first of each. ``dead_letters``: the messages that went to the dead-letter stream
    because of all that.
    """

    undecodable: int = 0
    unserialisable: int = 0
    dead_letters: int = 0
    ignored: int = 0
    kinds: tuple[IgnoredFailure, ...] = ()

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        kinds = {each.kind: each for each in self.kinds}
        for each in other.kinds:
            known = kinds.get(each.kind)
            kinds[each.kind] = each if known is None else known.times(known.count + each.count)
        return ErrorCounts(
            self.undecodable + other.undecodable, self.unserialisable + other.unserialisable,
            self.dead_letters + other.dead_letters, self.ignored + other.ignored, tuple(kinds.values()),
        )  # fmt: skip

    def __bool__(self) -> bool:
        return self != ErrorCounts()

    def __str__(self) -> str:
        """In words, on one line; empty where there is nothing to say."""
        fate = "dead-lettered" if self.dead_letters else "dropped"
        parts = [
            f"{count:,} {what}"
            for count, what in (
                (
                    self.undecodable,
                    f"undecodable {'message' if self.undecodable == 1 else 'messages'} {fate}",
                ),
                (
                    self.unserialisable,
                    f"unserialisable {'output' if self.unserialisable == 1 else 'outputs'} {fate}",
                ),
                (
                    self.ignored,
                    f"{'failure' if self.ignored == 1 else 'failures'} ignored{self._kinds_in_short()}",
                ),
            )
            if count
        ]
        return ", ".join(parts)

    def details(self) -> list[str]:
        """A line for each class of ignored failures, with the place of its first."""
        return [str(each) for each in self.kinds]

    def _kinds_in_short(self) -> str:
        names = [(each.kind.rpartition(".")[2], each.count) for each in self.kinds]
        if len(names) <= 1:
            return "".join(f" ({name})" for name, _ in names)
        return f" ({', '.join(f'{count} {name}' for name, count in names)})"


class DeadLetters:
    """Decides, as the configuration says: the container fails (the default), drops and counts, or writes a
    dead letter.

    A dead letter is the original message: its key and bytes as they were read, with its headers. More headers
    give the reason and the origin: ``dead-letter.reason``, ``.exception``, ``.task``, ``.direction`` (in, out
    or task), ``.source``, ``.offset``, ``.timestamp``. One of an output names the ``.stream`` it was to go
    to, one of a failure of the task the ``.traceback``. A broadcast message that cannot be decoded makes one
    dead letter, not one per task. Dead letters are added to what was collected in this iteration. So they are
    sent like any output, and the same commit covers them. One that is too large for its stream is cut
    (``serde.letters.shorter``).

    ``stream``: that of the dead letters, None where there is none. ``input``: the message of this iteration,
    for the dead letters of outputs; the driver of the tasks sets it where ``notes_input``.
    """

    def __init__(
        self,
        config: Config,
        systems: Systems,
        collected: Collected,
        metrics: MetricsRegistry,
        *,
        warns: bool = True,
    ) -> None:
        """Raises ConfigError where the dead-letter stream cannot be one."""
        self._warns = warns
        self.stream = _checked_stream(config, systems)
        self._config = config
        self._collected = collected
        self._drop_inputs = config.boolean(_DROP_INPUTS)
        self._drop_outputs = config.boolean(_DROP_OUTPUTS)
        self.notes_input = self.stream is not None
        self.keeps_failed = config.boolean(_KEEP_FAILED)
        """True where messages of ignored failures go to the dead-letter stream."""
        if self.keeps_failed and self.stream is None:
            raise config.error(
                _KEEP_FAILED, f"there is no dead-letter stream: name one with {DEAD_LETTERS}=SYSTEM.STREAM"
            )
        self.input: IncomingMessageEnvelope | None = None
        self._inputs = metrics.counter("deserialization-errors", "consumers")
        self._outputs = metrics.counter("serialization-errors", "producers")
        self._letters = metrics.counter("dead-letters", "container")
        self._warned: set[tuple[str, str]] = set()
        if warns and self.stream is not None and (self._drop_inputs or self._drop_outputs):
            key = _DROP_INPUTS if self._drop_inputs else _DROP_OUTPUTS
            log.warning("%s has no effect: %s is set, so nothing is dropped", key, DEAD_LETTERS)

    @property
    def counts(self) -> ErrorCounts:
        """The counts so far."""
        return ErrorCounts(self._inputs.count, self._outputs.count, self._letters.count)

    @property
    def ends_at_outputs(self) -> bool:
        """True where an output that cannot be sent ends the container."""
        return self.stream is None and not self._drop_outputs

    def undecodable(self, task: str, envelope: IncomingMessageEnvelope, error: SerdeError) -> None:
        """Handle an undecodable input, as it was read, that ``task`` was to process. Raises ``error`` where
        that is to end the container."""
        if self.stream is None and not self._drop_inputs:
            raise SerdeError(f"{error}; {_remedy(_DROP_INPUTS)}") from error.__cause__
        self._inputs.inc()
        self._warn("in", str(envelope.ssp.system_stream), str(error))
        if self.stream is not None:
            self._send(
                task,
                as_bytes(envelope.key),
                as_bytes(envelope.message),
                envelope.headers,
                envelope,
                error,
                {"direction": "in"},
            )

    def unserialisable(self, task: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
        """Handle an output of ``task`` that cannot be sent. Raises SerdeError, or MessageTooLargeError, where
        that is to end the container."""
        stream = str(envelope.system_stream)
        key, message = shortened(envelope.key), shortened(envelope.message)
        kind = MessageTooLargeError if isinstance(error, MessageTooLargeError) else SerdeError
        if envelope.system_stream == self.stream and is_dead_letter(envelope):
            cut = shorter(envelope) if kind is MessageTooLargeError else None
            if cut is None:
                raise kind(
                    f"{DEAD_LETTERS}: {stream} does not take this dead letter (key {key}, message "
                    f"{message}): {error}"
                ) from error
            self._collected.append((task, cut, self.input, None, None))
            return
        what = (
            f"{task}: what it sent to {stream} cannot be sent (key {key}, message {message}): "
            f"{described(error)}"
        )
        if self.ends_at_outputs:
            raise kind(f"{what}; {_remedy(_DROP_OUTPUTS)}") from error
        self._outputs.inc()
        self._warn("out", stream, what)
        if self.stream is not None:
            facts = {"direction": "out", "stream": stream}
            self._send(
                task,
                as_bytes(envelope.key),
                as_bytes(envelope.message),
                envelope.headers,
                self.input,
                error,
                facts,
            )

    def failed(self, task: str, messages: Iterable[IncomingMessageEnvelope], error: Exception) -> None:
        """Keep messages, as they were read, at which ``task`` failed, where the configuration says so."""
        if not self.keeps_failed:
            return
        facts = {"direction": "task", "traceback": user_traceback(error)}
        for each in messages:
            self._send(task, as_bytes(each.key), as_bytes(each.message), each.headers, each, error, facts)

    def dead_letters_in(self, collected: Collected) -> Collected:
        """The dead letters in what was collected. They stay where a callback fails: their inputs are passed
        over for good. That holds also where the callback itself found them, as the first to look into a
        batch."""
        if self.stream is None:
            return []
        found: Collected = []
        for item in collected:
            _, output, *_ = item
            if is_dead_letter(output) and output.system_stream == self.stream:
                found.append(item)
        return found

    def only_dead_letters(self, put: Write) -> Write:
        """The writer of the dead-letter stream, which tasks cannot send to."""

        def put_letter(task: str, envelope: Any) -> None:
            if not is_dead_letter(envelope):
                raise self.no_output(task)
            put(task, envelope)

        return put_letter

    def no_output(self, task: str) -> ConfigError:
        """The error for a task that sends to the dead-letter stream."""
        what = (
            "it holds bytes as they were found, and why they are there: send to another stream, or "
            "name another one here"
        )
        return self._config.error(
            DEAD_LETTERS, f"{self.stream} is the dead-letter stream, and {task} sent to it; {what}"
        )

    def _send(
        self, task: str, key: bytes | None, message: bytes | None, headers: Mapping[Any, Any] | None,
        source: IncomingMessageEnvelope | None, error: Exception, facts: Mapping[str, str],
    ) -> None:  # fmt: skip
        assert self.stream is not None
        letter = letter_headers(error, headers, source, {**facts, "task": task})
        self._collected.append(
            (task, OutgoingMessageEnvelope(self.stream, message, key, headers=letter), source, None, None)
        )
        self._letters.inc()

    def _warn(self, direction: str, stream: str, what: str) -> None:
        """Once per stream and direction: a stream that is wrong from its first message on would fill the
        log."""
        if self._warns and (direction, stream) not in self._warned:
            self._warned.add((direction, stream))
            fate = f"goes to {self.stream}" if self.stream is not None else "is dropped"
            log.warning("%s; it %s, as will others of %s, which are only counted", what, fate, stream)


def noting(
    dead_letters: DeadLetters, on_choice: Callable[[IncomingMessageEnvelope], object] | None
) -> Callable[[IncomingMessageEnvelope], object]:
    """``on_choice``, and a note of the message for the dead letters of what its task sends."""

    def note(envelope: IncomingMessageEnvelope) -> object:
        dead_letters.input = envelope
        return on_choice is not None and on_choice(envelope)

    return note


def _checked_stream(config: Config, systems: Systems) -> SystemStream | None:
    stream = dead_letter_stream(config)
    if stream is None:
        return None
    if stream in all_inputs(config):
        raise config.error(
            DEAD_LETTERS,
            f"{stream} is an input of this job, whose dead letters would come back to it: name another "
            "stream",
        )
    systems.factory(stream.system, key=DEAD_LETTERS)
    if not abilities_of(config, stream.system).keeps_headers:
        raise config.error(
            DEAD_LETTERS,
            f"a {kind_name(config, stream.system)} has no headers, so that the reasons would be lost: "
            "name a stream of another system",
        )
    for setting in ("samza.key.serde", "samza.msg.serde"):
        key = f"systems.{stream.system}.streams.{stream.stream}.{setting}"
        if config.text(key) not in (None, "bytes"):
            raise ConfigError(
                f"{key}: dead letters are the original bytes, no serde applies to {stream}: remove this key",
                key=key,
            )
    return stream


def _remedy(drop: str) -> str:
    return (
        f"to go on without such messages, set {DEAD_LETTERS}=SYSTEM.STREAM, which keeps them, or {drop}=true"
    )


def is_dead_letter(envelope: Any) -> bool:
    """True where a collected output is a dead letter."""
    return (
        isinstance(getattr(envelope, "headers", None), Mapping) and f"{LETTER}direction" in envelope.headers
    )
