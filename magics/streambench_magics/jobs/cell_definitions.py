"""The source of classes and functions of the notebook, each from the cell that defines it."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, NamedTuple

from streambench import syntax
from streambench.recording.header import cell_source
from streambench_magics.jobs.cell import cell_files

NOTEBOOK = "__main__"


def is_definition(value: Any) -> bool:
    """True for a class and a function, also in a decorator of functools."""
    return isinstance(value, type) or inspect.isfunction(inspect.unwrap(value))


class Definition(NamedTuple):
    """The source of a class or function, and the name under which its cell was compiled."""

    source: str
    file: str


def definition(name: str, value: Any, near: str | None = None) -> Definition | None:
    """The definition of a class or function; None where no cell has it. ``near``: the cell of its user."""
    cells = cell_files()
    own = [each.__code__.co_filename for each in functions_of(value)]
    names = {name, getattr(value, "__name__", name)}
    # A dataclass or an enumeration may have no function whose code names its cell.
    for file in dict.fromkeys([*(each for each in own if each in cells), *([near] if near else []), *cells]):
        source = _defined_in(file, names)
        if source is not None:
            return Definition(source, file)
    return None


def functions_of(value: Any) -> list[FunctionType]:
    """A function, or those of a class, without their decorators."""
    if not isinstance(value, type):
        function = inspect.unwrap(value)
        return [function] if inspect.isfunction(function) else []
    found = []
    for member in vars(value).values():
        if isinstance(member, property):
            member = member.fget
        function = inspect.unwrap(getattr(member, "__func__", member))
        if inspect.isfunction(function):
            found.append(function)
    return found


def own_values(value: Any) -> Mapping[str, Any]:
    """The names of its cell that a class or function uses, with the values that it keeps of them."""
    found: dict[str, Any] = {}
    if isinstance(value, type):
        found |= {base.__name__: base for base in value.__bases__ if base.__module__ == NOTEBOOK}
    for function in functions_of(value):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # the cell has deleted the name, or has yet to bind it
                continue
    return found


def _defined_in(file: str, names: set[str]) -> str | None:
    text = cell_source("".join(linecache.getlines(file)))
    try:
        tree = syntax.parse(text)
    except SyntaxError:  # what a magic returns is assigned among the code
        return None
    lines = text.splitlines()
    for node in reversed(tree.body):
        if names.intersection(_bound_by(node)):
            first = min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))
            return "\n".join(lines[first - 1 : node.end_lineno])
    return None


def _bound_by(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (each.id for each in node.targets if isinstance(each, ast.Name))
