"""Packing what travels to the executors.

Code that is installed there (streambench, packages) is sent by name. A task class of a notebook, of a file
beside the configuration, or of any module outside the Python installation is sent itself. Executors may not
have that file, and a Python worker that Spark reuses would still have its former contents.
"""

from __future__ import annotations

import linecache
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from streambench.config import Config
from streambench.container.tasks.functions import unsendable
from streambench.errors import StreambenchError
from streambench.metrics.reporter import is_builtin
from streambench.spark.worker import RunContainers, Shipment

OF_SPARK = frozenset({"pyspark", "py4j"})
"""On each executor; outside of the Python installation where Spark was unpacked, not installed by pip."""

_BY_NAME = {"streambench", "streambench_magics", "__main__", "__mp_main__", *OF_SPARK}


def pack(shipment: Shipment) -> RunContainers:
    """Everything handed to Spark. Raises StreambenchError where the task holds something that cannot be
    sent."""
    with _own_modules_by_value():
        try:
            return RunContainers(_cloudpickle().dumps(shipment))
        except Exception as error:
            raise StreambenchError(
                f"{getattr(shipment.task, '__name__', shipment.task)} cannot be sent to Spark "
                f"({type(error).__name__}: {error}): it refers to something that exists only in this "
                f"process, such as a lock, a connection or a Spark session; {unsendable(shipment.task)}"
            ) from error


def without_endpoints(config: Config) -> Config:
    """The configuration without Prometheus reporters: a container on Spark lives too short to be scraped, on
    a machine that is not known beforehand. The other reporters report from the executors."""
    left_out = _endpoints(config)
    kept = [name for name in config.names("metrics.reporters") if name not in left_out]
    return config.with_values({"metrics.reporters": kept or None}) if left_out else config


def without_effect(config: Config) -> str:
    """The warning about reporters that report nothing from Spark; empty where there are none."""
    names = _endpoints(config)
    if not names:
        return ""
    which = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} left out on Spark"
    return (
        f"metrics.reporters: {which}: Prometheus cannot ask containers that end with the batch, on machines "
        "that are not known beforehand. To keep metrics of deployments, add a reporter with "
        "metrics.reporter.<name>.class=snapshot and .stream=SYSTEM.STREAM (or class=log); `streambench run` "
        "serves Prometheus as before"
    )


def _endpoints(config: Config) -> list[str]:
    return [name for name in config.names("metrics.reporters") if is_builtin(config, name, "prometheus")]


def sources(*code: Any) -> dict[str, str]:
    """The text of each file or notebook cell that holds methods of these classes (or is one of these
    functions), where it is known here."""
    parts = [part for each in code for part in _parts(each)]
    files = {part.__code__.co_filename for part in parts if isinstance(part, FunctionType)}
    texts = {file: "".join(linecache.getlines(file)) for file in files if not file.startswith(installation())}
    return {file: text for file, text in texts.items() if text}


def _parts(code: Any) -> list[Any]:
    if not isinstance(code, type):
        return [code]
    members = [part for kind in code.__mro__ for part in vars(kind).values()]
    return [part.__func__ if isinstance(part, staticmethod) else part for part in members]


@contextmanager
def _own_modules_by_value() -> Iterator[None]:
    cloudpickle = _cloudpickle()
    present = cloudpickle.list_registry_pickle_by_value()
    added = [module for module in own_modules() if module.__name__ not in present]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def own_modules() -> list[ModuleType]:
    """The modules that were loaded from files outside the Python installation; streambench is none of
    them."""
    installed = installation()
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or module.__name__ != name or name.split(".")[0] in _BY_NAME:
            continue
        if not file.startswith(installed):
            found.append(module)
    return found


def installation() -> tuple[str, ...]:
    """The directories of the Python installation, each with a separator behind it; those of a virtual
    environment and of the Python below it."""
    paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    both = {str(path) for each in paths for path in (Path(each), Path(each).resolve())}
    return tuple(sorted(f"{path.rstrip(os.sep)}{os.sep}" for path in both))


def _cloudpickle() -> Any:
    """Spark's own, which its workers unpack; the package of that name keeps a register of its own."""
    from pyspark import cloudpickle

    return cloudpickle
