"""``streambench doctor``: which programs are there, how to get the rest, and what works without them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import Struct
from rich.text import Text

import streambench
from streambench.cli.job import JsonOption
from streambench.cli.output import print_json, screen
from streambench.errors import StreambenchError, described

State = Literal["found", "missing", "skipped"]

_MARKS: dict[State, tuple[str, str]] = {
    "found": ("ok", "green"),
    "missing": ("MISSING", "bold red"),
    "skipped": ("skipped", "yellow"),
}
_CORE = ("msgspec", "orjson", "pyarrow", "javaproperties", "filelock", "crc32c", "rich", "typer")
_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
_UNPACKED = Path(streambench.__file__).parent.parent / ".tools"
_PATIENCE_S = 30


class Finding(Struct, frozen=True):
    """The result of one requirement. ``missing`` is what nothing works without, ``skipped`` what some part
    does not work without."""

    what: str
    state: State
    detail: str
    without: str = ""
    remedy: str = ""


def doctor(
    json: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Count what is skipped as missing.")] = False,
) -> None:
    """Look at this machine: one line for each thing that streambench needs or can use. Exit code 1 if
    something required is missing.

    Examples:

        streambench doctor

        streambench doctor --strict
    """
    bad = 0
    for finding in findings():
        bad += finding.state == "missing" or (strict and finding.state == "skipped")
        if json:
            print_json({name: getattr(finding, name) for name in Finding.__struct_fields__})
        else:
            screen().print(_line(finding))
    if bad:
        raise typer.Exit(1)


def findings() -> Iterator[Finding]:
    """All requirements, the required ones first."""
    yield _python()
    for name in _CORE:
        yield _package(name, required=True)
    yield _temporary_files()
    yield from _spark()
    yield _package("jupyterlab", "notebooks", extra="jupyter")
    yield _package("ipywidgets", "the live panel in notebooks", extra="jupyter")
    yield _package("anywidget", "the live panel in notebooks", extra="jupyter")
    yield _package("kafka-python", "Kafka systems", extra="kafka", module="kafka")
    yield _package("pika", "AMQP systems (RabbitMQ)", extra="amqp")
    yield _package("uvicorn", "webhooks as inputs", extra="webhook")
    yield _package("starlette", "webhooks as inputs", extra="webhook")
    yield _package("httpx", "posting to webhooks", extra="webhook")
    yield _package("rocksdict", "stores larger than memory", extra="rocksdb")
    yield _package(
        "prometheus-client", "metrics for Prometheus", extra="prometheus", module="prometheus_client"
    )
    yield _program("mvn", "a Kafka of one's own (streambench kafka start)", "apt install maven")
    yield _rabbitmq()
    yield _browser()
    yield _program("cc", "compiled hot modules: streambench is slower, and does the same", "apt install gcc")


def _optional(what: str, found: str | None, lack: str, without: str, remedy: str) -> Finding:
    """The finding of what some part needs. ``lack``: what is wrong where it is not found."""
    if found:
        return Finding(what, "found", found)
    return Finding(what, "skipped", lack, without, remedy)


def _python() -> Finding:
    own = "" if sys.prefix != sys.base_prefix else " (no virtual environment)"
    return Finding("python", "found", f"{sys.version.split()[0]} at {sys.executable}{own}")


def _package(
    name: str, without: str = "everything", *, extra: str = "", module: str = "", required: bool = False
) -> Finding:
    """Only what is required is imported: the others would take many seconds."""
    module, found, problem = module or name, "", ""
    try:
        found = version(name)
        if required:
            importlib.import_module(module)
        elif importlib.util.find_spec(module) is None:
            problem = f"{found} is damaged"
    except PackageNotFoundError:
        problem = "not installed"
    except Exception as error:
        problem = f"{found} cannot be imported: {described(error)}"
    if not problem:
        return Finding(name, "found", found)
    return Finding(name, "missing" if required else "skipped", problem, without, _install(extra))


def _install(extra: str) -> str:
    return f"pip install 'streambench[{extra}]'" if extra else "pip install --upgrade streambench"


def _temporary_files() -> Finding:
    folder = tempfile.gettempdir()
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return Finding("temporary files", "found", folder)
    except OSError as error:
        remedy = "set TMPDIR to a folder that may be written to"
        return Finding("temporary files", "missing", f"{folder}: {error.strerror}", "everything", remedy)


def _spark() -> Iterator[Finding]:
    without = "streambench deploy"
    java = "apt install openjdk-17-jre-headless, or set JAVA_HOME"
    yield _optional("java", _java(), "no Java 17 or newer", without, java)
    yield _package("pyspark", without, extra="spark")
    yield _pandas(without)
    yield _package("grpcio", "Spark Connect", extra="spark", module="grpc")
    worker = os.environ.get("PYSPARK_PYTHON")
    fits = worker is None or _same_program(worker)
    yield _optional(
        "PYSPARK_PYTHON",
        (worker or "not set; deploy uses this Python") if fits else None,
        f"{worker} is another Python",
        "Spark's workers may lack what the task imports",
        f"unset PYSPARK_PYTHON, or export PYSPARK_PYTHON={sys.executable}",
    )


def _java() -> str | None:
    """The version of the Java that Spark would start, if it is new enough."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if program is None:
        return None
    try:
        printed = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', printed)
    return f"{found[1]} at {program}" if found and int(found[2]) >= 17 else None


def _pandas(without: str) -> Finding:
    finding = _package("pandas", without, extra="spark")
    if finding.state == "found" and int(finding.detail.split(".")[0]) >= 3:
        problem = f"{finding.detail}: Spark does not support pandas 3 yet"
        return Finding("pandas", "skipped", problem, without, "pip install 'pandas<3'")
    return finding


def _same_program(name: str) -> bool:
    program = shutil.which(name)
    return program is not None and os.path.samefile(program, sys.executable)


def _program(name: str, without: str, remedy: str) -> Finding:
    return _optional(name, shutil.which(name), "not installed", without, remedy)


def _rabbitmq() -> Finding:
    from streambench.testing.brokers.rabbitmq import find_server  # with the container, for run_job

    try:
        return Finding("rabbitmq-server", "found", find_server())
    except StreambenchError as error:
        without = "a RabbitMQ of one's own (tutorials, tests)"
        return Finding("rabbitmq-server", "skipped", "not found", without, str(error))


def _browser() -> Finding:
    named = os.environ.get("STREAMBENCH_BROWSER")
    unpacked = _UNPACKED / "chromium" / "chromium"
    found = next(filter(None, map(shutil.which, (named,) if named else _BROWSERS)), None)
    if found is None and not named and os.access(unpacked, os.X_OK):
        found = str(unpacked)
    lack = f"{named} is no program" if named else "no Chromium"
    remedy = "apt install chromium-headless-shell, make browser (in the checkout), or set STREAMBENCH_BROWSER"
    return _optional("browser", found, lack, "tests of the live panel", remedy)


def _line(finding: Finding) -> Text:
    mark, style = _MARKS[finding.state]
    line = Text.assemble((f"{mark:9}", style), (f"{finding.what:18}", "bold"), finding.detail)
    if finding.state != "found":
        line.append(f"; without it: {finding.without}; to get it: {finding.remedy}", style="dim")
    return line
