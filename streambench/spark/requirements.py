"""The packages that a ``requirements.txt`` needs: those that its lines name, and all that these need.

Versions are those of this environment. Markers (``; python_version < "3.12"``) and extras are evaluated for
the Python and the machine of the executors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import NamedTuple

from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from streambench.errors import StreambenchError
from streambench.spark.shipment import OF_SPARK

OURS = "streambench"

Environment = Mapping[str, str]
"""The values of markers, by name."""

# What pip takes besides requirements. Options that change only where packages are found are left to it.
_OTHER_FILE = re.compile(r"(-r|--requirement|-c|--constraint|-e|--editable)\b")
_COMMENT = re.compile(r"(^|\s)#.*")
_OPTIONS = re.compile(r"\s--[a-z].*")
_SYSTEMS = {
    "macosx": ("posix", "darwin", "Darwin"),
    "win": ("nt", "win32", "Windows"),
    "": ("posix", "linux", "Linux"),
}
_MACHINES = {each: each for each in ("x86_64", "aarch64", "arm64", "i686", "armv7l", "ppc64le", "s390x")} | {
    "amd64": "AMD64"
}


class _Wanted(NamedTuple):
    """A requirement and what names it, in words."""

    requirement: Requirement
    by: str


def needed_by(
    requirements: str, platforms: Sequence[str] = (), python_version: str | None = None
) -> dict[str, metadata.Distribution]:
    """The installed packages that the lines of a ``requirements.txt`` name, streambench, and all that these
    need, by name. Spark's own are left out. ``platforms`` and ``python_version``: those of the executors, as
    pip takes them. Raises StreambenchError where one is not installed here, or not as a line names it, and
    for lines that are no requirements."""
    environment = environment_of(platforms, python_version)
    waiting = [_Wanted(Requirement(OURS), "the job")]
    for named in _lines_of(requirements, environment):
        if canonicalize_name(named.name) not in OF_SPARK:
            _check_line(named)
            waiting.append(_Wanted(named, "requirements.txt"))
    found: dict[str, metadata.Distribution] = {}
    extras: dict[str, set[str]] = {}
    while waiting:
        requirement, by = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in OF_SPARK:
            continue
        asked = {str(canonicalize_name(each)) for each in requirement.extras}
        if name in found and asked <= extras[name]:
            continue
        found[name] = _installed(requirement, by)
        extras[name] = asked = asked | extras.get(name, set())
        waiting += _requirements_of(found[name], asked, environment)
    return dict(sorted(found.items()))


def environment_of(platforms: Sequence[str], python_version: str | None) -> Environment:
    """The values of markers where the executors are; not given: on this machine. Of several platforms the
    first one counts."""
    values = {key: str(value) for key, value in default_environment().items()}
    if python_version is not None:
        digits = python_version.split(".")
        if len(digits) == 1:  # pip's short form, 312
            digits = [python_version[:1], python_version[1:] or "0"]
        values["python_version"] = ".".join(digits[:2])
        values["python_full_version"] = ".".join([*digits, "0"][:3])
    if platforms:
        system = next(each for each in _SYSTEMS if platforms[0].startswith(each))
        values["os_name"], values["sys_platform"], values["platform_system"] = _SYSTEMS[system]
        for ending, machine in _MACHINES.items():
            if platforms[0].endswith(ending):
                values["platform_machine"] = machine
    return values


def _lines_of(requirements: str, environment: Environment) -> Iterable[Requirement]:
    for line in requirements.replace("\\\n", " ").splitlines():
        text = _COMMENT.sub("", line).strip()
        if _OTHER_FILE.match(text):
            raise StreambenchError(
                f"requirements.txt has the line '{text}': write the packages themselves, as pip freeze does"
            )
        if not text or text.startswith("-"):
            continue
        try:
            named = Requirement(_OPTIONS.sub("", text))
        except InvalidRequirement as error:
            why = str(error).splitlines()[0]
            raise StreambenchError(
                f"requirements.txt has the line '{text}', which is no requirement ({why}): write NAME, "
                "NAME==VERSION or NAME @ URL"
            ) from None
        if named.marker is None or named.marker.evaluate(dict(environment)):
            yield named


def _check_line(named: Requirement) -> None:
    try:
        here = metadata.distribution(named.name)
    except metadata.PackageNotFoundError:
        raise StreambenchError(
            f"requirements.txt names {named.name}, which is not installed here: install it, as the packages "
            "are those of this environment"
        ) from None
    if not named.specifier.contains(here.version, prereleases=True):
        raise StreambenchError(
            f"requirements.txt names {named.name}{named.specifier}, and {here.version} is installed here: "
            "install the same, as the packages are those of this environment"
        )
    extras = here.metadata.get_all("Provides-Extra") or []
    known = {canonicalize_name(each) for each in extras}
    if unknown := sorted(each for each in named.extras if canonicalize_name(each) not in known):
        raise StreambenchError(
            f"requirements.txt names {named.name}[{unknown[0]}], and {named.name} {here.version} has no such "
            f"extra: give {', '.join(sorted(extras)) or 'none'}"
        )


def _installed(requirement: Requirement, by: str) -> metadata.Distribution:
    try:
        return metadata.distribution(requirement.name)
    except metadata.PackageNotFoundError:
        raise StreambenchError(
            f"{requirement.name} is needed by {by}, and is not installed here: install it (pip install "
            f"'{requirement.name}{requirement.specifier}'), as the packages are those of this environment"
        ) from None


def _requirements_of(
    package: metadata.Distribution, extras: set[str], environment: Environment
) -> Iterable[_Wanted]:
    for line in package.requires or ():
        try:
            wanted = Requirement(line)
        except InvalidRequirement as error:
            raise StreambenchError(
                f"{package.name} {package.version} needs '{line}', which is no requirement "
                f"({str(error).splitlines()[0]}): install another version of it"
            ) from None
        marker = wanted.marker
        if marker is None or any(marker.evaluate({**environment, "extra": each}) for each in {"", *extras}):
            yield _Wanted(wanted, f"{package.name} {package.version}")
