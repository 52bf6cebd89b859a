"""From the text of a notebook cell to a task class.

The cell is compiled under the name that the kernel gives to this very cell, behind as many lines as precede
it there. Only then do JupyterLab's breakpoints in it stop, and tracebacks show its lines.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from IPython.core.getipython import get_ipython
from IPython.core.interactiveshell import InteractiveShell

from streambench.container.tasks.functions import CALLBACKS, TaskOfFunctions, given_to
from streambench.errors import ConfigError
from streambench.syntax import parse
from streambench.task import StreamTask
from streambench_magics.errors import MagicError, cell_error
from streambench_magics.jobs.cell_names import run_code

_files: WeakKeyDictionary[type, str] = WeakKeyDictionary()
"""The names under which the cells of tasks were compiled. All callbacks of a task may be those of a base."""


def task_from_cell(
    shell: InteractiveShell, name: str, line: str, cell: str, wanted: str | None = None
) -> type:
    """Run the cell and return its task class; ``wanted``: which, where it holds several.

    The names that it binds are its own, and the user gets them, too.
    Raises TaskCellError where the cell cannot be run, MagicError where there is no task in it.
    """
    text = cell_text(shell, line, cell)
    filename = shell.compile.cache(text, number=_cell_number(shell), raw_code=text)
    above = len(text.splitlines()) - len(cell.splitlines())
    try:
        code = "\n" * above + cell
        tree = parse(code, filename)
        namespace = run_code(code, tree, filename, shell.user_ns)
    except Exception as error:
        raise cell_error(shell, error) from error
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    task = _class_among({each: namespace[each] for each in classes if each in namespace}, name, wanted)
    if task is None:
        task = _class_of_functions(
            name, {each: namespace[each] for each in CALLBACKS if each in functions}, tree
        )
    # Spark sends classes of the notebook by value, others by name; the name of this one would lead nowhere.
    task.__module__ = "__main__"
    _files[task] = filename
    return task


def cell_file(task: type) -> str | None:
    """The name under which the cell of a task was compiled; None for a class that no such cell made."""
    return _files.get(task)


def cell_text(shell: InteractiveShell, line: str, cell: str) -> str:
    """The whole cell as it was typed: the code that the kernel received, else (outside a kernel) made up."""
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    typed: str = parent.get("content", {}).get("code", "")
    body = _stripped_lines(cell)
    is_typed = body and _stripped_lines(typed)[-len(body) :] == body
    return typed if is_typed else f"%%streamtask {line}\n{cell}"


def _cell_number(shell: InteractiveShell) -> int:
    """The number of the cell that runs: IPython counts on before it runs one, so that its own count may be
    that of the next."""
    numbers = getattr(shell.compile, "_filename_map", {})
    return max(numbers.values(), default=shell.execution_count)


def file_name(file: str) -> str:
    """The name of a file of code as a person knows it: "cell [3]" for what a cell was compiled under."""
    numbers = _numbers()
    return f"cell [{numbers[file]}]" if file in numbers else Path(file).name


def cell_files() -> list[str]:
    """The names under which the cells of the notebook were compiled, the newest first."""
    numbers = _numbers()
    return sorted(numbers, key=lambda file: numbers[file], reverse=True)


def _numbers() -> Mapping[str, int]:
    shell: Any = get_ipython()
    return getattr(getattr(shell, "compile", None), "_filename_map", {})


def _stripped_lines(text: str) -> list[str]:
    """Lines to compare: IPython ends the last line of a body, and takes the indentation of a cell away."""
    return [line.strip() for line in text.splitlines()]


def _class_among(classes: dict[str, type], name: str, wanted: str | None) -> type | None:
    tasks = {
        each: made for each, made in classes.items() if _processes(made) and not inspect.isabstract(made)
    }
    if wanted is not None:
        if wanted not in tasks:
            raise MagicError(
                f"there is no task class {wanted} in this cell"
                + (f"; there is {', '.join(tasks)}" if tasks else "")
            )
        return tasks[wanted]
    bases = {base for made in tasks.values() for base in made.__mro__[1:]}
    tasks = {each: made for each, made in tasks.items() if made not in bases}
    alike = [each for each in tasks if each.lower() == name.lower().replace("_", "")]
    choice = alike or [each for each in tasks if issubclass(tasks[each], StreamTask)] or list(tasks)
    if len(choice) > 1:
        raise MagicError(
            f"this cell holds several tasks: {', '.join(choice)}; say which: %%streamtask {name} --class "
            f"{choice[0]}"
        )
    if not choice:
        return None
    made = tasks[choice[0]]
    for callback, arguments in CALLBACKS.items():
        if callable(getattr(made, callback, None)):
            _check(f"{made.__name__}.{callback}", callback, getattr(made, callback), ("self", *arguments))
    return made


def _processes(made: type) -> bool:
    return any(callable(getattr(made, callback, None)) for callback in ("process", "process_batch"))


def _class_of_functions(name: str, functions: dict[str, Any], tree: ast.Module) -> type:
    if not functions.keys() & {"process", "process_batch"}:
        raise MagicError(
            "there is no task in this cell: write a class with process(self, envelope, collector, "
            "coordinator), "
            "or a function process(envelope, collector, coordinator, context), the last of which may be "
            "left out; or process_batch with "
            "batch for envelope"
        )
    for callback, function in functions.items():
        _check(callback, callback, function, CALLBACKS[callback], takes_context=callback != "init")
    members: dict[str, Any] = {callback: staticmethod(function) for callback, function in functions.items()}
    return type(name, (TaskOfFunctions,), {"__doc__": ast.get_docstring(tree), **members})


def _check(
    what: str, callback: str, function: Any, arguments: tuple[str, ...], *, takes_context: bool = False
) -> None:
    """Say now, not with the first message, that a callback takes other arguments than it will be given."""
    right = f"{what}({', '.join(arguments)})"
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise MagicError(f"{what} must not be async: write def {right}")
    if inspect.isgeneratorfunction(function):
        raise MagicError(
            f"{what} must not yield, since its code would never run: send messages with collector.send(...)"
        )
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    try:
        if takes_context:
            given_to(callback, function)
        else:
            signature.bind(*arguments)
    except ConfigError as error:
        raise MagicError(str(error)) from None
    except TypeError:
        also = f", or {what}({', '.join((*arguments, 'context'))})" if takes_context else ""
        raise MagicError(
            f"{what}{signature} takes other arguments than it will be given: write def {right}{also}"
        ) from None
