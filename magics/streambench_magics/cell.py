"""From the text of a notebook cell to a task class.

The cell is compiled under the name that the kernel gives to this very cell, and with as many lines before it as stand above it there:
only then do JupyterLab's breakpoints in it stop, and tracebacks show its lines.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from streambench.task import StreamTask
from streambench_magics.errors import MagicError, cell_error

_CALLBACKS = {
    "process": ("envelope", "collector", "coordinator"),
    "process_batch": ("batch", "collector", "coordinator"),
    "init": ("context",),
    "window": ("collector", "coordinator"),
    "end_of_stream": ("collector", "coordinator"),
    "close": (),
}


def task_from_cell(shell: InteractiveShell, name: str, line: str, cell: str, wanted: str | None = None) -> type:
    """Run the cell in the user's namespace and return its task class; ``wanted``: which, where it holds several.

    Raises TaskCellError where the cell cannot be run, MagicError where there is no task in it.
    """
    text = cell_text(shell, line, cell)
    filename = shell.compile.cache(text, number=shell.execution_count, raw_code=text)
    above = text[: text.rindex(cell)].count("\n") if cell in text else 1
    try:
        tree = ast.parse("\n" * above + cell, filename)
        exec(compile(tree, filename, "exec"), shell.user_ns)
    except Exception as error:
        raise cell_error(shell, error) from error
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    namespace: dict[str, Any] = shell.user_ns
    task = _class_among({each: namespace[each] for each in classes if each in namespace}, name, wanted)
    if task is None:
        task = _class_of_functions(name, {each: namespace[each] for each in _CALLBACKS if each in functions}, tree)
    # Spark sends classes of the notebook by value, others by name; the name of this one would lead nowhere.
    task.__module__ = "__main__"
    return task


def cell_text(shell: InteractiveShell, line: str, cell: str) -> str:
    """The whole cell as it was typed: what the kernel was sent, else (outside a kernel) as it must have been."""
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    typed = parent.get("content", {}).get("code", "")
    return typed if cell and cell in typed else f"%%streamtask {line}\n{cell}"


def _class_among(classes: dict[str, type], name: str, wanted: str | None) -> type | None:
    tasks = {each: made for each, made in classes.items() if _processes(made) and not inspect.isabstract(made)}
    if wanted is not None:
        if wanted not in tasks:
            raise MagicError(f"there is no task class {wanted} in this cell" + (f"; there is {', '.join(tasks)}" if tasks else ""))
        return tasks[wanted]
    bases = {base for made in tasks.values() for base in made.__mro__[1:]}
    tasks = {each: made for each, made in tasks.items() if made not in bases}
    alike = [each for each in tasks if each.lower() == name.lower().replace("_", "")]
    choice = alike or [each for each in tasks if issubclass(tasks[each], StreamTask)] or list(tasks)
    if len(choice) > 1:
        raise MagicError(f"this cell holds several tasks: {', '.join(choice)}; say which: %%streamtask {name} --class {choice[0]}")
    if not choice:
        return None
    made = tasks[choice[0]]
    for callback, arguments in _CALLBACKS.items():
        if callable(getattr(made, callback, None)):
            _check(f"{made.__name__}.{callback}", getattr(made, callback), ("self", *arguments))
    return made


def _processes(made: type) -> bool:
    return any(callable(getattr(made, callback, None)) for callback in ("process", "process_batch"))


def _class_of_functions(name: str, functions: dict[str, Any], tree: ast.Module) -> type:
    if not functions.keys() & {"process", "process_batch"}:
        raise MagicError(
            "there is no task in this cell: write a class with process(self, envelope, collector, coordinator), "
            "or a function process(envelope, collector, coordinator); or process_batch with batch for envelope"
        )
    for callback, function in functions.items():
        _check(callback, function, _CALLBACKS[callback])
    members: dict[str, Any] = {callback: staticmethod(function) for callback, function in functions.items()}
    return type(name, (StreamTask,), {"__doc__": ast.get_docstring(tree), **members})


def _check(what: str, function: Any, arguments: tuple[str, ...]) -> None:
    """Say now, not with the first message, that a callback takes other arguments than it will be given."""
    right = f"{what}({', '.join(arguments)})"
    if inspect.iscoroutinefunction(function):
        raise MagicError(f"{what} must not be async: write def {right}")
    try:
        signature = inspect.signature(function)
    except ValueError:
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise MagicError(f"{what}{signature} takes other arguments than it will be given: write def {right}") from None
