"""The text of a pytest file that runs a recording."""

from __future__ import annotations

import re
import textwrap

from streambench.recording.header import Header

_TEXT = '''"""{title}"""

from pathlib import Path

from streambench import debug
{imports}
RECORDING = Path(__file__).with_name({data!r})
{source}

def test_{name}() -> None:
    session = debug.open(RECORDING, task={task})
    session.run("caught-up")
    session.wait()
    assert session.position == {count}
'''
_PLAIN_MODULE = re.compile(r"[A-Za-z_][\w.]*")


def text_of_test(header: Header, data: str, count: int, failure: str | None) -> str:
    """The test of a recording of ``count`` messages, in the file ``data`` beside it. ``failure``: the class
    of the exception that ended it; None where it ended without one.

    It imports the task. That of a notebook, which cannot be imported, stands in the test as it was
    recorded."""
    code = header.task
    module, _, name = code.reference.partition(":")
    imports = source = ""
    task = repr(f"{code.file}:{name}")
    if _is_importable(module, name) and not header.config.get("task.class", "").count(".py:"):
        imports, task = f"from {module} import {name.partition('.')[0]}\n", name
    elif not code.file and code.source:
        imports = "import streambench as sb\n"
        source = f"\n# The task of a notebook: mend it here, or import it.\n{_plain(code.source)}\n"
        task = name.rpartition(".")[2]
    elif not code.file:
        imports, task = "# Import the task here: the recording has no source of it.\n", name
    return _TEXT.format(
        title=f"{header.job} processes the recorded messages."
        if failure is None
        else f"{header.job} failed at the last of these messages: {failure}.",
        imports=imports,
        source=source,
        data=data,
        name=re.sub(r"\W+", "_", header.job).strip("_").lower() + "_processes_the_recording",
        task=task,
        count=count,
    )


def _is_importable(module: str, name: str) -> bool:
    return _PLAIN_MODULE.fullmatch(module) is not None and module != "__main__" and "<" not in name


def _plain(source: str) -> str:
    """The source without the indentation and the magics of a cell."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))]
    return textwrap.dedent("\n".join(lines)).strip()
