"""The house rules that a program can check: prose of docstrings, words, sizes.

``LEFT`` has what older code still breaks, per package. A count may fall, never rise; ``python
tests/test_house.py --recount`` writes the counts of today, and leaves out what is 0.
"""

from __future__ import annotations

import ast
import gc
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
PRODUCT = sorted(path for root in ("streambench", "magics") for path in (CHECKOUT / root).rglob("*.py"))
EVERYTHING = PRODUCT + sorted(
    path for root in ("tests", "benchmarks", "tools") for path in (CHECKOUT / root).rglob("*.py")
)
PROSE = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "notebooks/*.md", "notebooks/*.ipynb")
    for path in CHECKOUT.glob(pattern)
)

FIRST_WORDS = re.compile(r"(What|Who|Whose|Whom|Which|Whether|How|Where)\b")
WORDS = re.compile(
    r"\b(nobody|somebody|whoever|sees? to|seen to|lets? go of|anew|as far as|comes? to (its|their|the) end"
    r"|(?<!\.)tells?|told|(any|every)body|onlookers?|in haste|as ever|of then|(?<!as )of (now|before))\b",
    re.IGNORECASE,
)
#: Paragraphs of a docstring end at blank lines, items of lists stand alone, and indented blocks are no prose.
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
END_OF_SENTENCE = re.compile(r"""(?<=[.!?])[)"'`*]*\s+(?=[^a-z])""")
WORD = re.compile(r"\S*\w\S*")
MOST_WORDS = 25
MOST_PARAMETERS = 8
MOST_BRANCHES = 20
LONGEST_LINE = 110
#: A comprehension of more characters, with as many loops and conditions, is a loop or has a comment.
LONGEST_COMPREHENSION = 100
MOST_CLAUSES = 2
PRAGMA = re.compile(r"  # (type: ignore|noqa)\b.*")
LONGEST_FILE = 600
LONGEST_TEST_NAME = 70
DRAWERS = {"common", "helper", "helpers", "misc", "util", "utils"}
TEST_NAME = re.compile(r"\s*(?:async )?def (test_\w+)")

#: Inlined for speed: each call they avoid is paid with every message.
HOT = {
    "streambench/container/event_loop.py": {"__init__", "run"},
    "streambench/container/burst.py": {"run"},
}

#: Promised to users, as are the options of commands: these parameters are the documented way to call them.
PROMISED = {
    "streambench/container/container.py": {"__init__"},
    "streambench/debug/replay/replay.py": {"open"},
    "streambench/job/run.py": {"run"},
}
MOST_PROMISED_PARAMETERS = 10

#: What is left per rule and package. New code adds nothing; recount after cleaning a package.
# left: begin
LEFT: dict[str, dict[str, int]] = {
}
# left: end

BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.Try,
    ast.ExceptHandler,
    ast.IfExp,
    ast.BoolOp,
    ast.comprehension,
)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def test_a_docstring_begins_with_the_thing_or_with_a_verb() -> None:
    check("first words", first_words)


def test_the_words_of_the_field_are_used() -> None:
    """In code, pages and tutorials."""
    check("words", words)


def test_the_sentences_of_docstrings_are_short() -> None:
    check("sentences", long_sentences)


def test_functions_have_few_parameters_and_few_branches() -> None:
    check("functions", large_functions)


def test_dense_comprehensions_have_a_comment() -> None:
    check("comprehensions", dense_comprehensions)


def test_lines_are_not_too_long() -> None:
    check("lines", long_lines)


def test_files_are_not_too_long() -> None:
    check("files", long_files)


def test_no_module_is_called_by_what_it_is_not() -> None:
    """A module has one noun; what fits nowhere belongs where it is used."""
    named = [path.relative_to(CHECKOUT) for path in EVERYTHING]
    assert [path for path in named if DRAWERS & {*path.with_suffix("").parts}] == []


def test_names_of_tests_are_short_sentences() -> None:
    check("test names", long_test_names)


def test_what_is_hot_is_there() -> None:
    """A hot function that moved takes its exemption with it."""
    for name, functions in HOT.items():
        path = CHECKOUT / name
        if path.exists():
            assert functions & {each.name for each in functions_of(path)}, name


def check(rule: str, find: Callable[[], Iterator[str]]) -> None:
    """Fail where a package has more than ``LEFT`` allows, and show everything that this package has."""
    found = list(find())
    allowed = LEFT.get(rule, {})
    worse = {each for each, count in counts(found).items() if count > allowed.get(each, 0)}
    assert not [each for each in found if package(each) in worse]


def counts(found: list[str]) -> Counter[str]:
    return Counter(map(package, found))


def package(found: str) -> str:
    """Return the package of a finding: its folder, down to the third level."""
    return "/".join(found.partition(":")[0].split("/")[:-1][:3])


def first_words() -> Iterator[str]:
    for path in PRODUCT:
        for line, text in docstrings(path):
            if FIRST_WORDS.match(text):
                yield place(path, line, text.splitlines()[0])


def long_sentences() -> Iterator[str]:
    for path in PRODUCT:
        for line, text in docstrings(path):
            for sentence in sentences(text):
                length = len(WORD.findall(sentence))
                if length > MOST_WORDS:
                    yield place(path, line, f"{length} words: {sentence}")


def sentences(docstring: str) -> Iterator[str]:
    for paragraph in PARAGRAPH.split(docstring):
        if not paragraph.startswith("    "):
            yield from END_OF_SENTENCE.split(" ".join(paragraph.split()))


def words() -> Iterator[str]:
    for path in (*PRODUCT, *PROSE):
        text = prose_of(path) if path.suffix == ".ipynb" else text_of(path)
        for match in WORDS.finditer(text):
            yield place(path, text.count("\n", 0, match.start()) + 1, match.group())


def prose_of(notebook: Path) -> str:
    """Return the Markdown of a notebook."""
    cells = json.loads(text_of(notebook))["cells"]
    return "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "markdown")


def large_functions() -> Iterator[str]:
    for path in PRODUCT:
        name = str(path.relative_to(CHECKOUT))
        hot, promised = HOT.get(name, set()), PROMISED.get(name, set())
        for function in functions_of(path):
            branches = sum(isinstance(node, BRANCHES) for node in ast.walk(function))
            given = parameters(function)
            is_promised = function.name in promised or is_command(function)
            most = MOST_PROMISED_PARAMETERS if is_promised else MOST_PARAMETERS
            if function.name not in hot and (given > most or branches > MOST_BRANCHES):
                yield place(
                    path, function.lineno, f"{function.name}: {given} parameters, {branches} branches"
                )


def dense_comprehensions() -> Iterator[str]:
    """Those without a comment in them or just above. Of nested ones the outermost counts."""
    for path in PRODUCT:
        code, inner = text_of(path).splitlines(), set[ast.AST]()
        for node in nodes(path):
            if not isinstance(node, COMPREHENSIONS) or node in inner:
                continue
            parts = list(ast.walk(node))
            inner.update(parts)
            clauses = sum(
                1 + len(each.ifs) if isinstance(each, ast.comprehension) else isinstance(each, ast.IfExp)
                for each in parts
            )
            around = code[max(0, node.lineno - 3) : node.end_lineno]
            if clauses <= MOST_CLAUSES or any("#" in line or '"""' in line for line in around):
                continue
            length = len(" ".join((ast.get_source_segment(text_of(path), node) or "").split()))
            if length > LONGEST_COMPREHENSION:
                yield place(path, node.lineno, f"{clauses} loops and conditions in {length} characters")


def long_lines() -> Iterator[str]:
    for path in EVERYTHING:
        for number, line in lines(path):
            if len(PRAGMA.sub("", line)) > LONGEST_LINE:
                yield place(path, number, f"{len(line)} characters")


def long_files() -> Iterator[str]:
    for path in EVERYTHING:
        length = len(lines(path))
        if length > LONGEST_FILE:
            yield place(path, length, f"{length} lines")


def long_test_names() -> Iterator[str]:
    """A name is that of the function: what parameters add to it does not count."""
    for path in EVERYTHING:
        for number, line in lines(path) if path.name.startswith("test_") else ():
            if (match := TEST_NAME.match(line)) and len(match[1]) > LONGEST_TEST_NAME:
                yield place(path, number, f"{match[1]}: {len(match[1])} characters")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return everything that ``ast.walk`` finds in a file: walking takes longer than looking."""
    gc.disable()  # all nodes stay: every look at them would be in vain
    try:
        return tuple(ast.walk(parsed(path)))
    finally:
        gc.enable()


@cache
def docstrings(path: Path) -> list[tuple[int, str]]:
    """Return the docstrings of a file, each with the line at which its object begins."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [(node, ast.get_docstring(node)) for node in nodes(path) if isinstance(node, kinds)]
    return [(getattr(node, "lineno", 1), text) for node, text in found if text]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path), path)


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def lines(path: Path) -> list[tuple[int, str]]:
    return list(enumerate(text_of(path).splitlines(), start=1))


def place(path: Path, line: int, text: str) -> str:
    return f"{path.relative_to(CHECKOUT)}:{line}: {text}"


@cache
def functions_of(path: Path) -> list[Function]:
    return [node for node in nodes(path) if isinstance(node, Function)]


def parameters(function: Function) -> int:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (bool(names) and names[0] in ("self", "cls"))


def is_command(function: Function) -> bool:
    """Return whether a function is a command of the command line: its parameters are its options."""
    kinds = [each.annotation for each in (*function.args.args, *function.args.kwonlyargs)]
    return any(isinstance(kind, ast.Subscript) and ast.unparse(kind.value) == "Annotated" for kind in kinds)


RULES: dict[str, Callable[[], Iterator[str]]] = {
    "first words": first_words,
    "words": words,
    "sentences": long_sentences,
    "functions": large_functions,
    "comprehensions": dense_comprehensions,
    "lines": long_lines,
    "files": long_files,
    "test names": long_test_names,
}


def recount() -> None:
    """Write the counts of today into this file."""
    text = ["LEFT: dict[str, dict[str, int]] = {"]
    for rule, find in RULES.items():
        if found := counts(list(find())):
            text.append(f'    "{rule}": {{')
            text += [f'        "{each}": {count},' for each, count in sorted(found.items())]
            text.append("    },")
    file = Path(__file__)
    head, _, rest = file.read_text().partition("# left: begin\n")
    _, _, tail = rest.partition("# left: end\n")
    file.write_text("\n".join([head + "# left: begin", *text, "}", "# left: end"]) + "\n" + tail)


if __name__ == "__main__":
    if "--recount" in sys.argv[1:]:
        recount()
    for rule, find in RULES.items():
        for finding in find():
            print(f"{rule}: {finding}")
