"""The source of a notebook's cell as Python."""

from __future__ import annotations

import re
import textwrap
import tokenize
from collections.abc import Iterator
from itertools import islice

_ESCAPE = re.compile(r"\s*([%!?]|[\w\s.,*\[\]]+=\s*[%!])|[^#]*\w\?{1,2}\s*$")
"""A command of IPython where a statement begins: ``%magic``, ``!ls``, ``files = !ls``, ``f?``."""


def cell_source(text: str) -> str:
    """The source without its magics and its indentation. Lines inside of a statement stay as they are, also
    where they look like a magic."""
    lines = text.splitlines(keepends=True)
    found: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("#"):
            found.append(line)
            at += 1
        elif _ESCAPE.match(line):
            indentation = line[: len(line) - len(line.lstrip())]
            if indentation:
                found.append(f"{indentation}pass\n")  # its block may have no other line
            while lines[at].rstrip().endswith("\\") and at + 1 < len(lines):
                at += 1
            at += 1
        else:
            end = at + _statement_lines(islice(lines, at, None))
            found += lines[at:end]
            at = end
    return textwrap.dedent("".join(found)).strip()


def _statement_lines(lines: Iterator[str]) -> int:
    """The number of lines of the first statement: one where it is no Python."""
    try:
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type == tokenize.NEWLINE:
                return token.end[0]
    except (tokenize.TokenError, SyntaxError):
        pass
    return 1
