"""The job that a command is about: the properties file behind ``-c``, or the first argument; and the
completions of the tab key."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.references import has_references
from streambench.system.listing import listing
from streambench.system.systems import Systems

ENDING = ".properties"

# The longest wait for a broker that does not answer, after the tab key.
_PATIENCE_S = 2.0

JobOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar=f"JOB{ENDING}",
        help="The job; it may also be the first argument.",
        show_default=False,
    ),
]
JobArgument = Annotated[
    Path | None, typer.Argument(metavar=f"[JOB{ENDING}]", help="The job's configuration.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def read_job(*given: Path | None, resolves: bool = True) -> Config:
    """The configuration in the one file that is given, which may be a packaged job. Raises BadParameter where
    it is none or several, ConfigError where it is wrong. ``resolves``: its references must be resolvable
    here."""
    files = [each for each in given if each is not None]
    if not files:
        raise typer.BadParameter(f"which job? Give -c JOB{ENDING}, or the file as the first argument")
    if len(files) > 1:
        raise typer.BadParameter(f"two configurations: {files[0]} and {files[1]}; give one")
    config = _config_in(files[0])
    unresolved = {} if resolves else {key: None for key, value in config.items() if has_references(value)}
    config.with_values(unresolved).validate()
    Systems(config).check_names()
    return config


def _config_in(file: Path) -> Config:
    if file.suffix != ".zip":
        return Config.from_file(file)
    # With Spark's part, which takes longer to be imported than all else.
    packaged: Config = importlib.import_module("streambench.spark.package").opened(file)
    return packaged


def split_job(option: Path | None, words: Sequence[str] | None) -> tuple[Config, list[str]]:
    """The configuration, and the words that are left: without ``-c`` the first word is the file. Raises as
    ``read_job`` does."""
    rest = list(words or [])
    if option is None and rest and is_job(rest[0]):
        return read_job(Path(rest[0])), rest[1:]
    return read_job(option), rest


def is_job(word: str) -> bool:
    """Return True where a word stands for a configuration, not for a stream or a verb."""
    return word.endswith((ENDING, ".zip")) or Path(word).is_file()


def stream_named(word: str) -> SystemStream:
    """A stream as it is written on a command line. Raises BadParameter."""
    try:
        return SystemStream.parse(word)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def stream_in(
    option: Path | None, words: Sequence[str] | None, which: str = "which stream? Give one, as SYSTEM.STREAM"
) -> tuple[Config, SystemStream]:
    """The configuration, and the one stream that is named. ``which``: what to say where there is none. Raises
    BadParameter, and as ``read_job`` does."""
    config, names = split_job(option, words)
    if len(names) != 1:
        raise typer.BadParameter(which if not names else f"one stream, not {len(names)}")
    return config, stream_named(names[0])


def systems_of(config: Config) -> closing[Systems]:
    """The systems of a job, closed at the end of a ``with``."""
    return closing(Systems(config))


def complete_streams(context: typer.Context, incomplete: str) -> list[str]:
    """The names of streams that begin like this, for the tab key. Nothing where there is no configuration to
    find them by."""
    return [name for name in _stream_names(context.params) if name.startswith(incomplete)]


def complete_words(context: typer.Context, incomplete: str) -> list[str]:
    """As ``complete_streams``, and the files that may stand in the first place."""
    return [*complete_streams(context, incomplete), *_files(incomplete)]


def complete_of(*words: str) -> Callable[[str], list[str]]:
    """The completion of a value that is, or begins as, one of these words."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


StreamArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar=f"[JOB{ENDING}] SYSTEM.STREAM", show_default=False, autocompletion=complete_words),
]
"""The words of a command about one stream, for ``split_job``."""


def _files(incomplete: str) -> list[str]:
    start = Path(incomplete)
    folder = start if incomplete.endswith("/") or not incomplete else start.parent
    shown = [str(path) for path in folder.glob(f"*{ENDING}")] if folder.is_dir() else []
    return sorted(name for name in shown if name.startswith(incomplete))


def _stream_names(parameters: dict[str, Any]) -> list[str]:
    option, words = parameters.get("config"), parameters.get("words") or []
    # The user is typing: whatever is wrong will be said when the command is given.
    with contextlib.suppress(Exception):
        config, _ = split_job(Path(option) if option else None, list(words))
        return [str(stream) for stream in listing(config, patience_s=_PATIENCE_S).streams]
    return []


def named_job(config: Config) -> str:
    """The job's name; the task is loaded only where the configuration leaves the name to it."""
    from streambench import imports
    from streambench.planning.plan import is_named, job_name

    if is_named(config):
        return job_name(config)
    return job_name(config, imports.by_path(config, "task.class", config.required("task.class")))
