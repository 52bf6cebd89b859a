"""The generated parts of docs/architecture.md: import diagram and module tables of ``streambench/container``,
and the rooms of the debugger and of the magics.

``python -m tests.architecture`` prints them, ``python -m tests.architecture --write`` puts them between the
markers of the page. ``tests/test_architecture.py`` compares the page with the code.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.test_house import parsed

CHECKOUT = Path(__file__).resolve().parent.parent
PAGE = CHECKOUT / "docs" / "architecture.md"
CONTAINER = CHECKOUT / "streambench" / "container"
PACKAGE = "streambench.container."

Edge = tuple[str, str]


@cache
def folders() -> list[str]:
    """Return the folders of container/, which are the headings of the page."""
    return sorted(path.parent.name for path in CONTAINER.glob("*/__init__.py"))


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")


@cache
def edges() -> set[Edge]:
    """Return the imports among folders and modules of container/, those for type checkers left out."""
    found = set()
    for path in CONTAINER.rglob("*.py"):
        importer = room(".".join(path.relative_to(CONTAINER).with_suffix("").parts))
        if importer != "__init__":
            for name in imported(parsed(path)):
                if name.startswith(PACKAGE) and room(name.removeprefix(PACKAGE)) != importer:
                    found.add((importer, room(name.removeprefix(PACKAGE))))
    return found


def room(module: str) -> str:
    """Return the folder of a module of container/, or the module itself where it is in none."""
    head = module.split(".")[0]
    return f"{head}/" if head in folders() else head


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the names of imported modules, also of imports inside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            # "from streambench.container import x" names the module x.
            yield from (
                f"{node.module}.{each.name}" if f"{node.module}." == PACKAGE else node.module
                for each in node.names
            )
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        else:
            yield from imported(node)


def reduced(graph: set[Edge]) -> list[Edge]:
    """Return the graph without the edges that a longer way already implies."""
    kept = set(graph)
    for edge in sorted(graph):
        if reachable(edge[0], edge[1], kept - {edge}):
            kept.discard(edge)
    return sorted(kept)


def reachable(start: str, end: str, graph: set[Edge]) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        for source, target in graph:
            if source == here and target not in seen:
                seen.add(target)
                waiting.append(target)
    return end in seen


def diagram() -> str:
    lines = ["```mermaid", "flowchart TD"]
    nodes = sorted({each for edge in edges() for each in edge})
    for name in nodes:
        lines.append(f'    {identifier(name)}["{name}"]')
    lines += [f"    {identifier(source)} --> {identifier(target)}" for source, target in reduced(edges())]
    return "\n".join([*lines, "```"])


def identifier(name: str) -> str:
    return name.replace("/", "_folder")


def table(folder: Path) -> str:
    """Return a table of a folder's modules with the first sentence of each docstring."""
    lines = ["| module | contents |", "|---|---|"]
    for path in modules(folder):
        lines.append(f"| `{path.name}` | {first_sentence(path)} |")
    return "\n".join(lines)


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, as a cell of a table."""
    text = " ".join((ast.get_docstring(parsed(path)) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z])", text)[0].replace("|", "\\|")


def layers(package: str) -> list[list[str]]:
    """Return the rows of rooms and modules of a package that import-linter keeps in layers, the highest
    first."""
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = next(each["layers"] for each in contracts if each.get("containers") == [package])
    return [[name.strip() for name in row.split("|")] for row in found]


def rows(package: str, root: Path) -> str:
    """Return the layers of a package as a block of text, one row a line, folders with a slash."""
    named = [[f"{name}/" if (root / name).is_dir() else name for name in row] for row in layers(package)]
    return "\n".join(["```text", *(" | ".join(row) for row in named), "```"])


def rooms(package: str, root: Path) -> str:
    """Return a table of the rooms of a package, each with the first sentence about it."""
    lines = ["| room | contents |", "|---|---|"]
    for name in itertools.chain.from_iterable(layers(package)):
        folder = root / name
        is_folder = folder.is_dir()
        path = folder / "__init__.py" if is_folder else folder.with_suffix(".py")
        lines.append(
            f"| `{name}/` | {first_sentence(path)} |"
            if is_folder
            else f"| `{path.name}` | {first_sentence(path)} |"
        )
    return "\n".join(lines)


def parts() -> dict[str, str]:
    """Return every generated part of the page by the name of its markers."""
    tables = {f"modules of {folder}": table(CONTAINER / folder) for folder in folders()}
    debug, magics = CHECKOUT / "streambench" / "debug", CHECKOUT / "magics" / "streambench_magics"
    return {
        "layers of container": rows("streambench.container", CONTAINER),
        "imports": diagram(),
        "modules of container": table(CONTAINER),
        "layers of debug": rows("streambench.debug", debug),
        "rooms of debug": rooms("streambench.debug", debug),
        "layers of the magics": rows("streambench_magics", magics),
        "rooms of the magics": rooms("streambench_magics", magics),
        **tables,
    }


def replaced(page: str) -> str:
    """Return the page with its generated parts as the code has them. Raises ValueError without a marker."""
    for name, text in parts().items():
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        if begin not in page or end not in page:
            raise ValueError(f"docs/architecture.md has no markers for the part '{name}'")
        head, _, rest = page.partition(begin)
        page = f"{head}{begin}{text}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(replaced(PAGE.read_text()))
    else:
        print(*parts().values(), sep="\n\n")
