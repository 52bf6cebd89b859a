"""The names of a ``%%streamtask`` cell are those of its task, and of no other."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Mapping
from typing import Any

from pyspark import cloudpickle

from streambench.recording import Recording
from tests.magics.conftest import Shell

CONFIG = """%%streamconfig numbers
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
task.inputs=mem.n
"""

LIMITED = """%%streamtask {name}{option}
LIMIT = {limit}
def process(envelope, collector, coordinator):
    if envelope.message > LIMIT:
        collector.send("mem.large", envelope.message)
"""


def limited(shell: Shell, name: str, limit: int, option: str = "") -> None:
    shell.run(LIMITED.format(name=name, limit=limit, option=option))


def numbers(shell: Shell) -> Shell:
    shell.run(CONFIG)
    shell.run("%stream streams create mem.n --partitions 1")
    shell.run("%stream send mem.n --from [1, 2, 3, 4, 5, 6, 7, 8]")
    return shell


def outputs(shell: Shell, steps: int) -> list[int]:
    """Return the outputs of so many steps."""
    shell.run(f"%stream step job {steps}")
    return [each.message for each in shell.magics.bench.jobs["job"].session.outputs()]


def closure(function: Any) -> Mapping[str, Any]:
    return inspect.getclosurevars(function).nonlocals


def test_two_cells_may_bind_the_same_name(ip_empty: Shell) -> None:
    shell = numbers(ip_empty)
    limited(shell, "one", 7)
    limited(shell, "two", 4)
    said = shell.run("%stream compare one two --over mem.n")
    assert "equal" not in said.splitlines()[0], said
    assert closure(shell.names["one"].process)["LIMIT"] == 7
    assert shell.names["LIMIT"] == 4, "the notebook has that of the last cell"


def test_a_cell_that_runs_again_leaves_a_live_job_as_it_is(ip_empty: Shell) -> None:
    shell = numbers(ip_empty)
    limited(shell, "one", 7)
    shell.run("%stream create job --task one --config numbers")
    assert outputs(shell, 1) == []
    limited(shell, "one", 0)
    limited(shell, "other", 0)
    assert outputs(shell, 7) == [8]


def test_a_former_code_has_its_former_names_again(ip_empty: Shell) -> None:
    shell = numbers(ip_empty)
    limited(shell, "one", 7)
    shell.run("%stream create job --task one --config numbers")
    assert outputs(shell, 1) == []
    limited(shell, "one", 0, " --swap")
    assert outputs(shell, 2) == [2, 3]
    shell.run("%stream swap --undo job")
    assert outputs(shell, 5) == [2, 3, 8]


def test_a_task_that_is_sent_elsewhere_takes_its_own_names(ip_empty: Shell) -> None:
    limited(ip_empty, "one", 7)
    limited(ip_empty, "two", 4)
    there = cloudpickle.loads(cloudpickle.dumps(ip_empty.names["one"]))
    assert closure(there.process)["LIMIT"] == 7


def test_names_of_other_cells_are_those_of_the_notebook(ip_empty: Shell) -> None:
    ip_empty.run("factor = 2\nmin = 'mine'")
    ip_empty.run(
        "%%streamtask t\ndef process(envelope, collector, coordinator):\n    import json\n"
        "    seen.append((factor * later(), min, max(1, 2), json.dumps(1)))\n"
    )
    cell = "seen = []\nfactor = {}\ndef later():\n    return 5\nt.process(None, None, None)\nseen"
    ip_empty.run(cell.format(3))
    assert ip_empty.value == [(15, "mine", 2, "1")]
    ip_empty.run(cell.format(4))
    assert ip_empty.value == [(20, "mine", 2, "1")], "seen as they are, also within a cell"


def test_the_notebook_sees_what_a_task_binds_by_global(ip_empty: Shell) -> None:
    ip_empty.run(
        "%%streamtask t\ncount = 0\ndef process(envelope, collector, coordinator):\n    global count, last\n"
        "    count += 1\n    last = envelope\n"
    )
    ip_empty.run("t.process('a', None, None)\ncount, last")
    assert ip_empty.value == (1, "a")


def test_names_are_bound_in_the_notebook_while_the_cell_runs(ip_empty: Shell) -> None:
    """msgspec and dataclasses look up annotations in the module of a class."""
    ip_empty.run(
        "%%streamtask t\nfrom __future__ import annotations\nimport msgspec\n"
        "try:\n    class Item(msgspec.Struct):\n        n: int\n"
        "    class Order(msgspec.Struct):\n        items: list[Item]\n"
        "    decoder = msgspec.json.Decoder(Order)\nfinally:\n    pass\n"
        "def process(envelope, collector, coordinator):\n    return decoder.decode(envelope)\n"
    )
    assert ip_empty.names["t"].process(b'{"items": [{"n": 1}]}', None, None).items[0].n == 1


def test_a_cell_that_fails_leaves_what_it_bound_so_far(ip_empty: Shell) -> None:
    ip_empty.fails("%%streamtask t\nfirst = 1\nsecond = 1 / 0\n")
    assert ip_empty.names["first"] == 1
    assert "second" not in ip_empty.names


def test_a_task_that_is_sent_elsewhere_takes_names_of_other_cells(ip_empty: Shell) -> None:
    ip_empty.run("factor = 2\ndef doubled(number):\n    return factor * number")
    ip_empty.run("%%streamtask t\ndef process(envelope, *_):\n    return doubled(factor)\n")
    there = cloudpickle.loads(cloudpickle.dumps(ip_empty.names["t"]))
    ip_empty.run("del factor, doubled")
    assert there.process(None, None, None) == 4


def test_classes_and_functions_are_named_as_in_a_module(ip_empty: Shell) -> None:
    ip_empty.run(
        "%%streamtask t\nclass Item:\n    def __init__(self):\n        self.n = 1\n"
        "    def made(self):\n        return lambda: Item\n"
        "def process(envelope, collector, coordinator):\n    return Item()\n"
    )
    item = ip_empty.names["t"].process(None, None, None)
    assert (type(item).__qualname__, type(item).__module__) == ("Item", "__main__")
    assert item.made().__qualname__ == "Item.made.<locals>.<lambda>"
    assert ip_empty.names["t"].process.__qualname__ == "process"
    assert pickle.loads(pickle.dumps(item)).n == 1


def test_a_cell_may_go_on_with_a_name_of_the_notebook(ip_empty: Shell) -> None:
    ip_empty.run("theirs = 1")
    ip_empty.run("%%streamtask t\ncount = 1\ndef process(envelope, collector, coordinator):\n    pass\n")
    ip_empty.run(
        "%%streamtask t\ncount = count + 1\nother = 1\ndel other, theirs\n"
        "def process(envelope, collector, coordinator):\n    return count\n"
    )
    assert ip_empty.names["t"].process(None, None, None) == ip_empty.names["count"] == 2
    assert not {"other", "theirs"} & ip_empty.names.keys()


def test_a_cell_that_is_no_module_is_refused_before_it_runs(ip_empty: Shell) -> None:
    said = ip_empty.fails("%%streamtask t\nfirst = 1\nreturn first\n")
    assert "'return' outside function" in said
    assert "line 3" in said
    assert "first" not in ip_empty.names


def test_names_that_come_with_a_star_are_found(ip_empty: Shell) -> None:
    ip_empty.run(
        "%%streamtask t\ntry:\n    from math import *\nfinally:\n    pass\n"
        "def process(envelope, *_):\n    return floor(envelope)\n"
    )
    assert ip_empty.names["t"].process(1.5, None, None) == 1


def test_annotations_are_values_as_in_a_plain_cell(ip_empty: Shell) -> None:
    cell = "class Flight:\n    delay: int\ndef late(flight: Flight) -> bool:\n    return flight.delay > 15\n"
    for shared in ("", "def count():\n    global counted\n    counted = 1\n"):
        ip_empty.run(f"%%streamtask t\n{cell}{shared}def process(envelope, collector, coordinator): pass\n")
        names = ip_empty.names
        assert names["Flight"].__annotations__ == {"delay": int}
        assert names["late"].__annotations__ == {"flight": names["Flight"], "return": bool}


def test_a_recording_has_the_cell_of_a_task_that_inherits_all(ip_empty: Shell) -> None:
    shell = numbers(ip_empty)
    process = "def process(self, envelope, collector, coordinator): pass"
    shell.run(f"%%streamtask base\nclass Base:\n    {process}\n")
    shell.run("%%streamtask more\nclass More(Base):\n    def late(self): pass\n")
    shell.run("%stream create job --task more --config numbers")
    shell.run("%stream record more.recording")
    shell.run("%stream step 2")
    shell.run("%stream stop")
    assert Recording.read("more.recording").header.task.source.startswith("%%streamtask more\n")
    error = shell.fails("%stream replay more.recording --recorded-source")
    assert "NameError: name 'Base' is not defined; a recording has the cell of its task and no other" in error
