"""Help at the cursor (Shift-Tab in JupyterLab): on sub-commands, and on what a task is given."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from streambench_magics.commands.commands import CONFIG, PARSERS, TASK, overview
from streambench_magics.completion.complete_task import task_help

_COMMAND = re.compile(r"\s*(?:\w[\w, ]*=\s*)?%stream\b\s*(\w*)")


def inspecting(former: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's ``do_inspect`` that answers for these magics first."""

    def do_inspect(code: str, cursor_pos: int, *arguments: Any, **options: Any) -> Any:
        text = help_at(code, cursor_pos)
        if text is None:
            return former(code, cursor_pos, *arguments, **options)
        return {"status": "ok", "found": True, "data": {"text/plain": text}, "metadata": {}}

    return do_inspect


def help_at(code: str, cursor: int) -> str | None:
    """The help at a cursor; None where these magics have none."""
    begin = code.rfind("\n", 0, cursor) + 1
    end = code.find("\n", cursor)
    line = code[begin : len(code) if end < 0 else end]
    for cell in (TASK, CONFIG):
        if line.lstrip().startswith(f"%%{cell.prog}"):
            return cell.full_help()
    found = _COMMAND.match(line)
    if found is not None:
        parser = PARSERS.get(found[1])
        return overview() if parser is None else parser.full_help()
    if not code.lstrip().startswith("%%streamtask"):
        return None
    word = re.match(r"\w*", code[cursor:])
    typed = code[begin : cursor + (word.end() if word is not None else 0)]
    return task_help(code[:begin], typed.rstrip("("))
