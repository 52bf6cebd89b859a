"""Captures that travel: a container writes one on the machine of its executor, and its bytes come back with
its report.

Captures that lie beside the checkpoints, in a directory that executors and driver share, stay there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.job.failure import Failure
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.recording.captures import capture_directory, replay_command, save_capture
from streambench.temporary import TemporaryDirectory

log = logging.getLogger(__name__)

# Of all containers of a round together: Spark gives a job up whose results are larger than 1 GiB.
_MOST_BYTES = 256 << 20
_FOLDER = "captures"
_PATH = "task.capture.path"


class SentCapture(Struct, frozen=True):
    """A capture on its way to the driver. ``command``: the text of the failure that names the executor's
    file. ``size``: its bytes; ``content`` is empty where these are too many."""

    command: str
    size: int
    content: bytes


class CaptureFolder:
    """The directory in which a container leaves its capture, ``directory``; None where it does not travel."""

    def __init__(self, directory: Path | None, containers: int) -> None:
        self._directory = directory
        self._most = _MOST_BYTES // max(1, containers)

    def taken(self) -> SentCapture | None:
        """The last capture that the container has left; None where there is none."""
        if self._directory is None:
            return None
        paths = sorted(self._directory.rglob("*.capture"))
        if not paths:
            return None
        size = paths[-1].stat().st_size
        return SentCapture(
            replay_command(paths[-1]), size, paths[-1].read_bytes() if size <= self._most else b""
        )


@contextmanager
def capture_folder(config: Config, job: str, containers: int) -> Iterator[tuple[Config, CaptureFolder]]:
    """The configuration with which a container leaves its capture in a folder of its own, until the end.
    ``containers``: the number of those that may send one."""
    if not _travels(config, job):
        yield config, CaptureFolder(None, containers)
        return
    with TemporaryDirectory("streambench-captures-") as path:
        yield config.with_values({_PATH: str(path)}), CaptureFolder(path, containers)


def landed(config: Config, job: str, failure: Failure, capture: SentCapture) -> Failure:
    """The failure with the capture written on this machine, where ``task.capture.path`` says, else beside the
    configuration."""
    named = f"; captured: {capture.command}"
    if not capture.content:
        log.warning(
            "container %d: its capture is left out: it has %d MiB, which is more than travels",
            failure.container,
            capture.size >> 20,
        )
        return replace(failure, text=failure.text.replace(named, ""))
    try:
        directory = capture_directory(config, job, None) or config.directory / _FOLDER / job
        path = save_capture(directory, failure.container, lambda path: path.write_bytes(capture.content))
    except (OSError, ConfigError) as error:
        log.warning("container %d: its capture is lost: %s", failure.container, error)
        return replace(failure, text=failure.text.replace(named, ""))
    return replace(failure, text=failure.text.replace(capture.command, replay_command(path)))


def _travels(config: Config, job: str) -> bool:
    if config.text("task.capture") == "off":
        return False
    with closing(checkpoint_manager(config, job)) as manager:
        return manager.directory is None or config.text(_PATH) is not None
