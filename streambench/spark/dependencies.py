"""The packages of a packaged job as an archive that ``spark-submit --archives`` unpacks beside each executor.

They are those of this environment, with all that they need, copied as they are installed. For another kind of
machine, or another Python, pip gets the same versions of them. Spark brings its own, which are left out.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import streambench
from streambench.errors import StreambenchError
from streambench.fsync import fsync_directory
from streambench.spark.shipment import OF_SPARK
from streambench.temporary import TemporaryDirectory

FOLDER = "streambench_packages"
"""The directory that executors find the packages in, beside their own files."""

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(\[(?P<extras>[^]]*)\])?(?P<rest>.*)")
_PINNED = re.compile(r"\s*==\s*(?P<version>[^\s;,*]+)\s*(;.*|#.*)?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)""")
_OURS = "streambench"

Distributions = Mapping[str, metadata.Distribution]


def write_dependencies(
    requirements: str, path: Path, platforms: Sequence[str] = (), python_version: str | None = None
) -> int:
    """Write the archive of all that the lines of a ``requirements.txt`` need, and return the number of
    packages in it. ``platforms`` and ``python_version``: as pip takes them, where the cluster's differ from
    those of here. Raises StreambenchError where a package is not installed here, or in another version."""
    found = needed_by(requirements)
    temporary = None
    try:
        # The one that is at work here, which the executors must have, too.
        here = Path(streambench.__file__).parent
        files = dict(_files_below(here, here.parent))
        others = [each for name, each in found.items() if name != _OURS]
        if platforms or python_version:
            temporary = TemporaryDirectory("streambench-packages-")
            download(others, temporary.path, platforms, python_version)
            files |= dict(_files_below(temporary.path, temporary.path))
        else:
            for each in others:
                files |= dict(_installed_files(each))
        _write(path, files, found[_OURS])
    except OSError as error:
        raise StreambenchError(
            f"{error.filename or path} cannot be written: {error.strerror or error}"
        ) from None
    finally:
        if temporary is not None:
            temporary.remove()
    return len(found)


def needed_by(requirements: str) -> dict[str, metadata.Distribution]:
    """The installed packages that the lines name, streambench, and all that these need. Raises as
    ``write_dependencies``."""
    waiting = [(_OURS, "")]
    for line in requirements.splitlines():
        parts = _REQUIREMENT.match(line.strip())
        if parts is None or _normal(parts["name"]) in OF_SPARK:
            continue
        _check_version(parts["name"], parts["rest"])
        waiting.append((parts["name"], parts["extras"] or ""))
    found: dict[str, metadata.Distribution] = {}
    done = set()
    while waiting:
        name, extras = waiting.pop()
        name = _normal(name)
        if name in OF_SPARK or (name, extras) in done:
            continue
        done.add((name, extras))
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # it is for other systems, or for another Python
        waiting += _requirements_of(found[name], {each.strip() for each in extras.split(",")})
    return dict(sorted(found.items()))


def download(
    packages: Iterable[metadata.Distribution],
    directory: Path,
    platforms: Sequence[str],
    python_version: str | None,
) -> None:
    """Have pip put these versions of packages into a directory, for another kind of machine or another
    Python. Raises StreambenchError with what pip says."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--target", str(directory), "--no-deps", "--only-binary=:all:", "--no-compile"]
    for each in platforms:
        command += ["--platform", each]
    if python_version is not None:
        command += ["--python-version", python_version]
    pins = [f"{each.name}=={each.version}" for each in packages]
    ran = subprocess.run([*command, *pins], capture_output=True, text=True, check=False)
    if ran.returncode:
        said = [line for line in (ran.stderr or ran.stdout).splitlines() if line.strip()]
        raise StreambenchError(f"pip does not get the packages: {' '.join(said[-2:])}")


def _check_version(name: str, rest: str) -> None:
    try:
        here = metadata.version(name)
    except metadata.PackageNotFoundError:
        raise StreambenchError(
            f"requirements.txt names {name}, which is not installed here: install it, as the packages are "
            "those of this environment"
        ) from None
    pinned = _PINNED.fullmatch(rest)
    if pinned is not None and pinned["version"] != here:
        raise StreambenchError(
            f"requirements.txt names {name} {pinned['version']}, and {here} is installed here: install the "
            "same, as the packages are those of this environment"
        )


def _requirements_of(package: metadata.Distribution, extras: set[str]) -> Iterator[tuple[str, str]]:
    for line in package.requires or ():
        parts, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        if parts is not None and (extra is None or extra[1] in extras):
            yield parts["name"], parts["extras"] or ""


def _installed_files(package: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """The files of an installed package, by their names in the archive."""
    if _is_editable(package):
        raise StreambenchError(
            f"{package.name} is installed as a link to its sources (pip install --editable), and cannot "
            "be packed: install it as it is"
        )
    for file in package.files or ():
        if ".." not in file.parts and not file.is_absolute() and _is_wanted(file.name, file.parts):
            yield file.as_posix(), Path(str(package.locate_file(file)))


def _files_below(directory: Path, root: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(root)
        if path.is_file() and _is_wanted(path.name, name.parts):
            yield name.as_posix(), path


def _is_wanted(name: str, parts: Sequence[str]) -> bool:
    return "__pycache__" not in parts and not name.endswith((".pyc", ".pth"))


def _is_editable(package: metadata.Distribution) -> bool:
    about = json.loads(package.read_text("direct_url.json") or "{}")
    return bool(about.get("dir_info", {}).get("editable"))


def _write(path: Path, files: Mapping[str, Path], ours: metadata.Distribution) -> None:
    temporary = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, file in sorted(files.items()):
                if file.is_file():
                    archive.write(file, name)
            texts = {
                "METADATA": ours.read_text("METADATA") or ours.read_text("PKG-INFO"),
                "entry_points.txt": ours.read_text("entry_points.txt"),
            }
            for name, text in texts.items():
                archive.writestr(f"{_OURS}-{ours.version}.dist-info/{name}", text or "")
        temporary.replace(path)
        fsync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
