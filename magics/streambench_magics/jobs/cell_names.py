"""The global names of the code in a ``%%streamtask`` cell.

All cells of a notebook share one namespace. There, ``LIMIT = 4`` in the cell of a new version would change
the old one, too. A job may still run that, and a comparison needs both. So the names that a cell binds are
its own; all others are those of the notebook.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator
from typing import Any

_MISSING: Any = object()


def run_code(cell: str, tree: ast.Module, filename: str, notebook: dict[str, Any]) -> dict[str, Any]:
    """Run the code of a cell; its names. Raises what the code raises.

    ``notebook``, the namespace of the user, gets the names that the cell binds, statement by statement:
    libraries look up annotations there. A cell whose functions bind globals (``global count``) has no names
    of its own, so that the notebook sees ``count``."""
    top = symtable.symtable(cell, filename, "exec")
    names = notebook if any(map(_binds_globals, inner_tables(top))) else _own_names(top, notebook)
    for statement in tree.body:
        before = dict(names)
        try:
            exec(compile(ast.Module([statement], []), filename, "exec"), names)
        finally:
            bound = {each: value for each, value in names.items() if value is not before.get(each, _MISSING)}
            notebook |= {each: value for each, value in bound.items() if not _is_special(each)}
    return names


def _own_names(top: symtable.SymbolTable, notebook: dict[str, Any]) -> dict[str, Any]:
    """The globals of a cell before it runs. Builtins that it uses are among them: they are found sooner."""
    behind = _behind(notebook)
    used = used_names(top) & behind.keys()
    return {"__name__": "__main__", "__builtins__": behind, **{name: behind[name] for name in used}}


def _behind(notebook: dict[str, Any]) -> dict[str, Any]:
    """Python's builtins, and behind them the names of the notebook as they are at each look.

    Python looks for a name that is no global of a function in its builtins. A bound method takes half the
    time of a function here."""
    names: Any = type("NamesOfTheNotebook", (dict,), {"__missing__": notebook.__getitem__})
    found: dict[str, Any] = names(
        {name: value for name, value in vars(builtins).items() if name not in notebook}
    )
    return found


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


def _binds_globals(table: symtable.SymbolTable) -> bool:
    """True for a function that declares names as global, and binds them."""
    return any(each.is_declared_global() and each.is_assigned() for each in table.get_symbols())


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
