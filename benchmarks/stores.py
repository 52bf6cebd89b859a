"""Speed of stores, as a task uses them: a counter per key, got and put, in memory and in RocksDB; and how
fast they are restored."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import streambench as sb
from streambench.system.systems import Systems

from .report import Figure

_IN = sb.SystemStream("log", "in")
_HOT, _MANY = 500, 50_000
_PER_COMMIT = 20_000
_VALUE = "x" * 100


class Idle(sb.StreamTask):
    """A task that does nothing: its store is used from outside."""

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        pass


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """Get and put per second, and restored MB per second, of the best round."""
    kinds = {
        "memory": {"stores.s.factory": "memory"},
        "memory, with ttl": {"stores.s.factory": "memory", "stores.s.ttl.ms": 3_600_000},
        "rocksdb": {"stores.s.factory": "rocksdb"},
        "rocksdb, no cache": {"stores.s.factory": "rocksdb", "stores.s.object.cache.size": 0},
    }
    for name, kind in kinds.items():
        for changelog, values in (
            ("no changelog", {**kind, "stores.s.changelog": "none"}),
            ("changelog", kind),
        ):
            for keys in (_HOT, _MANY):
                rate = max(_count(directory, values, keys, count // 5) for _ in range(rounds))
                yield Figure(f"store: {name}, {changelog}, {keys:,} keys", rate / 1e3, "k get+put/s")
    for name in ("memory", "rocksdb"):
        yield from _restore(directory, kinds[name], name, count // 5, rounds)
        for changes in (1, 10):
            yield from _snapshot(directory, kinds[name], name, changes, count // 5, rounds)


def _started(directory: Path, values: dict[str, object]) -> sb.Container:
    config = sb.Config(
        {
            "job.name": "bench", "task.inputs": _IN, "task.commit.ms": -1,
            "systems.log.samza.factory": "log", "systems.log.path": directory,
            "stores.s.key.serde": "string", "stores.s.msg.serde": "json", **values,
        }
    )  # fmt: skip
    systems = Systems(config)
    systems.create(_IN, 1)
    systems.close()
    container = sb.Container(config, Idle)
    container.start()
    return container


def _count(directory: Path, values: dict[str, object], keys: int, count: int) -> float:
    path = directory / "stores"
    container = _started(path, values)
    store = container.tasks[0].context.store("s")
    get, put = store.get, store.put
    names = [f"user-{number * 7919 % keys:06d}" for number in range(count)]
    began = time.perf_counter()
    for at in range(0, count, _PER_COMMIT):
        for name in names[at : at + _PER_COMMIT]:
            put(name, (get(name) or 0) + 1)
        container.commit()
    seconds = time.perf_counter() - began
    container.stop()
    shutil.rmtree(path)
    return count / seconds


def _restore(
    directory: Path, values: dict[str, object], name: str, count: int, rounds: int
) -> Iterator[Figure]:
    path = directory / "stores"
    values = {**values, "stores.s.snapshot.changes": 0}
    _fill(path, values, count, 1)
    megabytes = count * (len("user-000000") + len(_VALUE) + 2) / 1e6
    best = again = float("inf")
    for _ in range(rounds):
        shutil.rmtree(path / "_jobs" / "bench-1" / "stores", ignore_errors=True)
        best = min(best, _start_seconds(path, values)[0])
        again = min(again, _start_seconds(path, values)[0])
    yield Figure(
        f"restore: {name}, from the changelog",
        megabytes / best,
        "MB/s",
        note=f"{count:,} entries in {best:.2f} s",
    )
    if name != "memory":
        yield Figure(f"restore: {name}, files of the last commit", again, "s", note=f"{count:,} entries")
    shutil.rmtree(path)


def _snapshot(
    directory: Path, values: dict[str, object], name: str, changes: int, count: int, rounds: int
) -> Iterator[Figure]:
    """The CPU time of a start without local files, from a snapshot and from the whole changelog, and that
    of writing the snapshot."""
    path = directory / "stores"
    values = {**values, "stores.s.clean.on.container.start": True}
    whole = {**values, "stores.s.snapshot.changes": 0}
    _fill(path, whole, count, changes)
    container = _started(path, values)
    began = time.process_time()
    container.stop()
    wrote = time.process_time() - began
    assert list((path / "bench-1-s-changelog").glob("*/snapshot-*"))
    with_snapshot = without = float("inf")
    for _ in range(rounds):
        without = min(without, _start_seconds(path, whole)[1])
        with_snapshot = min(with_snapshot, _start_seconds(path, values)[1])
    times = "once" if changes == 1 else f"{changes} times"
    yield Figure(
        f"restore: {name}, from a snapshot / from the whole changelog, each key changed {times}",
        with_snapshot / without,
        "of the CPU time",
        note=f"{count:,} entries in {with_snapshot:.2f} s, {without:.2f} s; written in {wrote:.2f} s",
    )
    shutil.rmtree(path)


def _fill(path: Path, values: dict[str, object], count: int, changes: int) -> None:
    """Put entries, each so many times, with a commit for each time."""
    container = _started(path, values)
    store = container.tasks[0].context.store("s")
    for _ in range(changes):
        for number in range(count):
            store.put(f"user-{number:06d}", _VALUE)
        container.commit()
    container.stop()


def _start_seconds(path: Path, values: dict[str, object]) -> tuple[float, float]:
    """The wall and CPU time of a start."""
    began, cpu_began = time.perf_counter(), time.process_time()
    container = _started(path, values)
    seconds = time.perf_counter() - began, time.process_time() - cpu_began
    container.abandon()
    return seconds
