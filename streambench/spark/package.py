"""A job as one archive: its code, its configuration, and the packages that it needs.

The archive is a zip that ``spark-submit --py-files`` takes and that every command takes in place of the
properties file. Code stands in it as beside the configuration, so that executors import it from there; the
package ``streambench_job`` has the rest. The same job gives the same bytes. Its configuration holds no
secret: references stay references, and a secret in clear becomes one. Code is taken as it is, unless it holds
what looks like a secret, and other files only where they are asked for.
"""

from __future__ import annotations

import atexit
import importlib.util
import io
import re
import shlex
import sys
import zipfile
from collections.abc import Collection, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import javaproperties
import msgspec
from msgspec import Struct

import streambench
from streambench.config import Config
from streambench.errors import StreambenchError
from streambench.masking import masked
from streambench.planning.plan import name_and_id
from streambench.references import is_reference
from streambench.spark.clear_secrets import clear_secrets
from streambench.spark.dependencies import stage_dependencies
from streambench.spark.own_code import own_code, pinned
from streambench.spark.session import check_settings
from streambench.spark.staged_files import StagedFiles
from streambench.system.systems import Systems
from streambench.temporary import TemporaryDirectory

ENDING = ".zip"
_ROOT = "streambench_job"
_INIT, _CONFIG, NEEDS, _ABOUT = (
    f"{_ROOT}/__init__.py",
    f"{_ROOT}/job.properties",
    f"{_ROOT}/requirements.txt",
    f"{_ROOT}/package.json",
)
_FORMAT = 1
_SHOWN = 5
_EPOCH = (1980, 1, 1, 0, 0, 0)
_DOCSTRING = '"""A packaged job of streambench."""\n'
# Compiled against each other, or compared by version on driver and executors.
_CORE = frozenset({"msgspec", "orjson", "pandas", "pyarrow", "pyspark"})
_EXTRAS = {
    "amqp": {"pika"},
    "avro": {"fastavro"},
    "kafka": {"kafka", "crc32c"},
    "prometheus": {"prometheus_client"},
    "rocksdb": {"rocksdict"},
    "webhook": {"httpx", "starlette", "uvicorn"},
}
_NAME = re.compile(r"[^A-Za-z0-9_]+")
_LAUNCHER = '''\
"""Deploys a packaged job of streambench on the Spark that starts this program."""

from streambench.spark.__main__ import main

if __name__ == "__main__":
    main()
'''


class _About(Struct, frozen=True):
    """``directory``: what relative paths of the configuration are relative to. ``secrets``: the environment
    variables that the configuration takes secrets from because it held them in clear."""

    format: int
    name: str
    directory: str
    secrets: dict[str, str]
    streambench: str


class Dependencies(Struct, frozen=True):
    """The archive of the packages that a job needs: its ``path``, and for which Python, where it is another
    than here. ``platforms`` and ``python_version`` are named as pip takes them."""

    path: Path
    platforms: Sequence[str] = ()
    python_version: str | None = None

    def stage(self, requirements: str, staged: StagedFiles) -> int:
        """Stage it; the number of packages in it. Raises as ``stage_dependencies``."""
        return stage_dependencies(requirements, self.path, staged, self.platforms, self.python_version)


class Written(NamedTuple):
    """The files of a job that was written, and the number of packages in the archive of its dependencies."""

    archive: Path
    program: Path
    packages: int


class Package(Struct, frozen=True):
    """A job to be written. ``files``: all of the archive, by name. ``secrets``: per key whose value was left
    out, the environment variable that it is taken from. ``absent``: modules that the code imports and that
    are not installed here. ``left_out``: files in the packages of the job that are no Python."""

    name: str
    containers: int
    files: dict[str, bytes]
    secrets: dict[str, str]
    absent: tuple[str, ...]
    left_out: tuple[str, ...]
    clear: tuple[str, ...] = ()

    @property
    def launcher(self) -> str:
        """The name of the program that deploys it."""
        return f"submit_{_NAME.sub('_', self.name)}.py"

    def write(
        self, path: Path, *, allow_secrets: Collection[str] = (), dependencies: Dependencies | None = None
    ) -> Written:
        """Write the archive, the program for ``spark-submit`` beside it, and ``dependencies`` if there are
        any: all together, or none. Files that are there are replaced.

        ``allow_secrets``: places, as FILE:LINE, that are packed though they look like secrets. Raises
        StreambenchError where another file has one of their paths, or a file of the job holds a secret. Also
        where an allowed place holds none, and as ``stage_dependencies``."""
        self._check_secrets(allow_secrets)
        program = path.with_name(self.launcher)
        self._check_paths(path, program)
        with StagedFiles() as staged:
            count = 0 if dependencies is None else dependencies.stage(self.files[NEEDS].decode(), staged)
            staged.write(path, _zipped(self.files))
            staged.write(program, _LAUNCHER.encode())
            staged.put_in_place()
        return Written(path, program, count)

    def _check_paths(self, path: Path, program: Path) -> None:
        """Refuse to replace files of other kinds."""
        if path.exists() and not is_package(path):
            raise StreambenchError(
                f"{path} is no packaged job: name another file with --output, or delete it"
            )
        if program.exists() and (not program.is_file() or program.read_bytes() != _LAUNCHER.encode()):
            raise StreambenchError(f"{program} is a file of another kind: move it away")

    def _check_secrets(self, allowed: Collection[str]) -> None:
        by_place = {":".join(each.split(":", 2)[:2]): each for each in self.clear}
        for place in allowed:
            if place not in by_place:
                raise StreambenchError(
                    f"--allow-secrets {place}: nothing there looks like a secret; leave it out, or give the "
                    "place that it has moved to, as FILE:LINE"
                )
        left = [place for place in by_place if place not in allowed]
        if left:
            more = f", and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            shown = ", ".join(by_place[place] for place in left[:_SHOWN])
            options = " ".join(f"--allow-secrets {shlex.quote(place)}" for place in left[:_SHOWN])
            raise StreambenchError(
                f"{shown}{more}: the archive would hold what looks like a secret; take it from an "
                f"environment variable, or pack it as it is with {options} (allow_secrets={left[:_SHOWN]})"
            )


def package(config: Config, directory: Path | None = None, include: Sequence[str] = ()) -> Package:
    """The package of a job. ``directory``: what its relative paths are relative to where it runs; else the
    directory of its properties file. ``include``: patterns of files that are no Python.
    Raises ConfigError and StreambenchError."""
    name, _ = name_and_id(config)
    code = own_code(config, include)
    values, secrets = without_secrets(config)
    _check(config)
    values |= {"job.name": name, **code.named}
    about = _About(
        _FORMAT, name, str(directory or config.directory.absolute()), secrets, streambench.__version__
    )
    files = {
        _INIT: _DOCSTRING.encode(),
        _CONFIG: javaproperties.dumps(values, timestamp=None, sort_keys=True).encode(),
        NEEDS: _requirements(config, code.installed).encode(),
        _ABOUT: msgspec.json.format(msgspec.json.encode(about)) + b"\n",
        **{each: path.read_bytes() for each, path in code.files.items()},
    }
    containers = config.integer("job.container.count")
    taken = {each: content for each, content in files.items() if each in code.files}
    clear = clear_secrets({**taken, "requirements.txt": files[NEEDS]})
    return Package(name, containers, files, secrets, tuple(sorted(code.absent)), code.left_out, clear)


def _check(config: Config) -> None:
    """Raise ConfigError for what a deployment of the archive would refuse: a job is packed to run
    elsewhere."""
    check_settings(config)
    with closing(Systems(config)) as systems:
        for name in systems.names():
            systems.factory(name)


def without_secrets(config: Config) -> tuple[dict[str, str], dict[str, str]]:
    """The values of a configuration as they may be written to a file, and the environment variables that
    stand in it for secrets, by key. Raises ConfigError where two secrets would share a variable."""
    values: dict[str, str] = {}
    secrets: dict[str, str] = {}
    keys: dict[str, str] = {}
    for key, value in config.items():
        if not is_reference(value) and masked(key, value) != value:
            secrets[key] = name = re.sub(r"\W", "_", key).upper()
            if (other := keys.setdefault(name, key)) != key:
                raise config.error(
                    key,
                    f"the environment variable {name} would stand for this secret and for that of {other}: "
                    "write one of them as ${env:NAME} or ${file:PATH}",
                )
            value = f"${{env:{name}}}"
        values[key] = value
    return values, secrets


def is_package(path: Path) -> bool:
    """True for the file of a packaged job."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _ABOUT in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def opened(path: Path) -> Config:
    """The configuration of a packaged job. Its code lies in a temporary directory until this process ends.
    Raises StreambenchError where the file is no packaged job, or one of another version."""
    about, files = _read(path)
    place = _place()
    for name, content in files.items():
        if not name.startswith(f"{_ROOT}/"):
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    sys.path.insert(0, str(place))
    config = Config.from_text(
        files[_CONFIG].decode(), origin=f"{path.name}/job.properties", directory=Path(about.directory)
    )
    return config.with_values(_classes_in(config, place))


def with_configuration(path: Path, properties: Path) -> Path:
    """A packaged job with the configuration of a file in place of its own: a temporary archive. Raises as
    ``opened``."""
    about, files = _read(path)
    config = Config.from_file(properties)
    about = msgspec.structs.replace(about, directory=str(config.directory.absolute()))
    values = {"job.name": name_and_id(config)[0], **config}
    files[_CONFIG] = javaproperties.dumps(values, timestamp=None).encode()
    files[_ABOUT] = msgspec.json.encode(about)
    place = _place()
    (place / path.name).write_bytes(_zipped(files))
    return place / path.name


def submitted() -> Path | None:
    """The archive that ``spark-submit --py-files`` has put on the path of this process; None where there is
    none."""
    spec = importlib.util.find_spec(_ROOT)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent.parent
    return path if path.is_file() else None


def _place() -> Path:
    """A directory for the time of this process."""
    temporary = TemporaryDirectory("streambench-job-")
    atexit.register(temporary.remove)
    return temporary.path


def _classes_in(config: Config, place: Path) -> dict[str, str]:
    """The values that name classes of packaged files, with the files where they lie now."""
    found = {}
    for key, value in config.items():
        file, colon, name = value.strip().rpartition(":")
        if colon and file.endswith(".py") and (place / file).is_file():
            found[key] = f"{place / file}:{name}"
    return found


def _read(path: Path) -> tuple[_About, dict[str, bytes]]:
    try:
        with zipfile.ZipFile(path) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        about = msgspec.json.decode(files[_ABOUT], type=_About)
    except OSError as error:
        raise StreambenchError(f"{path} cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, KeyError, msgspec.MsgspecError):
        about, files = None, {}
    if about is None or any(_leads_out(name) for name in files):
        raise StreambenchError(f"{path} is no packaged job: make one with streambench package")
    if about.format != _FORMAT:
        raise StreambenchError(
            f"{path} was packaged by streambench {about.streambench}, in another format: package the job "
            "again"
        )
    return about, files


def _leads_out(name: str) -> bool:
    """True for a name that would be written outside of the directory it is unpacked in."""
    return name.startswith(("/", "\\")) or ".." in Path(name).parts


def _zipped(files: dict[str, bytes]) -> bytes:
    """Stored and not compressed: what a compressor makes of bytes depends on its version."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def _requirements(config: Config, modules: frozenset[str]) -> str:
    """Those that lie beside the configuration, else the packages that the code and the systems import."""
    beside = config.directory / "requirements.txt"
    if beside.is_file():
        return beside.read_text()
    used = sorted(_EXTRAS.keys() & {value.strip() for value in config.values()})
    needed = {*modules, *_CORE, *(module for each in used for module in _EXTRAS[each])}
    extras = ",".join([*used, "spark"])
    lines = [f"streambench[{extras}]=={metadata.version('streambench')}", *pinned(needed)]
    return "".join(f"{line}\n" for line in sorted(lines))
