"""``%%streamtask`` and ``%%streamconfig``: from a cell to a task and a configuration."""

from __future__ import annotations

import inspect
import linecache

import pytest

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.task import StreamTask
from streambench.testing import run_job
from streambench_magics.errors import MagicError, TaskCellError
from tests.magics.conftest import Shell


def test_a_class_becomes_a_task_and_a_variable(ip_empty: Shell) -> None:
    said = ip_empty.run(
        "%%streamtask delays\nclass Delays:\n    def process(self, envelope, collector, coordinator):\n     "
        "   pass\n"
    )
    assert said == "delays is a task, the class Delays"
    task = ip_empty.names["delays"]
    assert task is ip_empty.names["Delays"]
    assert (task.__module__, task.__name__) == ("__main__", "Delays")


def test_functions_become_a_task_that_shares_the_variables_of_the_notebook(ip_empty: Shell) -> None:
    ip_empty.run("seen = []")
    ip_empty.run(
        "%%streamtask copy\ndef init(context):\n    seen.append(context.task_name)\n"
        "def process(envelope, collector, coordinator):\n    seen.append(envelope.message)\n"
    )
    task = ip_empty.names["copy"]
    assert issubclass(task, StreamTask)
    assert task.__module__ == "__main__"
    run_job(task, None, {"mem.a": {0: [1, 2]}})
    assert ip_empty.names["seen"] == ["Partition 0", 1, 2]


def test_a_function_may_see_to_the_end_of_the_stream(ip_empty: Shell) -> None:
    ip_empty.run("seen = []")
    ip_empty.run(
        "%%streamtask copy\ndef process(envelope, collector, coordinator):\n    "
        "seen.append(envelope.message)\n"
        "def end_of_stream(collector, coordinator):\n    seen.append('end')\n"
    )
    run_job(ip_empty.names["copy"], {"systems.mem.streams.a.samza.bounded": True}, {"mem.a": {0: [1, 2]}})
    assert ip_empty.names["seen"] == [1, 2, "end"]


def test_a_function_for_runs_of_messages_becomes_a_task_as_well(ip_empty: Shell) -> None:
    ip_empty.run("seen = []")
    ip_empty.run(
        "%%streamtask copy\ndef process_batch(batch, collector, coordinator):\n    "
        "seen.append(batch.messages())\n"
    )
    run_job(ip_empty.names["copy"], None, {"mem.a": {0: [1, 2]}})
    assert ip_empty.names["seen"] == [[1, 2]]


def test_a_class_that_takes_only_batches_becomes_a_task(ip_empty: Shell) -> None:
    said = ip_empty.run(
        "%%streamtask runs\nclass Runs:\n    def process_batch(self, batch, collector, coordinator):\n      "
        "  pass\n"
    )
    assert said == "runs is a task, the class Runs"


def test_process_batch_with_wrong_arguments_is_refused(ip_empty: Shell) -> None:
    with pytest.raises(MagicError, match=r"write def process_batch\(batch, collector, coordinator\)"):
        ip_empty.run("%%streamtask runs\ndef process_batch(batch, collector):\n    pass\n")


def test_the_cell_keeps_its_lines_and_its_source(ip_empty: Shell) -> None:
    cell = "%%streamtask copy\n# a comment\ndef process(envelope, collector, coordinator):\n    pass\n"
    ip_empty.run(cell)
    code = ip_empty.names["process"].__code__
    assert code.co_firstlineno == 3
    assert "".join(linecache.getlines(code.co_filename)).strip() == cell.strip()
    assert inspect.getsource(ip_empty.names["process"]).startswith("def process(")


def test_of_several_classes_the_one_that_is_no_base_of_another_is_the_task(ip_empty: Shell) -> None:
    body = "    def process(self, envelope, collector, coordinator):\n        pass\n"
    ip_empty.run(
        f"%%streamtask t\nclass Base:\n{body}class Special(Base):\n    pass\nclass Helper:\n    pass\n"
    )
    assert ip_empty.names["t"].__name__ == "Special"


def test_several_tasks_in_a_cell_need_a_choice(ip_empty: Shell) -> None:
    body = "    def process(self, envelope, collector, coordinator):\n        pass\n"
    cell = f"class A:\n{body}class B:\n{body}"
    with pytest.raises(MagicError, match="several tasks: A, B; say which: %%streamtask t --class A"):
        ip_empty.run(f"%%streamtask t\n{cell}")
    ip_empty.run(f"%%streamtask t --class B\n{cell}")
    assert ip_empty.names["t"].__name__ == "B"
    with pytest.raises(MagicError, match="there is no task class C in this cell; there is A, B"):
        ip_empty.run(f"%%streamtask t --class C\n{cell}")


def test_a_cell_without_a_task_says_what_one_looks_like(ip_empty: Shell) -> None:
    with pytest.raises(
        MagicError, match=r"write a class with process\(self, envelope, collector, coordinator\)"
    ):
        ip_empty.run("%%streamtask t\nx = 1\n")


@pytest.mark.parametrize(
    ("cell", "right"),
    [
        ("def process(envelope):\n    pass\n", r"write def process\(envelope, collector, coordinator\)"),
        ("async def process(a, b, c):\n    pass\n", "no task in this cell"),
        (
            "class A:\n    def process(self, e):\n        pass\n",
            r"write def A.process\(self, envelope, collector, coordinator\)",
        ),
        ("class A:\n    async def process(self, a, b, c):\n        pass\n", "must not be async"),
        ("def process(a, b, c):\n    pass\ndef init():\n    pass\n", r"write def init\(context\)"),
    ],
)
def test_callbacks_with_other_arguments_are_refused_at_once(ip_empty: Shell, cell: str, right: str) -> None:
    with pytest.raises(MagicError, match=right):
        ip_empty.run(f"%%streamtask t\n{cell}")
    assert "t" not in ip_empty.names


def test_a_syntax_error_is_shown_as_that_of_any_cell(ip_empty: Shell) -> None:
    shown = ip_empty.fails("%%streamtask t\n\nclass A\n    pass\n")
    assert isinstance(ip_empty.error, TaskCellError)
    assert "line 3\n    class A\n" in shown
    assert "SyntaxError: expected ':'" in shown
    assert "streambench" not in shown


def test_an_exception_of_the_cell_shows_the_cell_alone(ip_empty: Shell) -> None:
    shown = ip_empty.fails("%%streamtask t\nclass A:\n    x = missing\n")
    assert isinstance(ip_empty.error, TaskCellError)
    assert isinstance(ip_empty.error.__cause__, NameError)
    assert "----> 3     x = missing" in shown
    assert "streambench_magics" not in shown


def test_a_task_needs_a_name_that_can_be_a_variable(ip_empty: Shell) -> None:
    with pytest.raises(MagicError, match="'my-task' cannot be a name"):
        ip_empty.run("%%streamtask my-task\ndef process(a, b, c):\n    pass\n")


def test_the_wrong_options_are_told_with_the_right_ones(ip_empty: Shell) -> None:
    with pytest.raises(
        MagicError,
        match=r"the following arguments are required: NAME; usage: %%streamtask .*--class CLASS.* NAME",
    ):
        ip_empty.run("%%streamtask\npass\n")


def test_a_configuration_is_kept_by_name(ip_empty: Shell) -> None:
    assert (
        ip_empty.run("%%streamconfig inputs\n# ours\ntask.inputs=mem.a\n")
        == "inputs is a configuration with 1 key"
    )
    assert ip_empty.magics.bench.configs["inputs"] == Config({"task.inputs": "mem.a"})


def test_an_error_in_a_configuration_names_the_line_of_the_cell(ip_empty: Shell) -> None:
    with pytest.raises(
        ConfigError, match=r"task.inputz \(inputs:3\): is not a known key; did you mean task.inputs\?"
    ):
        ip_empty.run("%%streamconfig inputs\n# ours\ntask.inputz=mem.a\n")
    assert "inputs" not in ip_empty.magics.bench.configs


COUNTS = """%%streamconfig counting
systems.log.samza.factory=log
systems.log.path=data
systems.log.samza.key.serde=string
systems.log.samza.msg.serde=json
systems.log.samza.offset.default=oldest
task.inputs=log.in
stores.counts.factory=memory
stores.counts.changelog=log.counts
stores.counts.key.serde=string
stores.counts.msg.serde=json
"""

FUNCTIONS = """%%streamtask tally
def init(context):
    context.user.counts = context.store("counts")

def process(envelope, collector, coordinator, context):
    number = (context.user.counts.get(envelope.key) or 0) + 1
    context.user.counts.put(envelope.key, number)
    collector.send("log.out", number, key=envelope.key)
"""

GLOBALS = """%%streamtask tally
def init(context):
    global counts
    counts = context.store("counts")

def process(envelope, collector, coordinator):
    counts.put(envelope.key, 1)
"""


def counted(ip: Shell, stream: str) -> dict[tuple[int, str], int]:
    """The last value of each key, with the partition it is in."""
    ip.run(f"%stream peek {stream} --limit 1000")
    return {(each["partition"], each["key"]): each["message"] for each in ip.value}


def test_functions_count_in_the_store_of_their_task_across_restarts(ip_empty: Shell) -> None:
    ip_empty.run(COUNTS)
    ip_empty.run(FUNCTIONS)
    ip_empty.run("%stream streams create log.in --partitions 2")
    ip_empty.run("%stream create tally --config counting")
    for round in (1, 2):
        for key in "abcd":
            ip_empty.run(f"%stream send log.in 1 --key {key}")
        ip_empty.run("%stream step 4")
        ip_empty.run("%stream stop")
        of_inputs = {place: round for place in counted(ip_empty, "log.in")}
        assert {number for number, _ in of_inputs} == {0, 1}
        assert counted(ip_empty, "log.counts") == of_inputs
        ip_empty.run(FUNCTIONS)
        ip_empty.run("%stream create tally --config counting")
    assert {key: number for (_, key), number in counted(ip_empty, "log.out").items()} == dict.fromkeys(
        "abcd", 2
    )


def test_a_store_in_a_global_is_told_with_the_remedy(
    ip_empty: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    ip_empty.run(COUNTS)
    ip_empty.run(GLOBALS)
    ip_empty.run("%stream streams create log.in --partitions 2")
    ip_empty.run("%stream create tally --config counting")
    ip_empty.run("%stream step")
    told = [
        each.getMessage()
        for each in caplog.records
        if "the global counts, which its 2 tasks share" in each.getMessage()
    ]
    assert len(told) == 1
    assert "context.user.counts = ... in init(context)" in told[0]


def test_a_function_that_yields_is_refused(ip_empty: Shell) -> None:
    with pytest.raises(MagicError, match=r"process must not yield"):
        ip_empty.run("%%streamtask t\ndef process(envelope, collector, coordinator):\n    yield 1\n")


def test_the_help_of_a_cell_says_where_functions_keep_their_state(ip_empty: Shell) -> None:
    assert "context.user.seen = 0" in ip_empty.magics.streamtask.__doc__
