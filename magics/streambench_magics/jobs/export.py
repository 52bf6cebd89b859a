"""A job of the notebook as files that ``streambench run`` and ``deploy`` take.

The files are the task, its configuration, what it needs to be installed, and a test."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import javaproperties

import streambench
from streambench.config import Config
from streambench.counts import counted
from streambench.debug.streams.by_hand import peek
from streambench.errors import StreambenchError
from streambench.imports import by_path
from streambench.masking import masked
from streambench.model import SystemStream
from streambench.spark.own_code import imported, own_code, pinned
from streambench.spark.package import without_secrets
from streambench.system.systems import known_key
from streambench.testing import run_job
from streambench_magics.errors import MagicError
from streambench_magics.jobs.jobs import Job
from streambench_magics.jobs.task_code import name_of
from streambench_magics.jobs.task_source import task_file

TASK, CONFIG, NEEDS, TEST, CASE = (
    "task.py",
    "job.properties",
    "requirements.txt",
    "test_task.py",
    "messages.json",
)
_MESSAGES = 20
_OF_TESTS = ("task.", "stores.", "serializers.")
_NOT_OF_TESTS = re.compile(r"task\.(class|inputs|checkpoint\..*)|stores\.[^.]+\.changelog")

_TEST = '''\
"""The task does with these messages of its inputs what it did when it was exported."""

import json
from pathlib import Path

from streambench.testing import run_job

HERE = Path(__file__).parent
CASE = json.loads((HERE / "{case}").read_text())
TASK = {task}


def test_the_task_does_with_these_messages_what_it_did():
    inputs = {{
        stream: {{int(number): [tuple(each) for each in messages] for number, messages in partitions.items()}}
        for stream, partitions in CASE["inputs"].items()
    }}
    run = run_job(None, {{**CASE["config"], "task.class": TASK}}, inputs)
    assert len(run.processed) == CASE["processed"]
    assert json.loads(json.dumps(run.outputs)) == CASE["outputs"]
'''


def export(
    job: Job, namespace: Mapping[str, Any], directory: Path, *, runs: bool, say: Callable[[str], object]
) -> list[str]:
    """Write the job into a directory, which is made where it is not there; the report, by line. ``runs``: the
    task may run, for a test of what it does; ``say`` gets a line before it does.

    Raises MagicError where the task cannot be written to a file, or a file is there already: nothing is
    written then."""
    task = job.task
    named = None if task is None else name_of(task)
    config = job.config if named is None else job.config.with_values({"task.class": named})
    values, secrets = _config_values(config, directory)
    if task is None or named is not None:
        code = own_code(config)
        files = {name: path.read_bytes() for name, path in code.files.items()}
        modules = set(code.installed)
        values |= code.named
    else:
        source, name = task_file(task, job.task_name, namespace)
        files, modules = {TASK: source.encode()}, set(imported(source))
        values["task.class"] = f"{TASK}:{name}"
    _check_free(directory, [*files, CONFIG, NEEDS, TEST, CASE])
    files[CONFIG] = javaproperties.dumps(values, timestamp=None).encode()
    files[NEEDS] = _requirements(modules).encode()
    case, left_out = _case(job, config, task, say) if runs else (None, "--no-run leaves it out")
    if case is not None:
        files[TEST] = _TEST.format(task=_task_text(values["task.class"]), case=CASE).encode()
        files[CASE] = json.dumps(case, indent=1).encode() + b"\n"
    _write(directory, files)
    report = [f"{directory} has {', '.join(files)}"]
    if left_out:
        report.append(f"no test was written: {left_out}")
    report += [f"{CONFIG} takes {key} from the environment variable {name}" for key, name in secrets.items()]
    run = f"streambench run {shlex.quote(str(directory / CONFIG))}"
    report.append(
        f"{job.name} is a replay, with systems in memory: set those of the job in {CONFIG}, then {run}"
        if job.is_replay
        else f"{run} goes on from the checkpoints of {job.name}; stop it here first"
    )
    return report


def _check_free(directory: Path, names: list[str]) -> None:
    """Raise MagicError where the directory cannot be made, or has one of these files."""
    nearest = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    if not nearest.is_dir():
        raise MagicError(f"{nearest} is a file: name a directory, or a new one beside it")
    there = [name for name in names if (directory / name).exists()]
    if there:
        raise MagicError(
            f"{directory} has {', '.join(there)} already; name another directory, or delete them"
        )


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    try:
        for name, content in files.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(content)
    except OSError as error:
        raise MagicError(f"{error.filename or directory} cannot be written: {error.strerror}") from None


def _config_values(config: Config, directory: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The configuration for a file in this directory, and the environment variables that stand in it for
    secrets, by key."""
    values, secrets = without_secrets(config)
    for key, value in values.items():
        if key not in secrets and _is_path(config, key) and not Path(value).expanduser().is_absolute():
            values[key] = os.path.relpath(config.directory / value, directory)
    return values, secrets


def _is_path(config: Config, key: str) -> bool:
    known = known_key(config, key)
    return known is not None and known.kind == "path"


def _task_text(task: str) -> str:
    """The task as a Python expression of the test: a file beside it, or a name to import."""
    literal = json.dumps(task)
    return f"str(HERE / {literal})" if ".py:" in task else literal


def _requirements(modules: set[str]) -> str:
    """The packages that have to be installed, in the versions of here."""
    lines = {f"streambench=={streambench.__version__}", *pinned(modules)}
    return "\n".join(sorted(lines)) + "\n"


def _case(
    job: Job, config: Config, task: Any, say: Callable[[str], object]
) -> tuple[dict[str, Any] | None, str]:
    """Some messages of the inputs, and what the task does with them; else why there are none."""
    try:
        inputs = _messages(job)
    except StreambenchError as error:
        return None, str(error)
    if not inputs:
        return None, "the inputs are empty"
    if not callable(task):
        task = by_path(config, "task.class", config.required("task.class"))
    values = {
        key: value
        for key, value in config.items()
        if key.startswith(_OF_TESTS) and not _NOT_OF_TESTS.fullmatch(key) and masked(key, value) == value
    }
    # A store of which only the changelog is configured is a store.
    keys = [f"stores.{name}.factory" for name in config.names_below("stores.")]
    factories = {key: config.text(key) for key in keys}
    values = {key: value for key, value in factories.items() if value is not None} | values
    count = sum(len(each) for of_stream in inputs.values() for each in of_stream.values())
    say(
        f"{job.task_name} runs on {counted(count, 'message')} of {', '.join(inputs)}, in memory, for its "
        "test (--no-run: no test)"
    )
    try:
        run = run_job(task, values, inputs)
    except StreambenchError as error:
        return None, f"the task fails at these messages: {error}"
    case = {"config": values, "inputs": inputs, "processed": len(run.processed), "outputs": run.outputs}
    try:
        text = json.dumps(case, allow_nan=False)
    except (TypeError, ValueError) as error:
        return None, f"its messages cannot be written as JSON ({error})"
    return json.loads(text), ""


def _messages(job: Job) -> dict[str, dict[int, list[tuple[Any, Any]]]]:
    found: dict[str, dict[int, list[tuple[Any, Any]]]] = {}
    for stream in job.inputs:
        for row in peek(
            job.config, SystemStream.parse(stream), limit=_MESSAGES, partition=None, begin="oldest"
        ):
            if "reason" in row:
                raise MagicError(f"{stream} has a message that cannot be read: {row['reason']}")
            of_stream = found.setdefault(stream, {})
            of_stream.setdefault(row["partition"], []).append((row["key"], row["message"]))
    return found
