"""``streambench package``: a job as one archive for ``spark-submit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from streambench.cli.job import JobArgument, JobOption, JsonOption, complete_of, read_job
from streambench.cli.option_groups import with_options
from streambench.cli.output import print_json, show_rows
from streambench.counts import first_named

# Spark's part takes longer to be imported than all else.
if TYPE_CHECKING:
    from streambench.spark.package import Package
    from streambench.spark.submit_lines import Target

_COLUMNS = ("file", "bytes", "packed")
_SHOWN = 3


class PackageOptions(Struct):
    """The options of the archive, of what it holds, and of the line that submits it."""

    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.zip", help="The archive.", show_default="NAME.zip"),
    ] = None
    target: Annotated[
        str,
        typer.Option(
            metavar="local|standalone|yarn|k8s",
            help="The cluster that the printed line is for.",
            autocompletion=complete_of("local", "standalone", "yarn", "k8s"),
        ),
    ] = "local"
    master: Annotated[
        str | None, typer.Option(metavar="MASTER", help="Its master, for that line.", show_default=False)
    ] = None
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="What relative paths of the job are relative to where it runs.",
            show_default="the directory of the job",
        ),
    ] = None
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
    contents: Annotated[
        bool,
        typer.Option("--list", help="Only list what the archive would hold, and leave out; write nothing."),
    ] = False
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


_DEFAULTS = PackageOptions()


@with_options("options", PackageOptions)
def package(
    job: JobArgument = None,
    config: JobOption = None,
    options: PackageOptions = _DEFAULTS,
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
    from streambench.spark.package import package as package_of
    from streambench.spark.submit_lines import target_named

    options.check()
    settings = read_job(job, config, resolves=False)
    target = target_named(options.target)
    found = package_of(settings, options.directory, options.include or ())
    if options.contents:
        _list(found, as_json=json)
    else:
        _write(found, options, target, as_json=json)


def _list(found: Package, *, as_json: bool) -> None:
    rows: list[dict[str, object]] = [
        {"file": name, "bytes": len(text), "packed": True} for name, text in sorted(found.files.items())
    ]
    rows += [{"file": name, "bytes": None, "packed": False} for name in found.left_out]
    show_rows(rows, _COLUMNS, as_json=as_json, empty="nothing", right=("bytes",))


def _write(found: Package, options: PackageOptions, target: Target, *, as_json: bool) -> None:
    """Write the archive and what goes with it, and print the line that submits it."""
    from streambench.spark.package import ENDING, Dependencies
    from streambench.spark.submit_lines import submit_lines

    path = options.output or Path(f"{found.name}{ENDING}")
    packed = path.with_name(f"{path.stem}-packages.zip") if options.with_dependencies else None
    command = submit_lines(found, path, target, options.master, packed)
    needed = None if packed is None else Dependencies(packed, options.platform or (), options.python_version)
    archive, program, count = found.write(
        path, allow_secrets=options.allow_secrets or (), dependencies=needed
    )
    if as_json:
        row = {"archive": str(archive), "program": str(program), "command": command[-1]}
        row |= {} if packed is None else {"packages": str(packed)}
        print_json(row)
        return
    print(f"{archive}: {len(found.files)} files; {program} deploys it")
    if packed is not None:
        print(f"{packed}: {count} packages, {packed.stat().st_size >> 20} MiB")
    if found.left_out:
        left_out = first_named(found.left_out, _SHOWN)
        print(f"left out: {left_out}; --include takes files that are no Python")
    for key, variable in sorted(found.secrets.items()):
        print(f"{key} is left out, and taken from the environment variable {variable}")
    for module in found.absent:
        print(f"{module} is imported and not installed here: it is missing in requirements.txt")
    print("\n".join(command))
