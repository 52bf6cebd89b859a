"""Dead letters, as tests look at them."""

from __future__ import annotations

from typing import Any

from streambench.model import (
    SystemStream,
)
from streambench.testing import JobRun

JSON = {"systems.mem.samza.msg.serde": "json"}
DEAD = JSON | {"task.dead.letter.stream": "mem.dead"}
OUT = SystemStream("mem", "out")


def letters(run: JobRun) -> list[tuple[Any, Any]]:
    return [entry for entries in run.outputs.get("mem.dead", {}).values() for entry in entries]


def reasons(run: JobRun) -> list[dict[str, str]]:
    """The headers of the dead letters."""
    found = []
    for partition in run._streams.of(SystemStream("mem", "dead")):
        for _, extra in zip(partition.entries(), partition.fields[2::3], strict=True):
            found.append({name: value.decode() for name, value in extra[1].items()})
    return found
