"""From a name in the configuration to the object it names: an entry point, ``package.module.Name``, or ``file.py:Name``."""

from __future__ import annotations

import importlib
import linecache
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

from streambench.config import Config
from streambench.errors import MissingExtraError, StreambenchError, described

_EXTRAS = {
    "fastavro": "avro", "ipywidgets": "jupyter", "kafka": "kafka", "pika": "amqp", "prometheus_client": "prometheus", "pyspark": "spark",
    "rocksdict": "rocksdb",
}  # fmt: skip


def named(config: Config, key: str, *, group: str, builtin: Mapping[str, str] | None = None) -> Any:
    """The object that the configuration names under ``key``: a builtin name, an entry point of ``group``, or a path to an object.

    Raises ConfigError that names the key and what there is to choose from, MissingExtraError where its dependency is missing.
    """
    name = config.required(key)
    path = (builtin or {}).get(name)
    if path is None:
        path = next((point.value for point in entry_points(group=group) if point.name == name), name)
    if path == name and "." not in name and ":" not in name:
        choices = sorted({*(builtin or {}), *(point.name for point in entry_points(group=group))})
        here = f"; the one defined here is __main__.{name}" if hasattr(sys.modules["__main__"], name) else ""
        there = f"; there are {', '.join(choices)}" if choices else ""
        raise config.error(key, f"there is no '{name}'{there}, or give package.module.Class{here}")
    return by_path(config, key, path)


def own_names(config: Config) -> dict[str, tuple[str, Any]]:
    """What the configuration names in ``__main__``, the notebook or script that runs here: per name, a key that names it and the object.

    Another process has another ``__main__``: these have to be brought to it (``bring``) before the configuration is used there."""
    main = sys.modules["__main__"]
    found = {}
    for key, value in config.items():
        if value.startswith(("__main__.", "__main__:")):
            name = value[len("__main__.") :].partition(".")[0]
            if hasattr(main, name):
                found[name] = (key, getattr(main, name))
    return found


def bring(names: Mapping[str, Any]) -> None:
    """Have names of another process's ``__main__`` mean the same here."""
    vars(sys.modules["__main__"]).update(names)


def called(config: Config, key: str, make: Callable[..., Any], *arguments: Any) -> Any:
    """What a class or factory that ``key`` names returns. Raises ConfigError where it cannot be called."""
    try:
        return make(*arguments)
    except StreambenchError:
        raise
    except Exception as error:
        name = getattr(make, "__qualname__", type(make).__name__)
        raise config.error(key, f"cannot make a {name}: {described(error)}") from error


def by_path(config: Config, key: str, path: str) -> Any:
    """The object at ``package.module.Name``, ``package.module:Name`` or ``file.py:Name`` (relative to the configuration file).

    Raises ConfigError where there is none; what a module raises while it is imported goes through."""
    if ":" in path:
        place, _, name = path.rpartition(":")
    else:
        place, _, name = path.rpartition(".")
    if path.endswith(".py"):
        raise config.error(key, f"'{path}' names a file and no class in it: write {path}:Class")
    if not place or not name:
        raise config.error(key, f"'{path}' names no class: write package.module.Class or file.py:Class")
    if "<locals>" in name:
        raise config.error(key, f"{name} was defined in a function, where it cannot be found: define it at the top of its module")
    found: Any = _from_file(config, key, place) if place.endswith(".py") else _from_package(config, key, place, name)
    for part in name.split("."):
        if not hasattr(found, part):
            raise config.error(key, f"{place} has no '{name}'")
        found = getattr(found, part)
    return found


def _from_package(config: Config, key: str, place: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in _EXTRAS and not place.startswith(missing):
            raise MissingExtraError(f"{key}={config[key]}", _EXTRAS[missing]) from error
        if error.name and (place == error.name or place.startswith(error.name + ".")):
            file = place.replace(".", "/") + ".py"
            hint = f"; write {file}:{name} for the file beside the configuration" if (config.directory / file).is_file() else ""
            raise config.error(key, f"there is no module {place}{hint}") from None
        raise


def _from_file(config: Config, key: str, place: str) -> ModuleType:
    """Run a file as a module. It is run anew each time, and never from cached bytecode (which is compared by the second and the size
    only): in a notebook the file may have changed since."""
    path = (config.directory / Path(place).expanduser()).resolve()
    if not path.is_file():
        raise config.error(key, f"there is no file {path}")
    name = path.stem
    loaded = sys.modules.get(name)
    is_taken = loaded is not None and Path(getattr(loaded, "__file__", None) or "") != path
    if is_taken or name in sys.stdlib_module_names:
        name = f"{path.stem}_{crc32(bytes(path)):x}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    # As for a script that is run: what stands beside it can be imported.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    linecache.checkcache(str(path))
    try:
        exec(compile(path.read_bytes(), path, "exec"), vars(module))
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError):
            wrong = config.error(key, f"{error.filename or path}, line {error.lineno}: {error.msg}")
            wrong.add_note("".join(traceback.format_exception_only(error)[:-1]).rstrip())
            raise wrong from None
        if isinstance(error, ImportError):
            raise config.error(key, f"{path.name} cannot be imported: {error}") from error
        raise
    return module
