"""The source of a task of the notebook, as a file that needs no notebook.

The whole cell of the task is taken, and before it what the cell uses of other cells. These are imports,
functions, classes, and constants that can be written down.
"""

from __future__ import annotations

import inspect
import linecache
import symtable
import sys
import textwrap
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from streambench import syntax
from streambench.container.tasks.functions import CALLBACKS, TaskOfFunctions
from streambench.debug.replay.recorded_source import class_of_functions
from streambench_magics.errors import MagicError
from streambench_magics.jobs.cell import cell_file
from streambench_magics.jobs.cell_definitions import NOTEBOOK, definition, is_definition, own_values
from streambench_magics.jobs.cell_names import bound_names, used_names

_LONGEST_CONSTANT = 10_000


def task_file(task: type, name: str, namespace: Mapping[str, Any]) -> tuple[str, str]:
    """The text of a module that holds this task, and the name of the task in it. ``namespace``: the names of
    the notebook.

    Raises MagicError for a task whose source is not known, or that uses something of the notebook that
    cannot be written to a file."""
    body = _cell_of(task, name)
    needed = _Needed(namespace, task, body)
    needed.add_names_of(body, own_values(task), cell_file(task))
    parts = [needed.text(), body.strip("\n")]
    found = task.__name__
    if issubclass(task, TaskOfFunctions):
        found = name
        members = [
            each for each in CALLBACKS if isinstance(inspect.getattr_static(task, each, None), staticmethod)
        ]
        parts.insert(0, "from streambench.container.tasks.functions import TaskOfFunctions")
        parts.append(class_of_functions(name, members))
    text = "\n\n\n".join(part for part in parts if part)
    return f"{text}\n", found


class _Needed:
    """Everything of the notebook that a source uses, each once, what is used before its user."""

    def __init__(self, namespace: Mapping[str, Any], task: type, body: str) -> None:
        self._namespace = namespace
        self._imports: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        own = {**namespace, **own_values(task)}
        bound = bound_names(symtable.symtable(body, "task", "exec"))
        #: By name, which a file can bind once. The cell of the task binds its own.
        self._values: dict[str, Any] = {each: own[each] for each in bound & own.keys()}
        self._added: set[str] = set()

    def add_names_of(self, source: str, own: Mapping[str, Any], file: str | None) -> None:
        """Add what this source uses, and what that uses in turn. ``own``: the values that the code keeps of
        names of its cell, ``file``. Raises MagicError."""
        for name in _free_names(source):
            if name not in own and name not in self._namespace:
                continue
            value = own[name] if name in own else self._namespace[name]
            known = self._values.setdefault(name, value)
            if not _are_alike(name, known, value):
                raise MagicError(
                    f"the task uses two values of {name}, of different cells, and a file has only one: "
                    "rename one of them"
                )
            if name not in self._added:
                self._added.add(name)
                self._add(name, value, file)

    def text(self) -> str:
        """All of it as source."""
        return "\n\n".join(
            part for part in ("\n".join(sorted(self._imports.values())), *self._sources.values()) if part
        )

    def _add(self, name: str, value: Any, file: str | None) -> None:
        if isinstance(value, ModuleType):
            path = value.__name__
            self._imports[name] = f"import {path}" if path == name else f"import {path} as {name}"
            return
        module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        is_elsewhere = isinstance(module, str) and module != NOTEBOOK
        if is_elsewhere and own.isidentifier() and getattr(sys.modules.get(module or ""), own, None) is value:
            renamed = "" if own == name else f" as {name}"
            self._imports[name] = f"from {module} import {own}{renamed}"
            return
        if is_definition(value):
            found = definition(name, value, file)
            if found is None:
                raise _not_known(name)
            self.add_names_of(found.source, own_values(value), found.file)
            self._sources[name] = found.source
            return
        self._sources[name] = f"{name} = {_literal(name, value)}"


def _are_alike(name: str, one: Any, other: Any) -> bool:
    """True where one value can stand for the other: a cell that runs again makes its functions again."""
    if one is other:
        return True
    if is_definition(one) and is_definition(other):
        found = [definition(name, each) for each in (one, other)]
        return len({each and each.source for each in found}) == 1
    try:
        return bool(one == other) and type(one) is type(other)
    except Exception:
        return False


def _cell_of(task: type, name: str) -> str:
    """The body of the cell that a task was typed in; its definition alone where that is no such cell."""
    file = cell_file(task)
    if file is not None:
        lines = linecache.getlines(file)
        start = next(at for at, line in enumerate(lines) if line.lstrip().startswith("%%streamtask"))
        return textwrap.dedent("".join(lines[start + 1 :]))
    if task.__module__ != NOTEBOOK:
        raise MagicError(
            f"the source of {name} is not in this notebook: it is {task.__module__}.{task.__qualname__}, "
            "which task.class names as it is"
        )
    found = definition(task.__name__, task)
    if found is None:
        raise _not_known(name)
    return found.source


def _not_known(name: str) -> MagicError:
    return MagicError(f"the task uses {name}, whose source is not known: define it in the cell of the task")


def _literal(name: str, value: Any) -> str:
    text = repr(value)
    try:
        if len(text) <= _LONGEST_CONSTANT and syntax.literal(text) == value:
            return text
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        pass
    raise MagicError(
        f"the task uses {name} of the notebook ({type(value).__name__}), which cannot be written to a file: "
        "make it in the cell of the task, or in its init()"
    )


def _free_names(source: str) -> list[str]:
    """The global names that a source uses and does not define itself, in the order of the alphabet."""
    top = symtable.symtable(source, "task", "exec")
    return sorted(used_names(top) - bound_names(top))
