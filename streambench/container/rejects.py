"""What becomes of messages that cannot be decoded, and of outputs that cannot be sent: nothing of them is dropped without a trace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from streambench.config import Config
from streambench.container.handles import Outgoing
from streambench.container.outlet import Put
from streambench.errors import ConfigError, MessageTooLargeError, SerdeError, described, shortened
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.planning.plan import all_inputs
from streambench.serde.letters import LETTER, as_bytes, letter_headers, shorter
from streambench.serde.streams import DEAD_LETTERS, dead_letter_stream
from streambench.system.systems import Systems, builtin_kind

log = logging.getLogger(__name__)

_DROP_INPUTS = "task.drop.deserialization.errors"
_DROP_OUTPUTS = "task.drop.serialization.errors"


class PassedOver(Struct, frozen=True):
    """How many messages a container did not process, or did not send, and went on.

    ``undecodable`` inputs and ``unserialisable`` outputs: all of them are in the dead-letter stream (``dead_letters`` says how many that
    makes) or were dropped. ``ignored``: failures of tasks that ``task.ignored.exceptions`` names.
    """

    undecodable: int = 0
    unserialisable: int = 0
    dead_letters: int = 0
    ignored: int = 0

    def __add__(self, other: PassedOver) -> PassedOver:
        return PassedOver(
            self.undecodable + other.undecodable, self.unserialisable + other.unserialisable,
            self.dead_letters + other.dead_letters, self.ignored + other.ignored,
        )  # fmt: skip

    def __bool__(self) -> bool:
        return self != PassedOver()

    def __str__(self) -> str:
        """In words; empty where there is nothing to say."""
        fate = "dead-lettered" if self.dead_letters else "dropped"
        parts = [
            f"{count} {what}"
            for count, what in (
                (self.undecodable, f"undecodable {'message' if self.undecodable == 1 else 'messages'} {fate}"),
                (self.unserialisable, f"unserialisable {'output' if self.unserialisable == 1 else 'outputs'} {fate}"),
                (self.ignored, f"{'failure' if self.ignored == 1 else 'failures'} ignored"),
            )
            if count
        ]
        return ", ".join(parts)


class Rejects:
    """Decides, as the configuration says: the container fails (the default), drops and counts, or writes a dead letter.

    A dead letter is the original message: its key and bytes as they were read, with its headers and with others that say why and whence
    (``dead-letter.reason``, ``.exception``, ``.task``, ``.direction`` in or out, ``.source``, ``.offset``, ``.timestamp``, and for an
    output the ``.stream`` it was to go to). A broadcast message makes one dead letter, not one per task. Dead letters are sent by being
    added to what was collected in this iteration, so that they leave by the same door and are covered by the same commit as any output.
    One that is too large for its stream is cut (``serde.letters.shorter``).

    ``stream``: that of the dead letters, None where there is none. ``input``: the message of this iteration, for the dead letters of
    outputs; whoever drives the tasks sets it where ``notes_input``. ``unsent``: how many outputs and letters their systems did not take.
    """

    def __init__(self, config: Config, systems: Systems, outgoing: Outgoing, metrics: MetricsRegistry) -> None:
        """Raises ConfigError where the dead-letter stream cannot be one."""
        self.stream = _checked_stream(config, systems)
        self._config = config
        self._outgoing = outgoing
        self._drop_inputs = config.boolean(_DROP_INPUTS)
        self._drop_outputs = config.boolean(_DROP_OUTPUTS)
        self.notes_input = self.stream is not None
        self.input: IncomingMessageEnvelope | None = None
        self.unsent = 0
        self._inputs = metrics.counter("deserialization-errors", "consumers")
        self._outputs = metrics.counter("serialization-errors", "producers")
        self._letters = metrics.counter("dead-letters", "container")
        self._warned: set[tuple[str, str]] = set()
        if self.stream is not None and (self._drop_inputs or self._drop_outputs):
            key = _DROP_INPUTS if self._drop_inputs else _DROP_OUTPUTS
            log.warning("%s has no effect: %s is set, so nothing is dropped", key, DEAD_LETTERS)

    @property
    def counts(self) -> PassedOver:
        """What was passed over so far."""
        return PassedOver(self._inputs.count, self._outputs.count, self._letters.count)

    def undecodable(self, task: str, envelope: IncomingMessageEnvelope, error: SerdeError) -> None:
        """See to an input, as it was read, that ``task`` was to process. Raises ``error`` where that is to end the container."""
        if self.stream is None and not self._drop_inputs:
            raise SerdeError(f"{error}; {_remedy(_DROP_INPUTS)}") from error.__cause__
        self._inputs.inc()
        self._warn("in", str(envelope.ssp.system_stream), str(error))
        if self.stream is not None:
            self._send(task, as_bytes(envelope.key), as_bytes(envelope.message), envelope.headers, envelope, error, {"direction": "in"})

    def unserialisable(self, task: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
        """See to an output of ``task``. Raises SerdeError, or MessageTooLargeError, where that is to end the container."""
        stream = str(envelope.system_stream)
        key, message = shortened(envelope.key), shortened(envelope.message)
        kind = MessageTooLargeError if isinstance(error, MessageTooLargeError) else SerdeError
        if envelope.system_stream == self.stream and is_letter(envelope):
            cut = shorter(envelope) if kind is MessageTooLargeError else None
            if cut is None:
                raise kind(f"{DEAD_LETTERS}: {stream} does not take this dead letter (key {key}, message {message}): {error}") from error
            self.unsent += 1
            self._outgoing.append((task, cut, self.input, None, None))
            return
        what = f"{task}: what it sent to {stream} cannot be sent (key {key}, message {message}): {described(error)}"
        if self.stream is None and not self._drop_outputs:
            raise kind(f"{what}; {_remedy(_DROP_OUTPUTS)}") from error
        self.unsent += 1
        self._outputs.inc()
        self._warn("out", stream, what)
        if self.stream is not None:
            facts = {"direction": "out", "stream": stream}
            self._send(task, as_bytes(envelope.key), as_bytes(envelope.message), envelope.headers, self.input, error, facts)

    def letters_in(self, collected: Outgoing) -> Outgoing:
        """The dead letters in what was collected, which stay where a callback fails: they are of inputs that are passed over for good,
        also where they were found out by that callback, because it was the first to look into a batch."""
        if self.stream is None:
            return []
        return [item for item in collected if is_letter(item[1]) and item[1].system_stream == self.stream]

    def only_letters(self, put: Put) -> Put:
        """What takes the messages for the dead-letter stream, which is none of the tasks' own."""

        def put_letter(task: str, envelope: Any) -> None:
            if not is_letter(envelope):
                raise self.no_output(task)
            put(task, envelope)

        return put_letter

    def no_output(self, task: str) -> ConfigError:
        """The error for a task that sends to the dead-letter stream."""
        what = "it holds bytes as they were found, and why they are there: send to another stream, or name another one here"
        return self._config.error(DEAD_LETTERS, f"{self.stream} is the dead-letter stream, and {task} sent to it; {what}")

    def _send(
        self, task: str, key: bytes | None, message: bytes | None, headers: Mapping[Any, Any] | None,
        source: IncomingMessageEnvelope | None, error: Exception, facts: Mapping[str, str],
    ) -> None:  # fmt: skip
        assert self.stream is not None
        letter = letter_headers(error, headers, source, {**facts, "task": task})
        self._outgoing.append((task, OutgoingMessageEnvelope(self.stream, message, key, headers=letter), source, None, None))
        self._letters.inc()

    def _warn(self, direction: str, stream: str, what: str) -> None:
        """Once per stream and direction: a stream that is wrong from its first message on would fill the log."""
        if (direction, stream) not in self._warned:
            self._warned.add((direction, stream))
            fate = f"goes to {self.stream}" if self.stream is not None else "is dropped"
            log.warning("%s; it %s, as will others of %s, which are only counted", what, fate, stream)


def noting(rejects: Rejects, on_choice: Callable[[IncomingMessageEnvelope], object] | None) -> Callable[[IncomingMessageEnvelope], object]:
    """``on_choice``, and a note of the message for the dead letters of what its task sends."""

    def note(envelope: IncomingMessageEnvelope) -> None:
        rejects.input = envelope
        if on_choice is not None:
            on_choice(envelope)

    return note


def _checked_stream(config: Config, systems: Systems) -> SystemStream | None:
    stream = dead_letter_stream(config)
    if stream is None:
        return None
    if stream in all_inputs(config):
        raise config.error(DEAD_LETTERS, f"{stream} is an input of this job, whose dead letters would come back to it: name another stream")
    systems.factory(stream.system, key=DEAD_LETTERS)
    if builtin_kind(config, stream.system) == "file":
        raise config.error(DEAD_LETTERS, "a file has no headers, so that the reasons would be lost: name a stream of another system")
    for setting in ("samza.key.serde", "samza.msg.serde"):
        key = f"systems.{stream.system}.streams.{stream.stream}.{setting}"
        if config.get(key, "bytes").strip() not in ("", "bytes"):
            raise ConfigError(f"{key}: dead letters are the original bytes, no serde applies to {stream}: remove this key", key=key)
    return stream


def _remedy(drop: str) -> str:
    return f"to go on without such messages, set {DEAD_LETTERS}=SYSTEM.STREAM, which keeps them, or {drop}=true"


def is_letter(envelope: Any) -> bool:
    """Whether what was collected is a dead letter."""
    return isinstance(getattr(envelope, "headers", None), Mapping) and f"{LETTER}direction" in envelope.headers
