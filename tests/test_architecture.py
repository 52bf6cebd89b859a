"""docs/architecture.md beside the code that it describes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.architecture import CHECKOUT, CONTAINER, PAGE, folders, parts, reachable, reduced, replaced
from tests.figures import against_layers, circles, imports
from tests.test_house import functions_of, parsed

REMEDY = "run: python -m tests.architecture --write"

#: A reader of the page has five minutes for the way of a message.
MOST_LINES = 700
MOST_FILES = 14

#: The hot path beside the files of the page: what works on messages, or whenever something is due.
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


def test_the_way_of_a_message_is_that_of_the_code() -> None:
    """Each function of the page is in its file, and named by the function above it, which calls it."""
    for call in way_of_a_message():
        source = code_of(call.file, call.function)
        assert source, f"{call.function} is not in {call.file}"
        if call.caller is not None:
            name = call.by.rpartition(".")[2].strip("_")
            caller = call.caller.function
            assert re.search(rf"\b_*{name}\b", code_of(call.caller.file, caller)), f"{caller} calls no {name}"


def test_the_way_of_a_message_stays_short_to_read() -> None:
    way = way_of_a_message()
    assert len({call.file for call in way}) <= MOST_FILES
    assert (
        len({(call.file, line) for call in way for line in lines_of(call.file, call.function)}) <= MOST_LINES
    )


def code_of(file: str, function: str) -> str:
    lines = (CONTAINER.parent / file).read_text().splitlines()
    return "\n".join(lines[line - 1] for line in lines_of(file, function))


def lines_of(file: str, function: str) -> range:
    """Return the lines of a function; none where there is no such function."""
    node: ast.AST | None = parsed(CONTAINER.parent / file)
    for part in function.split("."):
        found = ast.walk(node) if node is not None else ()
        node = next((each for each in found if getattr(each, "name", None) == part), None)
    return range(node.lineno, (node.end_lineno or 0) + 1) if isinstance(node, ast.FunctionDef) else range(0)


def test_each_module_of_the_hot_path_has_its_own_file_of_tests() -> None:
    """``container/inputs/x.py`` has ``tests/container/inputs/test_x.py``."""
    for name in (*{call.file for call in way_of_a_message()}, *HOT):
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


class Call(NamedTuple):
    """A line on the way of a message: a function in a file below ``streambench/``, the line that calls it,
    and the name by which that does."""

    file: str
    function: str
    caller: Call | None
    by: str


def way_of_a_message() -> list[Call]:
    """Return the calls on the way of one message, as the page draws them: a call stands below its caller,
    further to the right. "f, by g" is called through g."""
    drawing = PAGE.read_text().partition("```text\n")[2].partition("```")[0]
    calls: list[Call] = []
    callers: list[tuple[int, Call | None]] = [(0, None)]
    file = ""
    for changed, room, text in re.findall(r"^([\w/]+\.py|)( +)(\S.*)$", drawing, re.MULTILINE):
        file = changed or file
        begin = len(changed) + len(room)
        while callers[-1][0] >= begin:
            callers.pop()
        caller = callers[-1][1]
        # What is no single word is a step, or not the container's own.
        found = re.match(r"([\w.]+)(?:, by ([\w.]+))?(?=$| {2,})", text)
        if found is not None:
            caller = Call(file, found[1], caller, found[2] or found[1])
            calls.append(caller)
        callers.append((begin, caller))
    return calls


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
