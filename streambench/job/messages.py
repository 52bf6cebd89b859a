"""Messages between the process that runs a job and those of its containers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from streambench.config import Config
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.job.failure import Failure
from streambench.job.result import ContainerRun
from streambench.planning.model import JobModel


class ImportPaths(Struct):
    """Import paths of a new process: sent first, and readable without the modules that they lead to."""

    path: list[str]
    python_path: str | None


class StartContainer(Struct):
    """The instruction to a container process. ``names``: what the configuration names in the ``__main__`` of
    the process that runs the job. ``every_s``: seconds between snapshots, None for none at all."""

    config: Config
    task: bytes | None
    names: dict[str, bytes]
    model: JobModel
    number: int
    generation: int
    until: Literal["caught-up"] | None
    every_s: float | None


class Initialising(Struct):
    """A report: a task of a container is in its ``init``; "" once all have been."""

    container: int
    task: str


class CaughtUp(Struct):
    """A report: all inputs are at their head; so many messages were processed and sent since the last such
    report. KeepRunning or Finish answers it."""

    processed: int
    sent: int


class KeepRunning(Struct):
    """Go on reading: another container has sent something since."""


class Finish(Struct):
    """All containers have caught up: stop."""


class Stop(Struct):
    """Stop cleanly after the message it is at."""


Report = ContainerSnapshot | Initialising | CaughtUp | ContainerRun | Failure
