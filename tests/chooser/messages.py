"""Messages as text, ``sys.a.0@5``: so that a test reads as what goes in and what comes out."""

from __future__ import annotations

from streambench.chooser import MessageChooser, PartitionMetadata
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition

A, B, C = (SystemStream("sys", name) for name in "abc")


def ssp(text: str) -> SystemStreamPartition:
    return SystemStreamPartition.parse(f"sys.{text}")


def put(chooser: MessageChooser, *messages: str) -> None:
    """Hand over messages, written ``a.0@5``."""
    for message in messages:
        partition, _, offset = message.partition("@")
        chooser.update(IncomingMessageEnvelope(ssp(partition), offset, None, None))


def take(chooser: MessageChooser) -> str | None:
    """The next choice, written ``a.0@5``."""
    envelope = chooser.choose()
    return None if envelope is None else f"{envelope.ssp.stream}.{envelope.ssp.partition}@{envelope.offset}"


def take_all(chooser: MessageChooser) -> list[str]:
    """All choices up to the first None."""
    return list(iter(lambda: take(chooser), None))


def started(chooser: MessageChooser, *partitions: str) -> MessageChooser:
    """The chooser with partitions registered, written ``a.0`` or, with a first offset other than 0,
    ``a.0@5``."""
    for partition in partitions:
        name, _, offset = partition.partition("@")
        chooser.register(ssp(name), offset or "0")
    chooser.start()
    return chooser


def held(chooser: MessageChooser) -> dict[str, str]:
    """Who waits at present and is held back, and by what."""
    return held_at(chooser, None)


def held_at(chooser: MessageChooser, chosen: IncomingMessageEnvelope | None) -> dict[str, str]:
    """Who was held back when ``chosen`` was chosen just now, and by what."""
    told = chooser.explain(chosen)
    return {_short(each.ssp): told.held[each.ssp] for each in told.waiting if each.ssp in told.held}


def waiting(chooser: MessageChooser) -> set[str]:
    return {_short(each.ssp) for each in chooser.explain(None).waiting}


def queue(chooser: MessageChooser) -> list[str]:
    """Who comes next, in this order, if nothing else comes; written ``a.0@5``."""
    return [f"{_short(each.ssp)}@{each.offset}" for each in chooser.explain(None).queue]


def rule_of(chooser: MessageChooser) -> str:
    """Have it choose, and say by what rule it did."""
    return chooser.explain(chooser.choose()).rule


def _short(ssp: SystemStreamPartition) -> str:
    return f"{ssp.stream}.{ssp.partition}"


def until(newest: int | None) -> PartitionMetadata:
    """A partition that held messages from 0 to ``newest`` at the start; None for none."""
    return (
        PartitionMetadata(None, None, "0")
        if newest is None
        else PartitionMetadata("0", str(newest), str(newest + 1))
    )
