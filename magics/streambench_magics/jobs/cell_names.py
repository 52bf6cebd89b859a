"""The global names of the code in a ``%%streamtask`` cell.

All cells of a notebook share one namespace. There, ``LIMIT = 4`` in the cell of a new version would change
the old one, too. A job may still run that, and a comparison needs both.
"""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from typing import Any

_MISSING: Any = object()
_KEPT_BY = "__streambench_cell__"


class CellNames:
    """The globals of one cell's code (``names``).

    Names that the cell binds are its own; the notebook gets them as the cell runs. All others are those of
    the notebook, as of the last ``sync``. What functions of the cell bind by a ``global`` statement, the
    notebook gets with each ``sync``."""

    def __init__(self, notebook: dict[str, Any], cell: str) -> None:
        """``notebook``: the namespace of the user. Raises SyntaxError."""
        top = symtable.symtable(cell, "cell", "exec")
        self._notebook = notebook
        self._own = bound_names(top)
        self._written: set[str] = set().union(*map(_global_names, inner_tables(top)))
        # Functions keep their globals, and these keep this object, for as long as the code is in use.
        self.names: dict[str, Any] = {**notebook, _KEPT_BY: self}
        self._seen: dict[str, Any] = {}

    def run(self, tree: ast.Module, filename: str) -> None:
        """Run the cell. Raises what its code raises; what was bound until then stays in the notebook.

        The notebook gets names statement by statement: libraries look up annotations there."""
        for statement in tree.body:
            before = dict(self.names)
            try:
                exec(compile(ast.Module([statement], []), filename, "exec"), self.names)
            finally:
                for name, value in list(self.names.items()):
                    if not _is_special(name) and value is not before.get(name, _MISSING):
                        self._own.add(name)
                        self._notebook[name] = value
        self._seen = {name: self.names.get(name, _MISSING) for name in self._written}

    def sync(self) -> None:
        """Take the names of other cells as they are now, and give the notebook what functions have bound."""
        names, notebook = self.names, self._notebook
        for name in self._written:
            mine, theirs = names.get(name, _MISSING), notebook.get(name, _MISSING)
            if mine is not self._seen.get(name, _MISSING):
                self._seen[name] = mine
                if mine is not _MISSING:
                    notebook[name] = mine
            elif name not in self._own and theirs is not _MISSING and theirs is not mine:
                names[name] = self._seen[name] = theirs
        kept = self._own | self._written
        for name in list(names):
            if name not in notebook and name not in kept and not _is_special(name):
                del names[name]
        names.update({name: value for name, value in list(notebook.items()) if name not in kept})


def bound_names(table: symtable.SymbolTable) -> set[str]:
    """The names that the statements of a scope bind."""
    return {each.get_name() for each in table.get_symbols() if each.is_assigned() or each.is_imported()}


def inner_tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    """Yield the scopes within a scope, at any depth."""
    for child in table.get_children():
        yield child
        yield from inner_tables(child)


def _global_names(table: symtable.SymbolTable) -> set[str]:
    """The names that a function declares as global, and binds."""
    return {
        each.get_name() for each in table.get_symbols() if each.is_declared_global() and each.is_assigned()
    }


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
