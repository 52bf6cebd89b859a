"""A pytest file that runs a recording: red while the task fails at it, or does something else with it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from streambench.debug.control.session import Session
from streambench.debug.replay.literals import literal
from streambench.debug.replay.outcomes import Outcome, outcome
from streambench.debug.replay.recorded_source import source_of
from streambench.debug.replay.replay import codes_of, replaying, run_to_end, task_of
from streambench.errors import ConfigError, StreambenchError, described
from streambench.fsync import write_durably
from streambench.recording.header import TaskCode, code_of
from streambench.recording.recording import Recording

_TEXT = '''"""{title}"""

from pathlib import Path

{imports}
HERE = Path(__file__).parent
RECORDING = HERE / {data}
{code}{expected}

def test_{name}() -> None:
    session = debug.open(RECORDING, task={task}, {options}at_end=False)
    session.run("caught-up")
    session.wait()
    assert session.position == {count}
{asserts}'''
_OF_FAILURE = "    # Say here what else is right: session.stores(), session.outputs(), session.offsets()\n"
_IMPORT = "from streambench import debug\n"
_MARK = "debug.open(RECORDING"
_PLAIN_MODULE = re.compile(r"[A-Za-z_][\w.]*")
_HISTORIES_MB = (None, 4096)
_SWAPPED = """
# The code was swapped: each message runs with the code that ran it, which is in the recording. To try other
# code for all of them, give it as task, without recorded_source.
"""
_INSTALLED = ("site-packages", "dist-packages")


def write_test(recording: Recording, path: Path, *, task: Any = None, recorded_source: bool = False) -> Path:
    """Write the test, and the recording beside it, which refer to all files relative to themselves. ``task``,
    ``recorded_source``: the code, as for ``open``.

    That of a recording without a failure expects the outputs, stores and offsets that the code has now.
    Raises StreambenchError where a file cannot be written, ConfigError where there is no code,
    what the task fails with."""
    check_target(recording, path)
    follows = task is None and bool(codes_of(recording, recorded_source=recorded_source)[1])
    recorded_source = recorded_source or follows
    code = _code_for(recording, task, recorded_source=recorded_source)
    failure = recording.failure
    title = f"{recording.job} failed at the last of these messages: {failure.kind}." if failure else ""
    imports, lines, name = (_IMPORT, _SWAPPED, "None") if follows else _code_lines(recording, code, path)
    asserts, expected, options = _OF_FAILURE, "", ""
    count, suffix = len(recording), "processes_the_recording"
    if follows:
        options = "recorded_source=True, "
    if failure is None:
        found, count, history = _expected(recording, task, recorded_source=recorded_source)
        title = (
            f"{recording.job} does with the recorded messages what it did when this was written.\n\n"
            "Where it is to do something else: change what is expected here, or write this file again.\n"
        )
        expected, asserts = _expectations(found)
        options += "" if history is None else f"history={history}, "
        suffix = "does_what_it_did"
    data = _data_of(path)
    job = re.sub(r"\W+", "_", recording.job)
    text = _TEXT.format(
        title=title, imports=imports, data=literal(data.name), code=lines, expected=expected, count=count,
        name=f"{job.strip('_').lower()}_{suffix}", task=name, options=options,
        asserts=asserts,
    )  # fmt: skip
    # The test appears when its recording is there, and an old test keeps its own until then.
    try:
        write_durably(path, text.encode(), lambda: _moved(recording, data).save(data))
    except OSError as error:
        raise StreambenchError(
            f"cannot write {path} and its recording: {error.strerror or error}; name a file elsewhere"
        ) from error
    return path


def _data_of(path: Path) -> Path:
    """The file of the recording of a test."""
    return path.with_suffix(".recording")


def check_target(recording: Recording, path: Path) -> None:
    """Raise StreambenchError where a test cannot be written to a path, or it or its recording would replace
    another file."""
    folder = path.absolute().parent
    if path.suffix != ".py":
        raise StreambenchError(f"cannot write a test to {path}: name a file test_NAME.py, as pytest finds it")
    if not folder.is_dir():
        raise StreambenchError(
            f"cannot write {path}: there is no directory {path.parent}; make it: mkdir -p "
            f"{shlex.quote(str(path.parent))}"
        )
    former = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if path.exists() and _MARK not in former:
        raise StreambenchError(
            f"cannot write {path}: there is a file of that name, which runs no recording; name another"
        )
    data = _data_of(path)
    is_its_own = literal(data.name) in former
    is_this = recording.path is not None and recording.path.resolve() == data.resolve()
    if data.exists() and not is_its_own and not is_this:
        raise StreambenchError(
            f"cannot write {path}: its recording would replace {data}, which belongs to no such test; name "
            "another"
        )


def _moved(recording: Recording, data: Path) -> Recording:
    """The recording with its directory relative to its new file."""
    header = recording.header
    directory = recording.directory
    if directory.is_dir():
        header = replace(header, directory=os.path.relpath(directory.resolve(), data.parent.resolve()))
    return recording.with_header(header)


def _code_for(recording: Recording, task: Any, *, recorded_source: bool) -> TaskCode:
    """The code that the test is for. Raises ConfigError where another process cannot find it."""
    recorded = recording.header.task
    if task is not None:
        code = code_of(task_of(recording, task))
    elif recorded_source or not recorded.file or Path(recorded.file).is_file():
        code = replace(recorded, file="") if recorded_source else recorded
    else:
        try:
            code = code_of(task_of(recording))
        except ConfigError:
            code = replace(recorded, file="")  # of another machine: its source is here
    if "<" in code.name:
        raise ConfigError(
            f"{code.name} was defined in a function, where a test cannot find it: define it at the top of "
            "its module, or give another task (task=, --task file.py:Class)",
            key="task.class",
        )
    if not code.file and not code.source:
        raise ConfigError(
            f"the recording has no source of its task, {code.name}: give the task (task=, --task "
            "file.py:Class)",
            key="task.class",
        )
    return code


def _code_lines(recording: Recording, code: TaskCode, path: Path) -> tuple[str, str, str]:
    """The imports of the task, the lines that make it, and the expression for it."""
    module, _, name = code.reference.partition(":")
    if not code.file:
        try:
            source = source_of(code)
        except SyntaxError as error:
            raise ConfigError(
                f"the recorded source of {code.name} is not Python: {error}: give the task (task=, --task "
                "file.py:Class)",
                key="task.class",
            ) from error
        imports = f"import streambench as sb\n{_IMPORT}" if re.search(r"\bsb\.", source) else _IMPORT
        lines = f"\n# The code of the task: mend it here, or import it.\n{source}\n"
        return imports, lines, name.rpartition(".")[2]
    root = _module_root(module, Path(code.file))
    is_named = ".py:" not in recording.config.get("task.class", "")
    if root is not None and (is_named or root.name in _INSTALLED):
        beside = root == recording.directory.resolve()
        if not beside or root.name in _INSTALLED or root == _root_of_test(path):
            return f"{_IMPORT}from {module} import {name.partition('.')[0]}\n", "", name
        return _IMPORT, f"TASK = {literal(code.reference)}\n", "TASK"
    where = Path(os.path.relpath(Path(code.file).resolve(), path.absolute().parent.resolve())).as_posix()
    return _IMPORT, f"TASK = str(HERE / {literal(where)}) + {literal(f':{name}')}\n", "TASK"


def _module_root(module: str, file: Path) -> Path | None:
    """The directory that a module was imported from; None where its name does not lead to its file."""
    if _PLAIN_MODULE.fullmatch(module) is None or module == "__main__":
        return None
    parts = file.resolve().with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    names = tuple(module.split("."))
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return Path(*parts[: -len(names)]) if parts[-len(names) :] == names and spec is not None else None


def _root_of_test(path: Path) -> Path:
    """The directory that pytest imports a test file from."""
    folder = path.absolute().parent.resolve()
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _expected(recording: Recording, task: Any, *, recorded_source: bool) -> tuple[Outcome, int, int | None]:
    """The outcome of a replay, the number of its messages, and the memory of its history where it takes more
    than the usual one."""
    for history in _HISTORIES_MB:
        how = {"recorded_source": recorded_source, "history": history, "at_end": False}
        with replaying(recording, task, **how) as session:
            _run_through(session)
            kept = session.history
            if kept is None or kept.is_dropped or (history is None and kept.size > kept.limit // 2):
                continue
            return outcome(session), session.position, history
    raise StreambenchError(f"{recording.job}: the recording is too large for a test: record fewer messages")


def _run_through(session: Session) -> None:
    """Run a replay to its end. Raises StreambenchError where it fails."""
    try:
        run_to_end(session)
    except StreambenchError as error:
        raise StreambenchError(
            f"the task fails now at a recording without a failure, after {session.position:,} messages: "
            f"{described(error)}; mend it first, then write its test"
        ) from error


def _expectations(found: Outcome) -> tuple[str, str]:
    """The data that a test expects, and the lines that compare it."""
    data, asserts = "", "    found = debug.outcome(session)\n"
    for name, comment in (
        ("outputs", "Per stream: the partition, key and message of each output, in their order."),
        ("stores", "Per task and store: the entries at the end."),
        ("offsets", "Per task and partition: the last message processed."),
    ):
        values = getattr(found, name)
        if not values and name != "outputs":
            continue
        digests = " Long values stand as digests." if "sha256 " in repr(values) else ""
        constant = name.upper()
        data += f"\n# {comment}{digests}\n{constant} = {literal(values, taken=len(constant) + 3)}\n"
        asserts += f"    assert found.{name} == {constant}\n"
    return data, asserts
