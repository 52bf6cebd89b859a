"""Secrets in clear in the files of a packaged job: URLs with a password, private keys, and text under the
name of a secret. It finds what is obvious, and is no proof that there is none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from streambench.syntax import parse

_SHORTEST = 4
# Calls whose second argument stands in for the value of the first: ``os.environ.get("PASSWORD", "...")``.
_LOOKUPS = frozenset({"get", "getenv", "pop", "setdefault"})
# Words joined to a name, which a token of a parser or of a page may be: next_page.
_WORDS = re.compile(r"[A-Za-z]+([_\-. ][A-Za-z]+)+")
_WORD = re.compile(r"[A-Za-z_\-. ]*")
_NAME = re.compile(
    r"(?:^|[_.\-])(?:password|passwd|passphrase|secret|token|api[_\-]?key|access[_\-]?key|secret[_\-]?key)$",
    re.IGNORECASE,
)
# What stands for a value that is filled in: {name}, ${NAME}, <password>, %s, ***.
# The scheme is bounded: a long line without a URL would else be searched in quadratic time.
_URL = re.compile(r"[a-z][a-z0-9+.\-]{0,19}://[^\s/:@'\"{}$<>]*:(?![*%])[^\s/@'\"{}$<>]+@", re.IGNORECASE)
_MARKS = (
    (_URL, "a URL with a password"),
    (re.compile(r"https?://[A-Za-z0-9_\-]{16,}@", re.IGNORECASE), "a URL with a token"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), "a private key"),
    (re.compile(r"\bAKIA[0-9A-Z]{16}\b"), "a key of AWS"),
)


def clear_secrets(files: Mapping[str, bytes]) -> tuple[str, ...]:
    """The places that hold what looks like a secret, ``FILE:LINE: what``, in the order of files and lines.
    Files that are no text are not looked into."""
    found = []
    for name, content in sorted(files.items()):
        try:
            text = content.decode()
        except UnicodeDecodeError:
            continue
        places = {*_marked(text), *(_assigned(text) if name.endswith(".py") else ())}
        found += [f"{name}:{line}: {what}" for line, what in sorted(places)]
    return tuple(found)


def _marked(text: str) -> Iterator[tuple[int, str]]:
    """The lines that hold a secret by its form, comments included."""
    for at, line in enumerate(text.splitlines(), 1):
        for pattern, what in _MARKS:
            if pattern.search(line):
                yield at, what


def _assigned(text: str) -> Iterator[tuple[int, str]]:
    """The lines of Python that assign a text to the name of a secret.

    The name may be a variable, an attribute, an argument or its default, a key of a dict, or one of a pair.
    """
    try:
        tree = parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        for name, value in _named(node):
            if (
                isinstance(value, ast.Constant)
                and isinstance(value.value, str)
                and _NAME.search(name)
                and _is_secret(name, value.value)
            ):
                yield value.lineno, f"{name} in clear"


def _named(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The names of a node, and the values that they are given."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)
    elif isinstance(node, ast.AnnAssign):
        yield _name_of(node.target), node.value
    elif isinstance(node, ast.keyword):
        yield node.arg or "", node.value
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            yield _name_of(key), value
    elif isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        for each, default in zip(reversed(positional), reversed(node.defaults), strict=False):
            yield each.arg, default
        for each, given in zip(node.kwonlyargs, node.kw_defaults, strict=True):
            yield each.arg, given
    elif isinstance(node, ast.Call) and _name_of(node.func) in _LOOKUPS and len(node.args) == 2:
        yield _name_of(node.args[0]), node.args[1]
    elif isinstance(node, ast.Tuple) and len(node.elts) == 2 and not _is_plain(node.elts[1]):
        yield _name_of(node.elts[0]), node.elts[1]


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    lists = ast.Tuple, ast.List
    if isinstance(target, lists) and isinstance(value, lists):
        for each, given in zip(target.elts, value.elts, strict=False):
            yield from _unpacked(each, given)
    else:
        yield _name_of(target), value


def _is_plain(node: ast.expr) -> bool:
    """True for text of letters alone: such a pair is more likely one of names."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and _WORD.fullmatch(node.value) is not None
    )


def _name_of(node: ast.expr | None) -> str:
    if isinstance(node, ast.Subscript):
        node = node.slice
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _is_secret(name: str, text: str) -> bool:
    """False for a reference, a gap to be filled in, and the name of a column, of a variable or of a secret.
    Also for a token that is a name."""
    if len(text) < _SHORTEST or any(mark in text for mark in ("${", "{", "<", "***")):
        return False
    if name.lower().endswith("token") and _WORDS.fullmatch(text):
        return False
    return text.lower() not in name.lower() and not _NAME.fullmatch(text)
