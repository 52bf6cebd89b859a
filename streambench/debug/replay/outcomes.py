"""The outcome of a session: its outputs, stores and offsets as short literals, for a test to compare with."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from streambench.debug.control.session import Session
from streambench.debug.replay.literals import plain_list, plain_mapping, plain_value
from streambench.errors import StreambenchError


class Outcome(Struct, frozen=True):
    """The outcome of a session up to its position. ``outputs``: per stream the partition, key and message of
    each output, in their order. ``stores``: per task and store the entries. ``offsets``: per task and
    partition the last message processed.

    A long value stands there as a digest, and so does what follows the first entries of a long list."""

    outputs: dict[str, list[Any]]
    stores: dict[str, dict[str, dict[Any, Any]]]
    offsets: dict[str, dict[str, str]]


def outcome(session: Session) -> Outcome:
    """The outcome of a session at its position. Raises StreambenchError where its history does not reach back
    to the begin."""
    history = session.history
    if history is None or history.is_dropped:
        raise StreambenchError(
            f"{session.name}: the first outputs are not in the history any more: give it more memory, "
            "debug.open(path, history=MB)"
        )
    outputs: dict[str, list[Any]] = {}
    for each in session.outputs():
        shown = each.partition, plain_value(each.key), plain_value(each.message)
        outputs.setdefault(each.stream, []).append(shown)
    # Per task and store, keys and values as plain data; a task without stores is left out.
    stores = {
        task: plain_mapping(
            {
                name: plain_mapping({plain_value(key): plain_value(value) for key, value in entries.items()})
                for name, entries in of_task.items()
            }
        )
        for task, of_task in session.stores().items()
        if of_task
    }
    offsets = {
        task: plain_mapping({str(ssp): offset for ssp, offset in of_task.items()})
        for task, of_task in session.offsets().items()
    }
    return Outcome(
        {stream: plain_list(outputs[stream]) for stream in sorted(outputs)},
        plain_mapping(stores),
        plain_mapping(offsets),
    )
