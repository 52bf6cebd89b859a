"""The files of a job's own code: those of the classes that its configuration names, and all they import.

Imports are read and not run, also those inside of functions. What is found beside the importing file, beside
the configuration, or on the path outside of the Python installation is the job's own. The rest is installed.
Only Python files are taken, and those that are asked for by name or pattern: others may hold secrets.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from streambench.config import Config
from streambench.errors import ConfigError, StreambenchError
from streambench.spark.shipment import OF_SPARK, installation
from streambench.syntax import parse

_FILE = re.compile(r"(?P<file>[^:]+\.py):[\w.]+")
_DOTTED = re.compile(r"(?P<top>[A-Za-z_]\w*)(\.\w+)*[.:]\w[\w.]*")
_LARGEST = 50 << 20
_SECRET_ENDINGS = frozenset({".env", ".jks", ".key", ".keystore", ".p12", ".pem", ".pfx", ".properties"})


class OwnCode(Struct, frozen=True):
    """``files``: per name in an archive, with / between its parts, the file. ``named``: configuration keys
    that name a class by the path of its file, where the archive has it under another name. Each has its value
    in the archive. ``installed``: the top-level modules of packages that the code imports; ``absent``: those
    that are not installed here. ``left_out``: the names of files in its packages that are not taken."""

    files: dict[str, Path]
    named: dict[str, str]
    installed: frozenset[str]
    absent: frozenset[str]
    left_out: tuple[str, ...]


def own_code(config: Config, include: Sequence[str] = ()) -> OwnCode:
    """The code of a job. ``include``: patterns of other files to take, relative to the directory of the job
    or to that of a package. Raises ConfigError where a file is not there, StreambenchError where a file
    cannot be read as Python, or two of them have one name."""
    search = _Search(config)
    for key, value in config.items():
        text = value.strip()
        if found := _FILE.fullmatch(text):
            search.add_named_file(key, text, found["file"])
        elif found := _DOTTED.fullmatch(text):
            search.add_import(found["top"], config.directory, is_sure=False)
    for pattern in include:
        search.add_matching(pattern)
    size = sum(path.stat().st_size for path in search.files.values())
    if size > _LARGEST:
        raise StreambenchError(
            f"the files of the job hold {size >> 20} MiB, which is more than code: leave out data "
            f"(the limit is {_LARGEST >> 20} MiB)"
        )
    left_out = tuple(sorted(search.others - search.files.keys()))
    return OwnCode(
        search.files, search.named, frozenset(search.installed), frozenset(search.absent), left_out
    )


def imported(text: str) -> list[str]:
    """The top-level modules that a source imports, without those of Python itself."""
    found = set()
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return sorted(found - sys.stdlib_module_names)


def pinned(modules: frozenset[str] | set[str]) -> list[str]:
    """The distributions that hold these top-level modules, in the installed versions; streambench is left
    out."""
    distributions = metadata.packages_distributions()
    names = {name for module in modules for name in distributions.get(module, ())} - {"streambench"}
    return sorted(f"{name}=={metadata.version(name)}" for name in names)


class _Search:
    def __init__(self, config: Config) -> None:
        self._config = config
        self._directory = config.directory.resolve()
        self._installed_below = installation()
        self.files: dict[str, Path] = {}
        self.named: dict[str, str] = {}
        self.installed: set[str] = set()
        self.absent: set[str] = set()
        self.others: set[str] = set()
        self._roots = {self._directory: None}
        self._packages: set[Path] = set()

    def add_named_file(self, key: str, value: str, file: str) -> None:
        path = (self._directory / self._config.relative_path(key, file)).resolve()
        if not path.is_file():
            raise self._config.error(key, f"there is no file {path}")
        name = self._add_file(path, path.parent)
        if name != file:
            self.named[key] = name + value[len(file) :]

    def add_import(self, top: str, beside: Path, *, is_sure: bool = True) -> None:
        """``is_sure``: it is an import, and not a value of the configuration that looks like one."""
        if top in sys.stdlib_module_names or top in ("streambench", "__main__", "__future__"):
            return
        for place in dict.fromkeys([beside, self._directory]):
            if (place / f"{top}.py").is_file():
                self._add_file(place / f"{top}.py", place)
                return
            if next((place / top).glob("*.py"), None) is not None:
                self._add_package(place / top, place)
                return
        self._add_from_path(top, is_sure)

    def add_matching(self, pattern: str) -> None:
        """Add the files that a pattern names. One that may hold a secret is only taken by its full name."""
        if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise ConfigError(
                f"--include '{pattern}': give a name or a pattern relative to the directory of the job"
            )
        try:
            found = [(root, path) for root in self._roots for path in sorted(root.glob(pattern))]
        except ValueError as error:
            raise ConfigError(f"--include '{pattern}': {error}") from None
        taken = 0
        for root, path in found:
            name = path.relative_to(root).as_posix()
            is_named = name == Path(pattern).as_posix()
            if not path.is_file() or (not is_named and _is_hidden(path.relative_to(root))):
                continue
            if not is_named and path.suffix.lower() in _SECRET_ENDINGS:
                raise ConfigError(
                    f"--include '{pattern}': {name} may hold a secret: narrow the pattern, or include "
                    "the file by its full name"
                )
            self._add_file(path, root)
            taken += 1
        if not taken:
            raise ConfigError(f"--include '{pattern}': there is no such file in {self._directory}")

    def _add_from_path(self, top: str, is_sure: bool) -> None:
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            spec = None
        places = [*(spec.submodule_search_locations or ())] if spec else []
        origin = spec.origin if spec else None
        is_installed = top in OF_SPARK or (origin or "").startswith(self._installed_below)
        is_own = origin is not None and origin.endswith(".py") and not is_installed
        if origin is not None and is_own and places:
            self._add_package(Path(places[0]), Path(places[0]).parent)
        elif origin is not None and is_own:
            self._add_file(Path(origin), Path(origin).parent)
        elif spec is not None:
            self.installed.add(top)
        elif is_sure:
            self.absent.add(top)

    def _add_file(self, path: Path, root: Path) -> str:
        """Add a file and what it imports; the name that it has in the archive."""
        name, path = self._name(path, root)
        module = Path(name).parts[0].removesuffix(".py")
        if path.suffix == ".py" and module in sys.stdlib_module_names:
            raise StreambenchError(f"{path} has the name of Python's own module {module}: rename it")
        former = self.files.setdefault(name, path)
        if former.resolve() != path.resolve():
            raise StreambenchError(
                f"{former} and {path} would both be {name} in the archive: rename one of them"
            )
        if former is path and path.suffix == ".py":
            for top in self._imports_of(path):
                self.add_import(top, path.parent)
        return name

    def _name(self, path: Path, root: Path) -> tuple[str, Path]:
        """The name in the archive, and the path from a resolved root. A link keeps its own name, by which it
        is imported."""
        resolved_root = root.resolve()
        path = resolved_root / path.relative_to(root)
        if path.is_relative_to(self._directory):
            return path.relative_to(self._directory).as_posix(), path
        self._roots[resolved_root] = None
        return path.relative_to(resolved_root).as_posix(), path

    def _add_package(self, package: Path, root: Path) -> None:
        if package in self._packages:
            return
        self._packages.add(package)
        for path in _files_of(package):
            if path.suffix == ".py":
                self._add_file(path, root)
            else:
                self.others.add(self._name(path, root)[0])

    @staticmethod
    def _imports_of(path: Path) -> list[str]:
        try:
            return imported(path.read_text())
        except SyntaxError as error:
            raise StreambenchError(f"{path}, line {error.lineno}: {error.msg}") from None
        except (OSError, ValueError) as error:
            raise StreambenchError(f"{path} cannot be read as Python: {error}") from None


def _files_of(package: Path) -> Iterator[Path]:
    """All files of a package, but for those that are hidden or compiled."""
    for path in sorted(package.rglob("*")):
        if path.is_file() and not _is_hidden(path.relative_to(package)):
            yield path


def _is_hidden(path: Path) -> bool:
    return path.suffix in (".pyc", ".pyo") or any(
        part.startswith(".") or part == "__pycache__" for part in path.parts
    )
