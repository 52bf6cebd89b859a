"""History of deployments: ``deployments.jsonl`` in the job's directory, with a line where a round begins
and one where it ends. A round whose driver was killed has the first one only."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from streambench.config import Config
from streambench.errors import StreamSystemError
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.plan import job_name
from streambench.redaction import redacted
from streambench.spark.result import DeployResult
from streambench.spark.running import is_being_deployed

log = logging.getLogger(__name__)

_NAME = "deployments.jsonl"
_LARGEST = 4 << 20
_KEPT = 1_000


class ContainerRun(Struct, frozen=True, kw_only=True):
    """One container of a round. ``offsets``: per input partition the first offset that was not processed
    yet, before and after; ``error``: None where it did not fail; ``log``: that of its executor, where it has
    one."""

    container: int
    messages: int
    seconds: float
    attempt: int
    offsets: dict[str, tuple[str, str]]
    error: str | None = None
    log: str = ""


Outcome = Literal["ended", "interrupted", "running", "did not end"]


class Run(Struct, frozen=True, kw_only=True):
    """One round of a deployment that had something to do. ``began_ms``: milliseconds since 1970.

    ``outcome``: ``did not end`` where its driver was killed; of such a round, and of one that was
    interrupted, what its containers did is not known. ``backfill``: the name of the backfill, where it was
    one."""

    generation: int | None
    began_ms: int
    master: str
    seconds: float = 0.0
    messages: int = 0
    containers: list[ContainerRun] = []
    outcome: Outcome = "ended"
    backfill: str = ""

    @property
    def failed(self) -> int:
        """Number of containers that failed."""
        return sum(each.error is not None for each in self.containers)

    @property
    def rate(self) -> float:
        """Messages per second, the start of Spark included."""
        return self.messages / self.seconds if self.seconds else 0.0


def note_run(directory: Path | None, result: DeployResult, began_ms: int, backfill: str = "") -> None:
    """Append the end of a round to the history, as ``note``."""
    containers = [
        ContainerRun(
            container=each.number,
            messages=each.messages,
            seconds=round(each.seconds, 3),
            attempt=each.attempt,
            offsets={str(ssp): pair for ssp, pair in each.offsets.items()},
            error=None if each.failure is None else redacted(each.failure.text),
            log=each.log,
        )
        for each in result.containers
    ]
    run = Run(
        generation=result.generation,
        began_ms=began_ms,
        seconds=round(result.seconds, 3),
        master=result.master,
        messages=result.messages,
        containers=containers,
        backfill=backfill,
    )
    note(directory, run)


def note(directory: Path | None, run: Run) -> None:
    """Append a line of a round. ``directory``: that of the job; None: it has none, and no history.

    That it cannot be written is a warning: the round itself goes on, or is done."""
    if directory is None:
        return
    path = directory / _NAME
    try:
        _shorten(path)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(run) + b"\n")
    except OSError as error:
        log.warning("%s: this round is not in the history: %s", path, error.strerror)


def runs(config: Config, name: str | None = None) -> list[Run]:
    """The rounds of a job's deployments and of its backfills, oldest first. ``name``: the job's, where it is
    known.

    Raises StreamSystemError where the job has no directory, and what the checkpoint manager raises."""
    name = name or job_name(config)
    directory = directory_of(config, name)
    if directory is None:
        raise StreamSystemError(
            f"{name} keeps its checkpoints in no directory, and so no history of its deployments: it is kept "
            "with checkpoints in a log system, or with task.checkpoint.system=file"
        )
    found = _read(directory)
    suffix = f"-{config.required('job.id')}"
    stem = name.removesuffix(suffix)
    for path in directory.parent.glob(f"{stem}-*{suffix}/{_NAME}"):
        other = path.parent
        # A job of such a name is another job.
        found += [each for each in _read(other) if other.name == f"{stem}-{each.backfill}{suffix}"]
    return sorted(found, key=lambda run: run.began_ms)


def directory_of(config: Config, name: str) -> Path | None:
    """The job's directory, where its checkpoints are files."""
    manager = checkpoint_manager(config, name)
    try:
        return manager.directory
    finally:
        manager.close()


def _read(directory: Path) -> list[Run]:
    """The rounds of a directory. The end of a round stands in the place of its begin."""
    found = {(run.generation, run.began_ms): run for run in _lines(directory / _NAME)}
    rounds = list(found.values())
    under_way = rounds[-1:] if is_being_deployed(directory) else []
    return [
        replace(run, outcome="did not end") if run.outcome == "running" and run not in under_way else run
        for run in rounds
    ]


def _lines(path: Path) -> Iterator[Run]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=Run)
        except msgspec.DecodeError:
            continue  # its writer was killed within the line


def _shorten(path: Path) -> None:
    """Leave the last rounds of a history that has grown large."""
    if not path.exists() or path.stat().st_size <= _LARGEST:
        return
    temporary = path.with_suffix(".new")
    temporary.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[-_KEPT // 2 :]))
    temporary.replace(path)
