"""Tracing of outputs as they are sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from streambench.container.outputs.collected import Collected
from streambench.container.outputs.dead_letters import is_dead_letter
from streambench.container.outputs.outgoing_batch import OutgoingBatch
from streambench.container.trace import Sent, Trace
from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.serde.streams import StreamSerdes
from streambench.system.copying import detached

Send = Callable[[Collected], None]
Note = Callable[[tuple[str, Any, IncomingMessageEnvelope | None, bytes | None, bytes | None]], Sent]


class Unencoded(bytes):
    """Bytes that the serde of their stream cannot encode, unlike those that it made."""


def traced_send(send: Send, serdes: StreamSerdes, trace: Trace) -> Send:
    """The function ``send``, which notes in ``trace`` what it has sent."""
    note = sent_noter(serdes, trace.at)
    append = trace.sent.append

    def traced(collected: Collected) -> None:
        if not trace.active:
            send(collected)
            return
        # Before it is sent: the task may change an object as soon as it is.
        noted = [note(item) for item in collected]
        for first, end, callback in trace.called:
            for each in noted[first:end]:
                each.callback = callback
        trace.called.clear()
        trace.refused.clear()
        send(collected)
        if trace.refused:
            noted = with_fates(noted, collected, trace, note)
        for each in noted:
            append(each)

    return traced


def with_fates(noted: list[Sent], collected: Collected, trace: Trace, note: Note) -> list[Sent]:
    """The notes of what was collected, some of which was refused when it was sent. Dead letters of that have
    been added to what was collected."""
    refused = set(map(id, trace.refused))
    letters = [note(item) for item in collected[len(noted) :]]
    for each in letters:
        each.fate = "letter"
    found: list[Sent] = []
    for (_, output, *_), each in zip(collected, noted + letters, strict=True):
        if id(output) in refused:
            each.fate = "cut" if each.is_letter else "refused"
        found += split_by_fate(each)
    return found


def split_by_fate(sent: Sent) -> list[Sent]:
    """A note of a batch as two: of what was sent of it, and of what was refused. Any other is left whole."""
    batch = sent.message
    if not (isinstance(batch, OutgoingBatch) and batch.refused):
        return [sent]
    refused = replace(sent, message=batch.rows(batch.refused), fate="refused")
    if len(batch.refused) == len(batch):
        return [refused]
    return [replace(sent, message=batch.without(batch.refused)), refused]


def sent_noter(serdes: StreamSerdes, at: Callable[[], IncomingMessageEnvelope | int]) -> Note:
    """A function that makes a note of an output that was collected. ``at``: the place of one without an
    input."""
    known: dict[SystemStream, tuple[Serde | None, Serde | None]] = {}

    def serdes_of(stream: SystemStream) -> tuple[Serde | None, Serde | None]:
        found = known.get(stream)
        if found is None:
            found = known[stream] = serdes.for_stream(stream)
        return found

    def note(item: tuple[str, Any, IncomingMessageEnvelope | None, bytes | None, bytes | None]) -> Sent:
        task, output, origin, message, key = item
        place = at() if origin is None else origin
        if message is not None and serdes_of(output.system_stream) == (None, None):
            return Sent(
                place, task, output.system_stream, key, message, output.partition, None, output.timestamp
            )
        if isinstance(output, OutgoingBatch):
            return Sent(place, task, output.stream, None, output, None, None)
        if not isinstance(output, OutgoingMessageEnvelope) or not isinstance(
            output.system_stream, SystemStream
        ):
            return Sent(place, task, SystemStream("?", "?"), None, None, None, None)
        if is_dead_letter(output):
            place = at()  # its origin may be a message as it was read, which is not the chosen one
        stream = output.system_stream
        key_serde, message_serde = serdes_of(stream)
        return Sent(
            place, task, stream, _kept(key_serde, output.key), _kept(message_serde, output.message),
            output.partition, output.partition_key, output.timestamp,
            None if output.headers is None else dict(output.headers),
        )  # fmt: skip

    return note


def _kept(serde: Serde | None, value: Any) -> Any:
    """A key or message as it leaves: encoded, else a copy. Also a copy where it cannot be encoded, so that
    sending the copy refuses it, too."""
    if value is None:
        return None
    try:
        # A copy of the right size: some encoders return bytes from a buffer that is larger.
        return detached(value) if serde is None else b"%b" % serde.to_bytes(value)
    except Exception:
        try:
            return Unencoded(value) if type(value) is bytes else detached(value)
        except SerdeError:
            return value
