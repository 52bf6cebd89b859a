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
    container = _started(path, values)
    store = container.tasks[0].context.store("s")
    for number in range(count):
        store.put(f"user-{number:06d}", _VALUE)
    container.stop()
    megabytes = count * (len("user-000000") + len(_VALUE) + 2) / 1e6
    best = again = float("inf")
    for _ in range(rounds):
        shutil.rmtree(path / "_jobs" / "bench-1" / "stores", ignore_errors=True)
        best = min(best, _start_seconds(path, values))
        again = min(again, _start_seconds(path, values))
    yield Figure(
        f"restore: {name}, from the changelog",
        megabytes / best,
        "MB/s",
        note=f"{count:,} entries in {best:.2f} s",
    )
    if name != "memory":
        yield Figure(f"restore: {name}, files of the last commit", again, "s", note=f"{count:,} entries")
    shutil.rmtree(path)


def _start_seconds(path: Path, values: dict[str, object]) -> float:
    began = time.perf_counter()
    container = _started(path, values)
    seconds = time.perf_counter() - began
    container.stop()
    return seconds
