"""The header of a recording: the job, its configuration without secrets, its code, and where its tasks
begin."""

from __future__ import annotations

import inspect
import linecache
import platform
import re
import sys
import textwrap
import time
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from streambench.config import Config
from streambench.masking import masked
from streambench.redaction import redacted

_LARGEST_SOURCE = 500_000

Kind = Literal["recording", "capture"]


class TaskCode(Struct, frozen=True, kw_only=True):
    """The code of the tasks. ``reference``: where it can be imported from. ``file``: the file that it stood
    in; empty for a cell of a notebook. ``source``: the text of that file or cell."""

    name: str
    reference: str
    file: str = ""
    source: str = ""

    @property
    def plain_source(self) -> str:
        """The source as Python: a file as it is, a cell without its indentation and magics."""
        return self.source.strip() if self.file else cell_source(self.source)


class TaskStart(Struct, frozen=True, kw_only=True):
    """A task where the recording begins. ``number``: its partition in changelogs. ``offsets``: per input
    partition the last message processed before, ``starts``: where it begins in those without one."""

    name: str
    number: int
    partitions: Sequence[str]
    offsets: Mapping[str, str] = {}
    starts: Mapping[str, str] = {}


class Header(Struct, frozen=True, kw_only=True):
    """The header of a recording, see docs/recording.md.

    ``after_init``: stores and attributes are those after the tasks' ``init``; else ``init`` is called with
    these stores. ``ordered``: messages stand in the order in which they were processed; else only those of
    each partition do. ``has_batches``: the batches of tasks with ``process_batch`` are as they were; else
    only the one that failed. ``now_ms``: the time at the begin."""

    id: str
    kind: Kind
    job: str
    container: int
    created_ms: int
    now_ms: int
    config: Mapping[str, str]
    directory: str
    task: TaskCode
    tasks: Sequence[TaskStart]
    after_init: bool = True
    ordered: bool = True
    has_batches: bool = False
    streambench: str = ""
    python: str = ""
    version: int = 1


_factories: WeakValueDictionary[str, Any] = WeakValueDictionary()


def new_header(
    kind: Kind, config: Config, job: str, container: int, factory: Any, tasks: Sequence[TaskStart],
    **settings: Any,
) -> Header:  # fmt: skip
    """The header of a new recording of tasks with this code. This process remembers the code, for as long as
    it is used."""
    header = Header(
        id=uuid4().hex, kind=kind, job=job, container=container, created_ms=round(time.time() * 1000),
        config={key: redacted(masked(key, value)) for key, value in config.items()},
        directory=str(config.directory), task=code_of(factory), tasks=tasks,
        streambench=version("streambench"), python=platform.python_version(), **settings,
    )  # fmt: skip
    remember_code(header, 0, factory)
    return header


def remember_code(header: Header, number: int, factory: Any) -> None:
    """Remember the code of a recording: its first one, number 0, or one that it was swapped for."""
    _factories[f"{header.id}.{number}"] = factory


def factory_here(header: Header, number: int = 0) -> Any:
    """The code of a recording that this process made, while it is in use; else None."""
    return _factories.get(f"{header.id}.{number}")


def code_of(factory: Any) -> TaskCode:
    """The code of a task class or function, as text."""
    code = inspect.unwrap(factory)
    name = getattr(code, "__qualname__", type(code).__qualname__)
    module = getattr(code, "__module__", "") or ""
    # In a worker process __main__ is another module than the one that the task comes from.
    loaded = None if module == "__main__" else sys.modules.get(module)
    where = getattr(loaded, "__file__", None) or _compiled_from(code)
    file = where if Path(where).is_file() else ""
    source = "".join(linecache.getlines(where))
    return TaskCode(
        name=name, reference=f"{module}:{name}", file=file,
        source=redacted(source[:_LARGEST_SOURCE]),
    )  # fmt: skip


def _compiled_from(code: Any) -> str:
    """The file or the cell of a notebook that a task was compiled from; empty where it is not known."""
    own = dict(vars(code)) if isinstance(code, type) else {}
    callbacks = ("process", "process_batch")
    # A task may inherit its callbacks, of another cell.
    members = [own[each] for each in callbacks if each in own]
    members += [*own.values(), *(getattr(code, each, code) for each in callbacks)]
    for member in members:
        function = inspect.unwrap(getattr(member, "__func__", member))
        where = str(function.__code__.co_filename) if hasattr(function, "__code__") else ""
        if linecache.getlines(where):  # what a decorator generates has no text
            return where
    return ""


def read(values: Mapping[str, Any], path: Path) -> Header:
    """The header of its JSON, in a file to which its directory may be relative. Raises what msgspec raises
    for other JSON."""
    header = msgspec.convert(values, Header)
    return replace(header, directory=str((path.absolute().parent / header.directory).resolve()))


def written(header: Header) -> dict[str, Any]:
    """The header as JSON."""
    found: dict[str, Any] = msgspec.to_builtins(header)
    return found


def origin_of(header: Header) -> Path:
    """The directory that relative paths of the configuration are relative to: that of the recorded job, where
    it is there; else the working directory."""
    directory = Path(header.directory)
    return directory if directory.is_dir() else Path.cwd()


_ESCAPE = re.compile(r"\s*([%!?]|[\w\s.,*\[\]]+=\s*[%!])|[^#]*\w\?{1,2}\s*$")
"""A command of IPython where a statement begins: ``%magic``, ``!ls``, ``files = !ls``, ``f?``."""


def cell_source(text: str) -> str:
    """The source without its magics and its indentation. Lines inside of a statement stay as they are, also
    where they look like a magic."""
    lines = text.splitlines(keepends=True)
    found: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            found.append(line)
            at += 1
        elif _ESCAPE.match(line):
            indentation = line[: len(line) - len(line.lstrip())]
            if indentation:
                found.append(f"{indentation}pass\n")  # its block may have no other line
            while lines[at].rstrip().endswith("\\") and at + 1 < len(lines):
                at += 1
            at += 1
        else:
            end = at + _statement_lines(islice(lines, at, None))
            found += lines[at:end]
            at = end
    return textwrap.dedent("".join(found)).strip()


def _statement_lines(lines: Iterator[str]) -> int:
    """The number of lines of the first statement: one where it is no Python."""
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.NEWLINE:
                return token.end[0]
    except (tokenize.TokenError, SyntaxError):
        pass
    return 1
