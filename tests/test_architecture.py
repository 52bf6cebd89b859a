"""docs/architecture.md beside the code that it describes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture import CHECKOUT, CONTAINER, PAGE, folders, parts, reachable, reduced, replaced
from tests.figures import against_layers, circles, imports
from tests.test_house import functions_of, parsed

REMEDY = "run: python -m tests.architecture --write"

#: A reader of the page has five minutes for the way of a message.
MOST_LINES = 750

#: The hot path beside the twelve files of the page: what works on messages, or whenever something is due.
HOT = (
    "chooser/round_robin.py",
    "container/batch_dispatch.py",
    "container/burst.py",
    "container/coordination.py",
    "container/dispatch.py",
    "container/failures.py",
    "container/inputs/consumers.py",
    "container/inputs/partition_buffer.py",
    "container/inputs/raw_buffer.py",
    "container/loop_parts.py",
    "container/outputs/dead_letters.py",
    "container/outputs/outgoing_batch.py",
    "container/task_stores.py",
    "container/tasks/task_instance.py",
    "container/timers.py",
)


def test_the_diagram_and_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page == replaced(page), f"{REMEDY}\n\n{parts()['imports']}"


def test_every_folder_of_the_container_is_a_heading() -> None:
    headings = re.findall(r"^### `container/(\w+)/`", PAGE.read_text(), re.MULTILINE)
    assert sorted(headings) == folders()


def test_every_file_that_the_page_names_is_there() -> None:
    names = re.findall(r"`((?:streambench|magics|tests|docs|container)/[\w/.]+)`", PAGE.read_text())
    roots = (CHECKOUT, CONTAINER.parent)
    assert names
    assert [name for name in names if not any((root / name).exists() for root in roots)] == []


def test_the_functions_on_the_way_of_a_message_are_in_their_files() -> None:
    steps = way_of_a_message()
    assert len(steps) == 12
    for name, read in steps.items():
        code = (CONTAINER.parent / name).read_text()
        functions = [each.rpartition(".")[2] for each in re.findall(r"`([\w.]+)`", read)]
        assert functions
        assert [each for each in functions if not re.search(rf"\b(def|class) {each}\b", code)] == [], name


def test_the_way_of_a_message_stays_short_to_read() -> None:
    """The functions that the page names, and the fields of its classes."""
    lines = {
        (name, line)
        for name, read in way_of_a_message().items()
        for each in re.findall(r"`([\w.]+)`", read)
        for line in lines_of(CONTAINER.parent / name, each)
    }
    assert len(lines) <= MOST_LINES


def lines_of(path: Path, name: str) -> range:
    """Return the lines of a function, or of a class up to its first method."""
    node: ast.AST = parsed(path)
    for part in name.split("."):
        node = next(each for each in ast.walk(node) if getattr(each, "name", None) == part)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
    if isinstance(node, ast.ClassDef) and methods:
        return range(node.lineno, methods[0].lineno)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def test_each_module_of_the_hot_path_has_its_own_file_of_tests() -> None:
    """``container/inputs/x.py`` has ``tests/container/inputs/test_x.py``."""
    for name in (*way_of_a_message(), *HOT):
        module = CONTAINER.parent / name
        assert module.exists(), f"{name} has moved: change HOT in {__file__}"
        tests = (CHECKOUT / "tests" / name).with_name(f"test_{module.name}")
        assert tests.exists(), f"{name} has no {tests.relative_to(CHECKOUT)}"


def test_the_places_of_each_step_are_those_of_the_page() -> None:
    """Each place has a comment, by which it is found, and stands in the table of the page."""
    table = PAGE.read_text().partition("| step | one by one")[2].partition("\n\n")[0]
    named = {
        (step, place)
        for step, places in re.findall(r"^\| (\d: \w+) \|(.*)$", table, re.MULTILINE)
        for place in re.findall(r"`([\w.]+)`", places)
    }
    marked, done = set(), set()
    for path in CONTAINER.glob("*.py"):
        lines = path.read_text().splitlines()
        for function in functions_of(path):
            place = f"{path.stem}.{function.name}"
            text = lines[function.lineno : function.end_lineno]
            marked |= {(step, place) for line in text for step in re.findall(r"# Step (.+)$", line)}
            done |= {(step, place) for step in steps_in(function)}
    assert marked == named
    assert done == named


def steps_in(function: ast.AST) -> Iterator[str]:
    """Yield the steps that a function of the loop does itself."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "process" or called.endswith((".process", ".process_batch")):
                yield "2: dispatch"
            elif called in ("send", "self._outbox.send"):
                yield "4: send"
            elif called in ("self._commit_tasks", "self.runtime.commits.commit"):
                yield "5: commit"
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "subscription.offset":
            yield "2: offset"


def way_of_a_message() -> dict[str, str]:
    """Return the files on the way of one message, as the page names them, and what to read of each."""
    way = PAGE.read_text().partition("| file | read |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `([\w/]+\.py)` \| ([^|]+) \|", way, re.MULTILINE))


def test_the_diagram_leaves_out_only_what_it_implies() -> None:
    graph = {("a", "b"), ("b", "c"), ("a", "c"), ("d", "a")}
    assert reduced(graph) == [("a", "b"), ("b", "c"), ("d", "a")]
    assert all(reachable(*edge, set(reduced(graph))) for edge in graph)


def test_no_modules_import_each_other() -> None:
    """Imports of functions and those for type checkers count, too."""
    assert circles(imports(CHECKOUT)) == []
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"a"}}) == [{"a", "b"}]


def test_no_package_imports_one_above_it() -> None:
    assert set(against_layers(CHECKOUT)) == set()
