"""The recorded source of a task as a program, in which the task stands under its name."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from streambench.container.tasks.functions import CALLBACKS
from streambench.recording.header import TaskCode
from streambench.syntax import parse


def source_of(code: TaskCode) -> str:
    """The source, with a class for a cell of plain functions, which has none. Raises SyntaxError."""
    source = code.plain_source
    tree = parse(source)
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
    classes = [each.name for each in tree.body if isinstance(each, ast.ClassDef)]
    callbacks = [each for each in CALLBACKS if each in functions]
    if not callbacks or code.name.partition(".")[0] in [*functions, *classes]:
        return source
    base = "from streambench.container.tasks.functions import TaskOfFunctions"
    return f"{base}\n\n{source}\n\n\n{class_of_functions(code.name, callbacks)}"


def class_of_functions(name: str, callbacks: Sequence[str]) -> str:
    """A class whose callbacks are functions of the same names."""
    lines = "\n".join(f"    {each} = staticmethod({each})" for each in callbacks)
    return f'class {name}(TaskOfFunctions):\n    """The functions above, as one task."""\n\n{lines}'
