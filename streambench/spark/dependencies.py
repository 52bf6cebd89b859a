"""The packages of a packaged job as an archive that ``spark-submit --archives`` unpacks beside each executor.

They are those of this environment, with all that they need, copied as they are installed. For another kind of
machine, or another Python, pip gets the same versions of them. Spark brings its own, which are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

import streambench
from streambench.errors import StreambenchError
from streambench.spark.requirements import OURS, needed_by
from streambench.spark.staged_files import StagedFiles, cannot_be_written
from streambench.temporary import TemporaryDirectory

FOLDER = "streambench_packages"
"""The directory that executors find the packages in, beside their own files."""

_MARK = b"packages of a job of streambench"
"""The comment of such an archive."""


def stage_dependencies(
    requirements: str,
    path: Path,
    staged: StagedFiles,
    platforms: Sequence[str] = (),
    python_version: str | None = None,
) -> int:
    """Stage the archive of all that the lines of a ``requirements.txt`` need, and return the number of
    packages in it. ``platforms`` and ``python_version``: as pip takes them, where the cluster's are not
    this machine's. Raises StreambenchError as ``needed_by``, where a package cannot be packed, and where
    another file is in the archive's place."""
    if path.exists() and not _is_archive(path):
        raise StreambenchError(
            f"{path} is no archive of packages: name another file with --output, or delete it"
        )
    found = needed_by(requirements, platforms, python_version)
    try:
        # The one that is at work here, which the executors must have, too.
        here = Path(streambench.__file__).parent
        files = dict(_files_below(here, here.parent))
        others = [each for name, each in found.items() if name != OURS]
        with ExitStack() as until_written:
            if platforms or python_version:
                downloaded = until_written.enter_context(TemporaryDirectory("streambench-packages-"))
                download(others, downloaded, platforms, python_version)
                files |= dict(_files_below(downloaded, downloaded))
            else:
                for each in others:
                    files |= dict(_installed_files(each))
            _write(staged.add(path), files, found[OURS])
    except OSError as error:
        raise cannot_be_written(path, error) from None
    return len(found)


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


def _installed_files(package: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """The files of an installed package, by their names in the archive."""
    if _is_editable(package):
        raise StreambenchError(
            f"{package.name} is installed as a link to its sources (pip install --editable), and cannot "
            "be packed: install it as it is"
        )
    if package.files is None:
        raise StreambenchError(
            f"the files of {package.name} {package.version} are not known, and it cannot be packed: install "
            "it with pip"
        )
    for file in package.files:
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
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.comment = _MARK
        for name, file in sorted(files.items()):
            if file.is_file():
                archive.write(file, name)
        texts = {
            "METADATA": ours.read_text("METADATA") or ours.read_text("PKG-INFO"),
            "entry_points.txt": ours.read_text("entry_points.txt"),
        }
        for name, text in texts.items():
            archive.writestr(f"{OURS}-{ours.version}.dist-info/{name}", text or "")


def _is_archive(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.comment == _MARK
    except (OSError, zipfile.BadZipFile):
        return False
