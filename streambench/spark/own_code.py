"""The files of a job's own code: those of the classes that its configuration names, and all they import.

Imports are read and not run, also those inside of functions. What is found beside the importing file, beside
the configuration, or on the path outside of the Python installation is the job's own; the rest is installed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from streambench.config import Config
from streambench.errors import StreambenchError
from streambench.spark.shipment import installation

_FILE = re.compile(r"(?P<file>[^:]+\.py):[\w.]+")
_DOTTED = re.compile(r"(?P<top>[A-Za-z_]\w*)(\.\w+)*[.:]\w[\w.]*")
_LARGEST_PACKAGE = 50 << 20


class OwnCode(Struct, frozen=True):
    """``files``: per name in an archive, with / between its parts, the file. ``named``: per configuration key
    that names a class of a file by a path that is not its name in the archive, the value that does.
    ``installed``: the top-level modules of packages that the code imports; ``absent``: those that are not
    installed here."""

    files: dict[str, Path]
    named: dict[str, str]
    installed: frozenset[str]
    absent: frozenset[str]


def own_code(config: Config) -> OwnCode:
    """The code of a job. Raises ConfigError where a file is not there, StreambenchError where a file cannot
    be read as Python, or two of them have one name."""
    search = _Search(config)
    for key, value in config.items():
        text = value.strip()
        if found := _FILE.fullmatch(text):
            search.add_named_file(key, text, found["file"])
        elif found := _DOTTED.fullmatch(text):
            search.add_import(found["top"], config.directory, is_sure=False)
    return OwnCode(search.files, search.named, frozenset(search.installed), frozenset(search.absent))


def imported(text: str) -> list[str]:
    """The top-level modules that a source imports, without those of Python itself."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return sorted(found - sys.stdlib_module_names)


def pinned(modules: frozenset[str] | set[str]) -> list[str]:
    """The distributions that hold these top-level modules, in the versions of here; streambench is left
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

    def _add_from_path(self, top: str, is_sure: bool) -> None:
        try:
            spec = find_spec(top)
        except (ImportError, ValueError):
            spec = None
        places = [*(spec.submodule_search_locations or ())] if spec else []
        origin = spec.origin if spec else None
        is_own = (
            origin is not None and origin.endswith(".py") and not origin.startswith(self._installed_below)
        )
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
        path = path.resolve()
        known_root = self._directory if path.is_relative_to(self._directory) else root.resolve()
        name = path.relative_to(known_root).as_posix()
        module = Path(name).parts[0].removesuffix(".py")
        if module in sys.stdlib_module_names:
            raise StreambenchError(f"{path} has the name of Python's own module {module}: rename it")
        former = self.files.setdefault(name, path)
        if former != path:
            raise StreambenchError(
                f"{former} and {path} would both be {name} in the archive: rename one of them"
            )
        if former is path and path.suffix == ".py":
            for top in self._imports_of(path):
                self.add_import(top, path.parent)
        return name

    def _add_package(self, package: Path, root: Path) -> None:
        if package in self._packages:
            return
        self._packages.add(package)
        files = list(_files_of(package))
        size = sum(path.stat().st_size for path in files)
        if size > _LARGEST_PACKAGE:
            raise StreambenchError(
                f"{package} holds {size >> 20} MiB, which is more than code: move the data out "
                f"of the package (the limit is {_LARGEST_PACKAGE >> 20} MiB)"
            )
        for path in files:
            self._add_file(path, root)

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
        parts = path.relative_to(package).parts
        is_kept = not any(part.startswith(".") or part == "__pycache__" for part in parts)
        if is_kept and path.is_file() and path.suffix not in (".pyc", ".pyo"):
            yield path
