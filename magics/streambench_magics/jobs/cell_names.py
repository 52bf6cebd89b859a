"""The names that the code of a ``%%streamtask`` cell binds.

All cells of a notebook share one namespace. There, ``LIMIT = 4`` in the cell of a new version would change
the old one, too. A job may still run that, and a comparison needs both. So a cell runs as the body of a
function. Its functions and classes keep the names that it binds in their closures; all other names are those
of the notebook.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from streambench.syntax import parse

_CELL, _PUBLISH, _LOCALS = "__cell__", "__publish__", "__locals__"
_PREFIX = f"{_CELL}.<locals>."
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def run_code(text: str, tree: ast.Module, filename: str, notebook: dict[str, Any]) -> Mapping[str, Any]:
    """Run the code of a cell; its names. Raises what the code raises.

    ``notebook``, the namespace of the user, gets the names that the cell binds, statement by statement:
    libraries look up annotations there. A cell with a ``global`` statement or ``import *`` has no names of
    its own: it runs in the notebook."""
    top = symtable.symtable(text, filename, "exec")
    # Whatever is no code of a module is refused before anything runs. What this module imports from
    # __future__ is not inherited: annotations of a cell are values, as in a plain cell.
    code = compile(tree, filename, "exec", dont_inherit=True)
    if _is_shared(top, tree):
        exec(code, notebook)
        return notebook
    own = bound_names(top)
    known = sorted(own & notebook.keys())
    bound = set(known)

    def publish(names: Mapping[str, Any]) -> None:
        now = own & names.keys()
        for name in bound - now:
            notebook.pop(name, None)
        notebook.update({name: names[name] for name in now})
        bound.update(now)

    cell = _function_of(tree, filename, [_PUBLISH, _LOCALS, *known], notebook)
    names: Mapping[str, Any] = cell(publish, locals, *(notebook[name] for name in known))
    return names


def _function_of(
    tree: ast.Module, filename: str, parameters: list[str], notebook: dict[str, Any]
) -> FunctionType:
    """A function whose body is a cell, and which returns its names. What it defines is named as in a
    module."""
    named = ", ".join(parameters)
    made = parse(f"def {_CELL}({named}): return {_LOCALS}()")
    function = made.body[0]
    assert isinstance(function, ast.FunctionDef)
    of_the_future = [each for each in tree.body if _is_of_the_future(each)]
    made.body[:0] = of_the_future  # these have to stand first
    function.body[:0] = _publishing([each for each in tree.body if each not in of_the_future])
    found: dict[str, Any] = {}
    exec(compile(made, filename, "exec", dont_inherit=True), notebook, found)
    cell: FunctionType = found[_CELL]
    cell.__code__ = _as_of_a_module(cell.__code__).replace(co_name="<module>", co_qualname="<module>")
    return cell


def _is_of_the_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _publishing(statements: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a cell, after each of which the notebook gets the names; also within blocks."""
    found: list[ast.stmt] = []
    for statement in statements:
        publish = parse(f"{_PUBLISH}({_LOCALS}())").body[0]
        for node in ast.walk(publish):
            ast.copy_location(node, statement)
        if not isinstance(statement, _SCOPES):
            for part in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
                for block in ("body", "orelse", "finalbody"):
                    if inner := getattr(part, block, None):
                        setattr(part, block, _publishing(inner))
        found += [statement, publish]
    return found


def _as_of_a_module(code: CodeType) -> CodeType:
    """Code whose functions and classes do not have the function of the cell in their names."""
    constants = tuple(
        _as_of_a_module(each)
        if isinstance(each, CodeType)
        else each.removeprefix(_PREFIX)
        if isinstance(each, str)
        else each
        for each in code.co_consts
    )
    return code.replace(co_consts=constants, co_qualname=code.co_qualname.removeprefix(_PREFIX))


def _is_shared(top: symtable.SymbolTable, tree: ast.Module) -> bool:
    """True where the names of a cell cannot be its own."""
    tables = [top, *inner_tables(top)]
    imported = {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    return "*" in imported or any(map(_declares_globals, tables))


def _declares_globals(table: symtable.SymbolTable) -> bool:
    return any(each.is_declared_global() for each in table.get_symbols())


def used_names(top: symtable.SymbolTable) -> set[str]:
    """The global names that the code of a module uses."""
    used = {each.get_name() for each in top.get_symbols() if each.is_referenced()}
    for table in inner_tables(top):
        used |= {each.get_name() for each in table.get_symbols() if each.is_global()}
    return used


def bound_names(table: symtable.SymbolTable) -> set[str]:
    """The names that the statements of a scope bind."""
    return {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}


def inner_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield the scopes within a scope, at any depth."""
    for child in table.get_children():
        yield child
        yield from inner_tables(child)
