"""The work that is measured, as a stream task and as a bare Python loop over the same messages."""

from __future__ import annotations

import time
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import orjson

import streambench as sb

SKIPPED = 7
"""Messages with this n are filtered out."""

OUT = sb.SystemStream("bench", "out")


class Empty(sb.StreamTask):
    """Does nothing: what remains is the container's own cost."""

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        pass


class PassThrough(sb.StreamTask):
    """Sends on what it gets."""

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        collector.send(sb.OutgoingMessageEnvelope(OUT, envelope.message, envelope.key))


class JsonCount(sb.StreamTask):
    """Parses, filters, keeps a running count per user, and sends it as JSON."""

    def __init__(self) -> None:
        self.counts: MutableMapping[str, Any] = {}

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        row = orjson.loads(envelope.message)
        if row["n"] == SKIPPED:
            return
        user = row["user"]
        count = self.counts[user] = self.counts.get(user, 0) + 1
        collector.send(
            sb.OutgoingMessageEnvelope(OUT, orjson.dumps({"user": user, "count": count}), user.encode())
        )


class _FileSink:
    """Output of the bare loops: a file, a thousand messages at a time."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._waiting: list[bytes] = []

    def put(self, message: bytes) -> None:
        waiting = self._waiting
        waiting.append(message)
        if len(waiting) >= 1000:
            self._file.write(b"".join(waiting))
            waiting.clear()

    def close(self) -> None:
        self._file.write(b"".join(self._waiting))
        self._file.close()


def bare_pass_through(messages: Sequence[bytes], directory: Path) -> float:
    """Seconds of CPU for a loop that calls a function which hands each message to the sink."""
    sink = _FileSink(directory / "bare")
    seconds = _loop(messages, sink.put)
    sink.close()
    return seconds


def bare_json_count(messages: Sequence[bytes], directory: Path) -> float:
    """Seconds of CPU for JsonCount as a loop."""
    sink = _FileSink(directory / "bare")
    counts: dict[str, int] = {}

    def process(message: bytes) -> None:
        row = orjson.loads(message)
        if row["n"] == SKIPPED:
            return
        user = row["user"]
        count = counts[user] = counts.get(user, 0) + 1
        sink.put(orjson.dumps({"user": user, "count": count}))

    seconds = _loop(messages, process)
    sink.close()
    return seconds


def _loop(messages: Sequence[bytes], process: Callable[[bytes], Any]) -> float:
    began = time.process_time()
    for message in messages:
        process(message)
    return time.process_time() - began
