"""The figures of the house, of this checkout or of another: ``python -m tests.figures [CHECKOUT ...]``.

One column for each checkout, so that two versions stand side by side. ``tests/test_house.py`` has the limits.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_house import (
    BRANCHES,
    FIRST_WORDS,
    LONGEST_LINE,
    PRAGMA,
    WORDS,
    Function,
    nodes,
    parameters,
)

HERE = Path(__file__).resolve().parent.parent
#: The layers, from the lowest. Packages of one row do not import each other.
LAYERS = (
    ("serde", "metrics"),
    ("batch",),
    ("task",),
    ("checkpoint",),
    ("system", "chooser", "store"),
    ("planning",),
    ("recording",),
    ("container",),
    ("job", "debug", "testing"),
    ("spark",),
    ("cli",),
)
PACKAGES = ("cli", "spark", "job", "debug", "testing", "container", "recording", "planning", "system",
            "chooser", "store", "checkpoint", "serde", "metrics", "config_keys")  # fmt: skip


def figures(checkout: Path) -> dict[str, str]:
    """Return each figure of a checkout by its name."""
    product = [path for root in ("streambench", "magics") for path in sorted((checkout / root).rglob("*.py"))]
    tests = [path for root in ("tests", "benchmarks", "tools") for path in (checkout / root).rglob("*.py")]
    texts = list(docstrings(product))
    private = sum(bool(FIRST_WORDS.match(each)) for each in texts)
    functions = [each for path in product for each in nodes(path) if isinstance(each, Function)]
    many = max(functions, key=parameters)
    loop = class_of(product, "EventLoop")
    run = method(loop, "run")
    return {
        "docstrings": f"{len(texts):,}",
        "docstrings with a forbidden first word": f"{private:,} ({private / len(texts):.0%})",
        "words of the list in product code": f"{matches(product, WORDS):,}",
        "'nobody' in product code": f"{matches(product, re.compile('nobody', re.IGNORECASE)):,}",
        f"lines over {LONGEST_LINE} in product code": f"{long_lines(product):,}",
        f"lines over {LONGEST_LINE} in tests and benchmarks": f"{long_lines(tests):,}",
        "most parameters": f"{parameters(many)} ({many.name})",
        "functions over 60 lines": f"{sum(length(each) > 60 for each in functions):,}",
        "parameters of EventLoop": str(parameters(method(loop, "__init__"))),
        "attributes of EventLoop": str(attributes(loop)),
        "attributes of Container": str(attributes(class_of(product, "Container"))),
        "lines of EventLoop.run": str(length(run)),
        "branches of EventLoop.run": str(sum(isinstance(each, BRANCHES) for each in ast.walk(run))),
        "calls of process() in container/": str(calls_of_process(checkout)),
        "circles among modules": str(len(circles(imports(checkout)))),
        "arrows against the layers": str(len(set(against_layers(checkout)))),
        "lines of product code": f"{lines_of_code(product):,}",
        "statements of product code": f"{statements(product):,}",
        "lines of tests and benchmarks": f"{lines_of_code(tests):,}",
        "files over 600 lines": str(
            sum(len(path.read_text().splitlines()) > 600 for path in product + tests)
        ),
        **{f"lines of {name}": f"{lines:,}" for name, lines in lines_by_package(checkout).items()},
    }


def lines_by_package(checkout: Path) -> dict[str, int]:
    """Return the lines of code of each package, and of the modules beside them."""
    found = Counter(dict.fromkeys((*PACKAGES, "the other modules", "magics"), 0))
    for path in (checkout / "streambench").rglob("*.py"):
        package = path.relative_to(checkout / "streambench").parts[0]
        found[package if package in PACKAGES else "the other modules"] += lines_of_code([path])
    found["magics"] = lines_of_code(list((checkout / "magics").rglob("*.py")))
    return dict(found)


def docstrings(paths: list[Path]) -> Iterator[str]:
    for path in paths:
        for node in nodes(path):
            if isinstance(node, (ast.Module, ast.ClassDef, Function)) and (text := ast.get_docstring(node)):
                yield text


def matches(paths: list[Path], words: re.Pattern[str]) -> int:
    return sum(len(words.findall(path.read_text())) for path in paths)


def long_lines(paths: list[Path]) -> int:
    return sum(
        len(PRAGMA.sub("", line)) > LONGEST_LINE for path in paths for line in path.read_text().splitlines()
    )


def lines_of_code(paths: list[Path]) -> int:
    """Return how many lines are not blank."""
    return sum(bool(line.strip()) for path in paths for line in path.read_text().splitlines())


def statements(paths: list[Path]) -> int:
    """Return how many statements there are: a figure that the length of lines does not change."""
    return sum(isinstance(node, ast.stmt) for path in paths for node in nodes(path))


def length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def class_of(paths: list[Path], name: str) -> ast.ClassDef:
    classes = (node for path in paths for node in nodes(path) if isinstance(node, ast.ClassDef))
    return next(each for each in classes if each.name == name)


def method(of: ast.ClassDef, name: str) -> Function:
    return next(each for each in of.body if isinstance(each, Function) and each.name == name)


def attributes(of: ast.ClassDef) -> int:
    """Return how many attributes the methods of a class set on ``self``."""
    return len(
        {
            node.attr
            for node in ast.walk(of)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
    )


def calls_of_process(checkout: Path) -> int:
    """Return in how many places the messages of a partition are handed to a task's ``process``."""
    return sum(
        isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Attribute) and node.func.attr in ("process", "process_batch"))
            or (isinstance(node.func, ast.Name) and node.func.id in ("process", "process_batch"))
        )
        for path in (checkout / "streambench" / "container").rglob("*.py")
        for node in nodes(path)
    )


@cache
def imports(checkout: Path) -> dict[str, set[str]]:
    """Return the modules that each module imports."""
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for root, package in ((checkout, "streambench"), (checkout / "magics", "streambench_magics"))
        for path in (root / package).rglob("*.py")
    }
    return {name: {each for each in imported(path, files) if each != name} for name, path in files.items()}


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Yield the imported modules, those of functions and of type checkers included."""
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                yield from [name for name in (inner, node.module) if name in known][:1]
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for each in graph[name]:
            if each not in index:
                visit(each)
                low[name] = min(low[name], low[each])
            elif each in stack:
                low[name] = min(low[name], index[each])
        if low[name] == index[name]:
            group = {stack.pop()}
            while name not in group:
                group.add(stack.pop())
            if len(group) > 1:
                found.append(group)

    for name in graph:
        if name not in index:
            visit(name)
    return found


def against_layers(checkout: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of packages of which one imports another of its own layer or of a higher one."""
    level = {name: at for at, names in enumerate(LAYERS) for name in names}
    for name, targets in imports(checkout).items():
        for target in targets:
            one, other = (f"{each}.".split(".")[1] for each in (name, target))
            if one != other and one in level and other in level and level[other] >= level[one]:
                yield one, other


def main(checkouts: list[Path]) -> None:
    columns = [figures(each) for each in checkouts]
    widths = Counter({0: max(map(len, columns[0]))})
    for at, (checkout, column) in enumerate(zip(checkouts, columns, strict=True), start=1):
        widths[at] = max(len(checkout.name), *map(len, column.values()))
    print("".ljust(widths[0]), *(each.name.rjust(widths[at]) for at, each in enumerate(checkouts, start=1)))
    for name in columns[0]:
        print(
            name.ljust(widths[0]),
            *(each[name].rjust(widths[at]) for at, each in enumerate(columns, start=1)),
        )


if __name__ == "__main__":
    main([Path(each).resolve() for each in sys.argv[1:]] or [HERE])
