"""Step 2: the collected output of tasks, which is not sent yet."""

from __future__ import annotations

from typing import Any

from streambench.model import IncomingMessageEnvelope

Collected = list[tuple[str, Any, IncomingMessageEnvelope | None, bytes | None, bytes | None]]
"""Output that was collected and is not sent yet: the task that did; an OutgoingMessageEnvelope, or the
OutgoingBatch of ``send_batch``; the input that it was made from, None for none; and message and key once more
if it is *plain*: bytes, with a key that is bytes or none and nothing else that its task could
still change."""


def collected_before(
    collected: Collected, envelope: IncomingMessageEnvelope | None, task: str | None = None
) -> int:
    """The number of outputs that were collected before this input, or before ``task`` got it."""
    for at, (source, _, origin, _, _) in enumerate(collected):
        if origin is envelope and task in (None, source):
            return at
    return len(collected)
