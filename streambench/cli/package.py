"""``streambench package``: a job as one archive for ``spark-submit``."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer

from streambench.cli.job import JobArgument, JobOption, JsonOption, read_job
from streambench.cli.output import say, show_rows

_COLUMNS = ("file", "bytes", "packed")
_SHOWN = 3


def package(
    job: JobArgument = None,
    config: JobOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.zip", help="The archive.", show_default="NAME.zip"),
    ] = None,
    target: Annotated[
        str,
        typer.Option(metavar="local|standalone|yarn|k8s", help="The cluster that the printed line is for."),
    ] = "local",
    master: Annotated[
        str | None, typer.Option(metavar="MASTER", help="Its master, for that line.", show_default=False)
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="What relative paths of the job are relative to where it runs.",
            show_default="the directory of the job",
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Also take files that are no Python: a name or a pattern, as often as needed.",
            show_default=False,
        ),
    ] = None,
    contents: Annotated[
        bool,
        typer.Option("--list", help="Only list what the archive would hold, and leave out; write nothing."),
    ] = False,
    allow_secrets: Annotated[
        bool,
        typer.Option("--allow-secrets", help="Also pack files that hold what looks like a secret."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write a job as one archive that spark-submit takes: its code, its configuration, the packages it needs.

    Beside NAME.zip stands the program that deploys it, submit_NAME.py, and the line that submits both is
    printed. The archive takes the place of a properties file in other commands, too. The same job gives the
    same bytes. Of the job's packages only Python files are taken; --include takes others. Secrets of the
    configuration are left out: the environment variables that they are taken from are named. A file that
    holds what looks like one (a URL with a password, password = "...") is refused with its line.

    Examples:

        streambench package job.properties --list

        streambench package job.properties --target yarn

        streambench package job.properties --include "words/*.txt"

        streambench deploy job.zip --master "local[2]"
    """
    settings = read_job(job, config, resolves=False)
    packages = importlib.import_module("streambench.spark.package")
    lines = importlib.import_module("streambench.spark.submit_lines")
    target = lines.target_named(target)
    found = packages.package(settings, directory, include or ())
    path = output or Path(f"{found.name}{packages.ENDING}")
    if contents:
        rows: list[dict[str, object]] = [
            {"file": name, "bytes": len(text), "packed": True} for name, text in sorted(found.files.items())
        ]
        rows += [{"file": name, "bytes": None, "packed": False} for name in found.left_out]
        show_rows(rows, _COLUMNS, as_json=json, empty="nothing", right=("bytes",))
        return
    command = lines.submit_lines(found, path, path.with_name(found.launcher), target, master)
    archive, program = found.write(path, allow_secrets=allow_secrets)
    if json:
        row = {"archive": str(archive), "program": str(program), "command": command[-1]}
        show_rows([row], tuple(row), as_json=True, empty="")
        return
    say(f"{archive}: {len(found.files)} files; {program} deploys it")
    if found.left_out:
        say(f"left out: {_some(found.left_out)}; --include takes files that are no Python")
    for key, variable in sorted(found.secrets.items()):
        say(f"{key} is left out, and taken from the environment variable {variable}")
    for module in found.absent:
        say(f"{module} is imported and not installed here: it is missing in requirements.txt")
    for line in command:
        say(line)


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
