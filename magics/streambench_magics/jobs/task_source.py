"""The source of a task of the notebook, as a file that needs no notebook.

The whole cell of the task is taken, and before it what the cell uses of other cells. These are imports,
functions, classes, and constants that can be written down.
"""

from __future__ import annotations

import ast
import builtins
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
from streambench_magics.jobs.cell_names import bound_names, used_names

_LONGEST_CONSTANT = 10_000
_NOTEBOOK = "__main__"


def task_file(task: type, name: str, namespace: Mapping[str, Any]) -> tuple[str, str]:
    """The text of a module that holds this task, and the name of the task in it. ``namespace``: the names of
    the notebook.

    Raises MagicError for a task whose source is not known, or that uses something of the notebook that
    cannot be written to a file."""
    body = _cell_of(task, name)
    needed = _Needed(namespace)
    needed.add_names_of(body)
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

    def __init__(self, namespace: Mapping[str, Any]) -> None:
        self._namespace = namespace
        self._imports: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self._at_work: set[str] = set()

    def add_names_of(self, source: str) -> None:
        """Add what this source uses, and what that uses in turn. Raises MagicError."""
        for name in _free_names(source):
            if name in self._at_work or (hasattr(builtins, name) and name not in self._namespace):
                continue
            self._at_work.add(name)
            if name in self._namespace:
                self._add(name, self._namespace[name])

    def text(self) -> str:
        """All of it as source."""
        return "\n\n".join(
            part for part in ("\n".join(sorted(self._imports.values())), *self._sources.values()) if part
        )

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            path = value.__name__
            self._imports[name] = f"import {path}" if path == name else f"import {path} as {name}"
            return
        module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        is_elsewhere = isinstance(module, str) and module != _NOTEBOOK
        if is_elsewhere and own.isidentifier() and getattr(sys.modules.get(module or ""), own, None) is value:
            renamed = "" if own == name else f" as {name}"
            self._imports[name] = f"from {module} import {own}{renamed}"
            return
        if isinstance(value, type) or inspect.isfunction(value):
            source = _definition(name, value)
            self.add_names_of(source)
            self._sources[name] = source
            return
        self._sources[name] = f"{name} = {_literal(name, value)}"


def _cell_of(task: type, name: str) -> str:
    """The body of the cell that a task was typed in; its definition alone where that is no such cell."""
    for callback in CALLBACKS:
        function = inspect.unwrap(getattr(task, callback, None) or _cell_of)
        if function is _cell_of or not inspect.isfunction(function) or function.__module__ != _NOTEBOOK:
            continue
        lines = linecache.getlines(function.__code__.co_filename)
        start = next((at for at, line in enumerate(lines) if line.startswith("%%streamtask")), None)
        return "".join(lines[start + 1 :]) if start is not None else _definition(task.__name__, task)
    raise MagicError(
        f"the source of {name} is not in this notebook: it is {task.__module__}.{task.__qualname__}, which "
        "task.class names as it is"
    )


def _definition(name: str, value: Any) -> str:
    """The source of a class or function of the notebook. Raises MagicError."""
    functions = (
        [value]
        if inspect.isfunction(value)
        else [each for each in vars(value).values() if inspect.isfunction(each)]
    )
    for function in functions:
        text = "".join(linecache.getlines(function.__code__.co_filename))
        text = "\n" + text.partition("\n")[2] if text.startswith("%%") else text
        try:
            tree = syntax.parse(text)
        except SyntaxError:  # magics among the code
            continue
        for node in tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == value.__name__:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))
    raise MagicError(f"the task uses {name}, whose source is not known: define it in the cell of the task")


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
