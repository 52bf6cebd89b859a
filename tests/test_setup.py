"""What ``make compiled`` compiles."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.test_house import nodes

CHECKOUT = Path(__file__).parent.parent


def hot() -> list[Path]:
    for statement in ast.parse((CHECKOUT / "setup.py").read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "HOT":
            return [CHECKOUT / path for path in ast.literal_eval(statement.value)]
    raise AssertionError("setup.py names no modules")


def classes(path: Path) -> list[ast.ClassDef]:
    return [node for node in nodes(path) if isinstance(node, ast.ClassDef)]


def test_what_is_compiled_is_there() -> None:
    assert [path for path in hot() if not path.is_file()] == []


def test_nothing_inherits_from_what_is_compiled_and_that_holds_no_structs() -> None:
    """A class of plain Python cannot inherit from a compiled one; and mypyc passes over the arguments of a
    Struct's definition."""
    compiled = {each.name for path in hot() for each in classes(path)}
    assert compiled
    for path in [*CHECKOUT.glob("streambench/**/*.py"), *CHECKOUT.glob("magics/**/*.py")]:
        for each in classes(path):
            assert compiled.isdisjoint(map(ast.unparse, each.bases)), f"{path}: {each.name}"
    assert [
        each.name for path in hot() for each in classes(path) if "Struct" in map(ast.unparse, each.bases)
    ] == []
