"""Processes of their own that use one log: what they run is here, so that they import no test."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from streambench.system.log import open_log

SPAWN = multiprocessing.get_context("spawn")


def started(run: Callable[..., None], *arguments: Any, count: int) -> list[BaseProcess]:
    """So many processes, each with its number as the last argument."""
    processes: list[BaseProcess] = [
        SPAWN.Process(target=run, args=(*arguments, number)) for number in range(count)
    ]
    for process in processes:
        process.start()
    return processes


def append_many(directory: Path, batches: int, start: Barrier, writer: int) -> None:
    partition = open_log(directory, segment_bytes=20_000).partition("clicks", 0)
    start.wait()
    for number in range(batches):
        partition.append([b"%d" % writer] * 2, [b"%d" % (2 * number), b"%d" % (2 * number + 1)])
    partition.flush()


def create(directory: Path, start: Barrier, results: Any, number: int) -> None:
    start.wait()
    results[number] = open_log(directory).create("clicks", 2)
