"""A small job that has run to its end, and what is made of its files: each byte flipped, each file cut and
deleted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import orjson

from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import StreambenchError, described
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.log import open_log, segment
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import ManualClock

JOB = "damaged-1"
STREAMS = ("clicks", "counts", "damaged-1-state-changelog")

Row = tuple[int, bytes | None, bytes | None]


class Counts(StreamTask):
    """Counts per key, and sends the count."""

    def init(self, context: TaskContext) -> None:
        self.state = context.store("state")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        count = 1 + (self.state.get(envelope.key) or 0)
        self.state.put(envelope.key, count)
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "counts"), count, key=envelope.key))


def config(directory: Path, guarantee: str) -> Config:
    return Config(
        {
            "job.name": "damaged",
            "task.inputs": "log.clicks",
            "task.processing.guarantee": guarantee,
            "task.checkpoint.history": "5",
            "stores.state.factory": "memory",
            "systems.log.samza.factory": "log",
            "systems.log.path": str(directory),
            "systems.log.samza.offset.default": "oldest",
            "systems.log.samza.msg.serde": "json",
            "systems.log.samza.key.serde": "string",
        }
    )


def run(directory: Path, guarantee: str) -> None:
    """Run the job until it has caught up."""
    container = Container(config(directory, guarantee), Counts, clock=ManualClock())
    try:
        container.start()
        container.run("caught-up")
        container.stop()
    finally:
        container.abandon()


def build(directory: Path, guarantee: str) -> None:
    """Run the job three times; every stream has two segments that are sealed, with an index, and one that is
    appended to."""
    with mock.patch.object(segment, "_INDEX_EVERY", 1):
        _build(directory, guarantee)


def _build(directory: Path, guarantee: str) -> None:
    with open_log(directory) as streams:
        streams.create("clicks", 2)
        streams.grow("clicks", 3)
    for number in range(3):
        send(directory, number)
        run(directory, guarantee)
        if number < 2:
            with open_log(directory) as streams:
                for stream in STREAMS:
                    streams.partition(stream, 0).roll()


def send(directory: Path, number: int) -> None:
    """Append two messages to the input."""
    with open_log(directory) as streams:
        clicks = streams.partition("clicks", 0)
        clicks.append([b"a", b"b"], [orjson.dumps({"n": number})] * 2)
        clicks.flush()


class Found(NamedTuple):
    """What can be read: rows per stream, checkpoints, and what is known of the producers."""

    rows: dict[str, list[Row]]
    last: dict[str, Any]
    producers: dict[str, Any]


def rows_of(streams: Any, stream: str) -> list[Row]:
    partition = streams.partition(stream, 0)
    batches = partition.read(partition.bounds()[0])
    return [(row["offset"], row["key"], row["value"]) for batch in batches for row in batch.to_pylist()]


def found(directory: Path, guarantee: str, of: Path | None = None) -> Found:
    """Read everything, or only what a file (below the directory) belongs to."""
    rows, last, producers = {}, {}, {}
    top = None if of is None else of.relative_to(directory).parts[0]
    with open_log(directory) as streams:
        for stream in STREAMS:
            if top in (None, stream):
                assert stream in streams.streams()
                rows[stream] = rows_of(streams, stream)
                partition = streams.partition(stream, 0)
                producers[stream] = partition.last_of(producer_of(directory))
                if stream == "clicks":
                    rows["partitions"] = [(streams.stream(stream).partitions, None, None)]
    if top in (None, "_jobs"):
        last = read_last(directory, guarantee)
    return Found(rows, last, producers)


def read_last(directory: Path, guarantee: str) -> dict[str, Any]:
    manager = checkpoint_manager(config(directory, guarantee), JOB)
    try:
        return {
            task: ({str(ssp): offset for ssp, offset in each.offsets.items()}, dict(each.changelogs))
            for task, each in manager.read_last().items()
        }
    finally:
        manager.close()


def producer_of(directory: Path) -> str:
    """The name under which the job's commits are written to streams."""
    first = sorted((directory / "_jobs" / JOB / "generations").glob("*.json"))
    for path in first:
        try:
            return f"{JOB}/{orjson.loads(path.read_bytes())['body']['journal']}/c0"
        except (orjson.JSONDecodeError, KeyError, TypeError):
            continue
    return ""


class Change(NamedTuple):
    """Something done to a file: ``flip`` of a bit of the byte at ``at``, ``cut`` there, or ``delete``."""

    path: Path
    kind: str
    at: int = 0

    def make(self) -> None:
        if self.kind == "delete":
            self.path.unlink()
            return
        data = bytearray(self.path.read_bytes())
        if self.kind == "flip":
            data[self.at] ^= 1 << self.at % 7
        else:
            del data[self.at :]
        self.path.write_bytes(data)


def changes(directory: Path) -> Iterator[Change]:
    """Every change to every file."""
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield Change(path, "delete")
            for at in range(path.stat().st_size):
                yield Change(path, "flip", at)
                yield Change(path, "cut", at)


class Judge:
    """Makes changes to copies of a job's files, and judges what comes of each."""

    def __init__(self, directory: Path, guarantee: str) -> None:
        self.guarantee = guarantee
        self.template, self.directory = directory / "template", directory / "copy"
        build(self.template, guarantee)
        shutil.copytree(self.template, self.directory)
        self.whole = found(self.directory, guarantee)

    def restore(self, path: Path) -> None:
        """Have the files again as they were, those that a file belongs to."""
        part = path.relative_to(self.directory).parts[0]
        shutil.rmtree(self.directory / part)
        shutil.copytree(self.template / part, self.directory / part)

    def judge(self, change: Change, *, repair: bool = False) -> str:
        """What comes of a change: ``intact``, ``earlier commit``, ``named error``; anything else is wrong,
        and says what it is."""
        try:
            change.make()
            return self._judge(change, repair)
        finally:
            self.restore(change.path)

    def _judge(self, change: Change, repair: bool) -> str:
        stream = change.path.relative_to(self.directory).parts[0]
        try:
            there = found(self.directory, self.guarantee, change.path)
        except StreambenchError as error:
            if str(change.path.parent) not in str(error):
                return f"WRONG: the error does not name the file: {error}"
            after = self._after_error(stream, repair) if stream in STREAMS else ""
            return after or "named error"
        except Exception as error:
            return f"WRONG: a raw error: {described(error)}"
        if stream == "_jobs":
            if there.last == self.whole.last:
                return "intact"
            return self._gone_back() if change.kind == "delete" else f"WRONG: {there.last}"
        if there.rows[stream] != self.whole.rows[stream] or there.rows.get("partitions") not in (
            None,
            self.whole.rows["partitions"],
        ):
            return f"WRONG: {there.rows}"
        if there.producers[stream] != self.whole.producers[stream]:
            return f"WRONG: the producer's last append is {there.producers[stream]}"
        return self._appended(stream) or "intact"

    def _gone_back(self) -> str:
        """A record is gone: the job goes on from an earlier one and writes outputs again, unless it was to
        write them once."""
        try:
            run(self.directory, self.guarantee)
        except StreambenchError as error:
            return (
                "named error"
                if str(self.directory) in str(error) or "log.counts.0" in str(error)
                else f"WRONG: {error}"
            )
        finally:
            for stream in STREAMS:
                self.restore(self.directory / stream)
        with open_log(self.directory) as streams:
            counts = [
                {key: value for _, key, value in rows}
                for rows in (rows_of(streams, "counts"), self.whole.rows["counts"])
            ]
        if self.guarantee == "exactly-once" or counts[0] != counts[1]:
            return f"WRONG: {counts}"
        return "earlier commit"

    def _appended(self, stream: str) -> str:
        """Appending must not touch what is there."""
        expected = self.whole.rows[stream]
        with open_log(self.directory) as streams:
            offsets = streams.partition(stream, 0).append([None], [b"more"])
            if (
                offsets != range(len(expected), len(expected) + 1)
                or rows_of(streams, stream)[:-1] != expected
            ):
                return f"WRONG: the append got {offsets}"
        return ""

    def _after_error(self, stream: str, repair: bool) -> str:
        expected = self.whole.rows[stream]
        for step in ("append", "repair") if repair else ("append",):
            try:
                with open_log(self.directory) as streams:
                    partition = streams.partition(stream, 0)
                    if step == "repair":
                        losses = partition.repair()
                        if partition.damage():
                            return f"WRONG: it is damaged after a repair: {partition.damage()}"
                        lost = {
                            offset
                            for each in losses
                            if each.first is not None
                            for offset in range(each.first, each.last + 1)
                        }
                        left = [row for row in rows_of(streams, stream) if row[2] != b"more"]
                        if any(row not in expected for row in left):
                            return f"WRONG: after the repair there is {left}"
                        if any(row not in left and row[0] not in lost for row in expected):
                            return f"WRONG: after the repair there is only {left}, and {losses} were told"
                    offsets = partition.append([None], [b"more"])
                    if offsets is None or offsets.start < len(expected):
                        return f"WRONG: {step}: the offsets {offsets} were given twice"
                    if step == "repair" and rows_of(streams, stream)[-1][0] != offsets.start:
                        return "WRONG: what was appended after the repair cannot be read"
            except StreambenchError as error:
                if (
                    step == "repair"
                    and "stream.json" not in str(error)
                    and "partitions.json" not in str(error)
                ):
                    return f"WRONG: not repaired: {error}"
            except Exception as error:
                return f"WRONG: {step}: a raw error: {described(error)}"
        return ""
