"""From a name in the configuration to the object it names: an entry point, ``package.module.Name``, or
``file.py:Name``."""

from __future__ import annotations

import importlib
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from zlib import crc32

from streambench.config import Config
from streambench.errors import MissingExtraError, StreambenchError, described

_Made = TypeVar("_Made")
_EXTRAS = {
    "fastavro": "avro",
    "ipywidgets": "jupyter",
    "kafka": "kafka",
    "pika": "amqp",
    "prometheus_client": "prometheus",
    "pyspark": "spark",
    "rocksdict": "rocksdb",
}


def resolve(
    config: Config,
    key: str,
    *,
    group: str,
    builtin: Mapping[str, str] | None = None,
    again: bool = True,
) -> Any:
    """The object that the configuration names under ``key``: a builtin name, an entry point of ``group``, or
    a path to an object. ``again``: as for ``by_path``.

    Raises ConfigError that names the key and what there is to choose from, MissingExtraError where its
    dependency is missing.
    """
    name = config.required(key)
    path = (builtin or {}).get(name)
    if path is None:
        path = brought_by_packages(group).get(name, name)
    if path == name and "." not in name and ":" not in name:
        choices = sorted({*(builtin or {}), *brought_by_packages(group)})
        here = f"; the one defined here is __main__.{name}" if hasattr(sys.modules["__main__"], name) else ""
        there = f"; there are {', '.join(choices)}" if choices else ""
        raise config.error(key, f"there is no '{name}'{there}, or give package.module.Class{here}")
    return by_path(config, key, path, again=again)


def brought_by_packages(group: str) -> dict[str, str]:
    """The names of a group of entry points, each with the path to its object.

    To ask the packages costs as much as most of a job's start."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=group)}


def own_names(config: Config) -> dict[str, tuple[str, Any]]:
    """Return what the configuration names in ``__main__``, the notebook or script that runs here: per name, a
    key that names it and the object.

    Another process has another ``__main__``: these have to be brought to it (``install_main_names``) before
    the configuration is used there."""
    main = sys.modules["__main__"]
    found = {}
    for key, value in config.items():
        if value.startswith(("__main__.", "__main__:")):
            name = value[len("__main__.") :].partition(".")[0]
            if hasattr(main, name):
                found[name] = (key, getattr(main, name))
    return found


def install_main_names(names: Mapping[str, Any]) -> None:
    """Have names of another process's ``__main__`` mean the same here."""
    vars(sys.modules["__main__"]).update(names)


def instantiate(
    config: Config, key: str, make: Callable[..., Any], *arguments: Any, least: int | None = None
) -> Any:
    """Call the class or factory that ``key`` names, and return its result; ``least``: as for
    ``call_promised``. Raises ConfigError where it cannot be called."""
    try:
        return make(*arguments) if least is None else call_promised(make, least, *arguments)
    except StreambenchError:
        raise
    except Exception as error:
        name = getattr(make, "__qualname__", type(make).__name__)
        raise config.error(key, f"cannot make a {name}: {described(error)}") from error


def call_promised(make: Callable[..., _Made], least: int, *arguments: Any) -> _Made:
    """Call a plug-in's method and return its result. Where it takes fewer arguments it gets fewer, though not
    less than ``least``: its author needs no others."""
    for count in range(len(arguments), least, -1):
        try:
            signature(make).bind(*arguments[:count])
        except TypeError:
            continue
        except ValueError:  # written in C, it does not say
            pass
        return make(*arguments[:count])
    return make(*arguments[:least])


def by_path(config: Config, key: str, path: str, *, again: bool = True) -> Any:
    """The object at ``package.module.Name``, ``package.module:Name`` or ``file.py:Name`` (relative to the
    configuration file). ``again``: a file is run again even where this process has run it before.

    Raises ConfigError where there is none, or a module ends the process; what else one raises while it is
    imported goes through."""
    config.refuse_java(key, path)
    if ":" in path:
        place, _, name = path.rpartition(":")
    else:
        place, _, name = path.rpartition(".")
    if path.endswith(".py"):
        raise config.error(key, f"'{path}' names a file and no class in it: write {path}:Class")
    if not place or not name:
        raise config.error(key, f"'{path}' names no class: write package.module.Class or file.py:Class")
    if "<locals>" in name:
        raise config.error(
            key,
            f"{name} was defined in a function, where it cannot be found: define it at the top of its module",
        )
    found: Any = (
        _from_file(config, key, place, again=again)
        if place.endswith(".py")
        else _from_package(config, key, place, name)
    )
    for part in name.split("."):
        if not hasattr(found, part):
            raise config.error(key, f"{place} has no '{name}'")
        found = getattr(found, part)
    return found


def _from_package(config: Config, key: str, place: str, name: str) -> ModuleType:
    """Import a module; a package beside the configuration is found as well, behind all others of its name."""
    if not all(place.split(".")):
        raise config.error(key, f"there is no module {place}: its name has no empty parts")
    first = config.directory / place.partition(".")[0]
    # Of what can be no path at all, these say no.
    if os.path.isdir(first) or os.path.isfile(f"{first}.py"):
        _find_beside(config.directory)
    try:
        module = importlib.import_module(place)
    except SystemExit as error:
        raise _ends_process(config, key, place, error) from error
    except UnicodeEncodeError:
        raise config.error(key, f"there is no module {place}") from None
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing in _EXTRAS and not place.startswith(missing):
            raise MissingExtraError(f"{key}={config[key]}", _EXTRAS[missing]) from error
        if error.name and (place == error.name or place.startswith(error.name + ".")):
            file = _relative(place)
            hint = (
                f"; write {file}:{name} for the file beside the configuration"
                if os.path.isfile(config.directory / file)
                else ""
            )
            raise config.error(key, f"there is no module {place}{hint}") from None
        raise
    beside = config.directory / _relative(place)
    origin: str | None = getattr(module, "__file__", None)
    if os.path.isfile(beside) and origin is not None and not _are_one(origin, beside):
        config.warn(
            key,
            f"{place} is taken from {origin}, and not from the one beside the configuration: write "
            f"{_relative(place)}:{name}",
        )
    return module


def _are_one(first: str, second: Path) -> bool:
    return first == str(second) or Path(first).resolve() == second.resolve()


def _relative(place: str) -> str:
    return place.replace(".", "/") + ".py"


def _ends_process(config: Config, key: str, place: str, error: SystemExit) -> StreambenchError:
    what = f"{place} ends the process ({described(error)}) when it is imported"
    return config.error(key, f"{what}: a script calls what ends it below if __name__ == '__main__':")


def _find_beside(directory: Path) -> None:
    """Have modules in this directory found, after all others."""
    if str(directory) in sys.path:
        return
    path = str(directory.resolve())
    if path not in sys.path:
        sys.path.append(path)
        importlib.invalidate_caches()


def _from_file(config: Config, key: str, place: str, *, again: bool) -> ModuleType:
    """Run a file as a module. It is run ``again`` each time, since in a notebook the file may have changed.
    Cached bytecode is not used: it is compared by the second and the size only."""
    path = (config.directory / config.relative_path(key, place)).resolve()
    if not path.is_file():
        raise config.error(key, f"there is no file {path}")
    name = path.stem
    loaded = sys.modules.get(name)
    is_taken = loaded is not None and Path(getattr(loaded, "__file__", None) or "") != path
    if is_taken or name in sys.stdlib_module_names:
        name = f"{path.stem}_{crc32(bytes(path)):x}"
    former = sys.modules.get(name)
    if former is not None and not again:
        return former
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    # As for a script that is run: what stands beside it can be imported.
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    if path.is_relative_to(config.directory.resolve()):
        _find_beside(config.directory)  # by which a file of a package finds its package
    linecache.checkcache(str(path))
    try:
        # As an import would: without what this module imports from __future__.
        exec(compile(path.read_bytes(), path, "exec", dont_inherit=True), vars(module))
    except BaseException as error:
        if former is None:
            del sys.modules[name]
        else:  # whose classes may be in use
            sys.modules[name] = former
        if isinstance(error, SystemExit):
            raise _ends_process(config, key, place, error) from error
        if isinstance(error, SyntaxError):
            wrong = config.error(key, f"{error.filename or path}, line {error.lineno}: {error.msg}")
            wrong.add_note("".join(traceback.format_exception_only(error)[:-1]).rstrip())
            raise wrong from None
        if isinstance(error, ImportError):
            hint = ""
            if "relative import" in str(error):
                dotted = ".".join(Path(place).with_suffix("").parts)
                hint = f"; name a module of a package by its dots: {dotted}.Class"
            raise config.error(key, f"{path.name} cannot be imported: {error}{hint}") from error
        raise
    return module
