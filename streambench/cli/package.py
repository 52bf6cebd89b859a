"""``streambench package``: a job as one archive for ``spark-submit``."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from streambench.cli.job import JobArgument, JobOption, JsonOption, read_job
from streambench.cli.option_groups import with_options
from streambench.cli.output import show_rows

_COLUMNS = ("file", "bytes", "packed")
_SHOWN = 3


class FileOptions(Struct):
    """The options of the files in the archive."""

    include: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Also take files that are no Python: a name or a pattern, as often as needed.",
            show_default=False,
        ),
    ] = None
    allow_secrets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE:LINE",
            help="Pack a line though it looks like a secret, as often as needed.",
            show_default=False,
        ),
    ] = None


class DependencyOptions(Struct):
    """The options of the archive of packages."""

    with_dependencies: Annotated[
        bool,
        typer.Option(
            "--with-dependencies",
            help="Also write NAME-packages.zip: the packages of this environment that the job needs, for "
            "executors whose Python lacks them.",
        ),
    ] = False
    platform: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLATFORM",
            help="With --with-dependencies: the cluster's, where it is another, as pip names it "
            "(manylinux_2_28_x86_64), as often as needed.",
            show_default="this machine's",
        ),
    ] = None
    python_version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="With --with-dependencies: the Python of the executors (3.12).",
            show_default="that of here",
        ),
    ] = None

    def check(self) -> None:
        """Raise BadParameter for options that do not go together."""
        given = {"--platform": self.platform, "--python-version": self.python_version}
        if not self.with_dependencies and (wrong := next((key for key in given if given[key]), None)):
            raise typer.BadParameter("it is for --with-dependencies: give that, too", param_hint=wrong)


@with_options("files", FileOptions)
@with_options("dependencies", DependencyOptions)
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
    files: FileOptions = FileOptions(),  # noqa: B008
    contents: Annotated[
        bool,
        typer.Option("--list", help="Only list what the archive would hold, and leave out; write nothing."),
    ] = False,
    dependencies: DependencyOptions = DependencyOptions(),  # noqa: B008
    json: JsonOption = False,
) -> None:
    """Write a job as one archive that spark-submit takes: its code, its configuration, the names of the
    packages it needs.

    Beside NAME.zip stands the program that deploys it, submit_NAME.py, and the line that submits both is
    printed. The archive takes the place of a properties file in other commands, too. The same job gives the
    same bytes. Of the job's packages only Python files are taken; --include takes others. Secrets of the
    configuration are left out: the environment variables that they are taken from are named. A file that
    holds what looks like one (a URL with a password, password = "...") is refused with its line.

    Examples:

        streambench package job.properties --list

        streambench package job.properties --target yarn

        streambench package job.properties --target standalone --with-dependencies

        streambench package job.properties --include "words/*.txt"

        streambench deploy job.zip --master "local[2]"
    """
    dependencies.check()
    settings = read_job(job, config, resolves=False)
    packages = importlib.import_module("streambench.spark.package")
    lines = importlib.import_module("streambench.spark.submit_lines")
    target = lines.target_named(target)
    found = packages.package(settings, directory, files.include or ())
    path = output or Path(f"{found.name}{packages.ENDING}")
    if contents:
        rows: list[dict[str, object]] = [
            {"file": name, "bytes": len(text), "packed": True} for name, text in sorted(found.files.items())
        ]
        rows += [{"file": name, "bytes": None, "packed": False} for name in found.left_out]
        show_rows(rows, _COLUMNS, as_json=json, empty="nothing", right=("bytes",))
        return
    packed = path.with_name(f"{path.stem}-packages.zip") if dependencies.with_dependencies else None
    command = lines.submit_lines(found, path, path.with_name(found.launcher), target, master, packed)
    needed = None
    if packed is not None:
        needed = packages.Dependencies(packed, dependencies.platform or (), dependencies.python_version)
    archive, program, count = found.write(path, allow_secrets=files.allow_secrets or (), dependencies=needed)
    if json:
        row = {"archive": str(archive), "program": str(program), "command": command[-1]}
        row |= {} if packed is None else {"packages": str(packed)}
        show_rows([row], tuple(row), as_json=True, empty="")
        return
    print(f"{archive}: {len(found.files)} files; {program} deploys it")
    if packed is not None:
        print(f"{packed}: {count} packages, {packed.stat().st_size >> 20} MiB")
    if found.left_out:
        print(f"left out: {_some(found.left_out)}; --include takes files that are no Python")
    for key, variable in sorted(found.secrets.items()):
        print(f"{key} is left out, and taken from the environment variable {variable}")
    for module in found.absent:
        print(f"{module} is imported and not installed here: it is missing in requirements.txt")
    for line in command:
        print(line)


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
