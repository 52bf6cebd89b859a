"""Captures: the recordings that failing containers write, in one directory per job."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from streambench.config import Config
from streambench.errors import ChooserError, MessageTooLargeError, SerdeError, TaskError
from streambench.fsync import fsync_directory
from streambench.wording import command

KEPT = 10
"""The number of captures that stay in a directory: the newest."""

SUFFIX = ".capture"
_NUMBER = re.compile(r"(\d+)(-.*)?" + re.escape(SUFFIX))
_MB = 1 << 20

Write = Callable[[Path], object]


def is_captured(error: BaseException) -> bool:
    """True for a failure by code or data, which a replay shows again: not one of a system, or of another
    start of the job."""
    return isinstance(error, TaskError | SerdeError | MessageTooLargeError | ChooserError)


def capture_directory(config: Config, job: str, checkpoints: Path | None) -> Path | None:
    """The directory of the captures of a job; None where it writes none, or has no directory.
    ``checkpoints``: that of its checkpoints."""
    if config.text("task.capture") == "off":
        return None
    if config.text("task.capture.path") is not None:
        return config.directory_at("task.capture.path") / job
    return None if checkpoints is None else checkpoints / "captures"


def capture_limit(config: Config) -> int:
    """The most bytes of a capture."""
    return config.integer("task.capture.mb") * _MB


def save_capture(directory: Path, container: int, write: Write) -> Path:
    """Have ``write`` write a capture under another name, then give it the next number in the directory; its
    path. Old captures are removed. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    temporary = directory / f".{uuid4().hex}.tmp"
    try:
        write(temporary)
        number = max([0, *_numbers(directory)])
        while True:
            number += 1
            path = directory / f"{number}-c{container}{SUFFIX}"
            try:
                os.link(temporary, path)
            except FileExistsError:
                continue
            break
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(directory)
    _remove_old(directory)
    return path


def name_capture(error: BaseException, path: Path) -> None:
    """Name the capture in the text of an error."""
    if error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}; captured: {replay_command(path)}", *error.args[1:])


def replay_command(path: Path) -> str:
    """The command that replays a capture, as the caller writes it."""
    return command(f"replay {shlex.quote(str(shown_path(path)))}")


def reworded(text: str) -> str:
    """The text of a failure in another process, with its capture named in the words of this caller."""
    return text.replace("; captured: streambench replay ", f"; captured: {command('replay ')}")


def shown_path(path: Path) -> Path:
    """The path to show for a file: relative where it is below the working directory."""
    with contextlib.suppress(ValueError):
        return path.absolute().relative_to(Path.cwd())
    return path


def _numbers(directory: Path) -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for path in directory.iterdir():
        name = _NUMBER.fullmatch(path.name)
        if name is not None:
            found.setdefault(int(name[1]), []).append(path)
    return found


def _remove_old(directory: Path) -> None:
    numbers = _numbers(directory)
    for number in sorted(numbers)[:-KEPT]:
        for path in numbers[number]:
            path.unlink(missing_ok=True)
