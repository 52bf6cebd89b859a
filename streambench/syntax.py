"""Syntax trees of Python text. All of streambench parses here: ``ast.parse`` is not safe among threads.

CPython 3.11 counts the depth of a new tree in one place for all threads. Where the garbage collector runs
code in the midst of it, another thread can come in, and both fail with a SystemError.
"""

from __future__ import annotations

import ast
import threading
from typing import Any, Literal, overload

_TRIES = 100
"""A thread that parses without this lock (a cell of the notebook) can disturb any of them."""

# A finaliser that the collector runs here may parse as well.
_parsing = threading.RLock()


@overload
def parse(text: str, filename: str = ...) -> ast.Module: ...


@overload
def parse(text: str, filename: str = ..., mode: Literal["eval"] = ...) -> ast.Expression: ...


def parse(text: str, filename: str = "<unknown>", mode: Literal["exec", "eval"] = "exec") -> ast.mod:
    """Return the tree of a text, as ``ast.parse`` does. Raises SyntaxError, and ValueError for null bytes."""
    with _parsing:
        for _ in range(_TRIES):
            try:
                return ast.parse(text, filename, mode)
            except SystemError:
                continue
        return ast.parse(text, filename, mode)


def literal(text: str) -> Any:
    """Return the value of a literal, as ``ast.literal_eval`` does, and raises what that raises."""
    return ast.literal_eval(parse(text.lstrip(" \t"), mode="eval"))
