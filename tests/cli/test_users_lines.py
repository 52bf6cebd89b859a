"""Whatever of the user's own code raises: the error names the file and the line of it, and none of ours."""

from __future__ import annotations

import pytest

from tests.job.project import Project

CODE = """
import streambench as sb
from streambench.chooser import RoundRobinChooser

def boom():
    return {}["missing"]

class Fine(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), {"n": 1}))
class Process(sb.StreamTask):
    def process(self, envelope, collector, coordinator): boom()
class Init(Fine):
    def init(self, context): boom()
class Close(Fine):
    def close(self): boom()
class Made(Fine):
    def __init__(self): boom()
class MadeWrongly(Fine):
    def __init__(self): len(5)
class Decodes(sb.Serde):
    def to_bytes(self, value): return b""
    def from_bytes(self, data): boom()
class Encodes(sb.Serde):
    def to_bytes(self, value): boom()
    def from_bytes(self, data): return data
class MadeSerde(Encodes):
    def __init__(self): boom()
class SerdeFactory:
    def get_serde(self, name, config): boom()
class Chooses(RoundRobinChooser):
    def choose(self): boom()
class MadeChooser(RoundRobinChooser):
    def __init__(self): boom()
class Before(sb.TaskLifecycleListener):
    def before_process(self, envelope, context): boom()
class After(sb.TaskLifecycleListener):
    def after_close(self, context): boom()
class MadeListener(sb.TaskLifecycleListener):
    def __init__(self): boom()
"""
SERDE = {"systems.log.streams.numbers.samza.msg.serde": "mine"}
LISTENER = {"task.lifecycle.listeners": "a"}

CASES = {
    "process": ({"task.class": "code.py:Process"}, "def process", "log.numbers.0@0, key 'k0'"),
    "init": ({"task.class": "code.py:Init"}, "def init", "failed in init()"),
    "close": ({"task.class": "code.py:Close"}, "def close", "failed in close()"),
    "a task's constructor": ({"task.class": "code.py:Made"}, "def __init__", "cannot make a Made"),
    "a task's wrong constructor": (
        {"task.class": "code.py:MadeWrongly"},
        "len(5)",
        "cannot make a MadeWrongly",
    ),
    "a serde that decodes": (
        SERDE | {"serializers.registry.mine.class": "code.py:Decodes"},
        "def from_bytes",
        "log.numbers.0@0",
    ),
    "a serde that encodes": (
        {
            "systems.log.streams.out.samza.msg.serde": "mine",
            "serializers.registry.mine.class": "code.py:Encodes",
        },
        "def to_bytes",
        "log.out",
    ),
    "a serde's constructor": (
        SERDE | {"serializers.registry.mine.class": "code.py:MadeSerde"},
        "def __init__",
        "registry.mine.class",
    ),
    "a serde's factory": (
        SERDE | {"serializers.registry.mine.class": "code.py:SerdeFactory"},
        "def get_serde",
        "registry.mine.class",
    ),
    "a chooser": ({"task.chooser.class": "code.py:Chooses"}, "def choose", "KeyError"),
    "a chooser's constructor": (
        {"task.chooser.class": "code.py:MadeChooser"},
        "def __init__",
        "task.chooser.class",
    ),
    "a listener": (
        LISTENER | {"task.lifecycle.listener.a.class": "code.py:Before"},
        "def before_process",
        "log.numbers.0@0",
    ),
    "a listener at the end": (
        LISTENER | {"task.lifecycle.listener.a.class": "code.py:After"},
        "def after_close",
        "in after_close()",
    ),
    "a listener's constructor": (
        LISTENER | {"task.lifecycle.listener.a.class": "code.py:MadeListener"},
        "def __init__",
        "a.class",
    ),
}


@pytest.mark.parametrize("where", sorted(CASES))
def test_the_line_of_the_users_code_is_shown(project: Project, where: str) -> None:
    settings, line, place = CASES[where]
    project.fill(1, partitions=1)
    (project.directory / "code.py").write_text(CODE)
    project.configure({"task.class": "code.py:Fine", **settings})
    done = project.run("run", "job.properties", "--until", "caught-up", "-q")
    assert done.returncode == 1
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ") and place in first
    shown = "\n".join(rest)
    assert line in shown and "code.py" in shown
    assert "streambench/" not in shown
    if where != "a task's wrong constructor":
        assert shown.count('return {}["missing"]') == 1


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"serializers.registry.mine.class": "avro", "serializers.registry.mine.schema": "no.avsc"},
         "mine.schema (job.properties:"),
        ({"serializers.registry.mine.class": "avro", "serializers.registry.mine.schema": '{"type": "recrd"}'},
         "not an Avro schema"),
        ({"serializers.registry.mine.class": "avor"}, "there is no 'avor'"),
        ({"serializers.registry.mien.class": "avro"}, "did you mean mien?"),
        ({"serializers.registry.mine.class": "json", "serializers.registry.mine.tpye": "x"},
         "did you mean serializers"),
    ],
)  # fmt: skip
def test_wrong_serdes_are_told_in_one_line_without_a_traceback(
    project: Project, settings: dict[str, str], what: str
) -> None:
    project.fill(1, partitions=1)
    project.configure({**SERDE, **settings})
    done = project.run("run", "job.properties", "--until", "caught-up", "-q")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert what in done.stderr


def test_what_is_no_master_is_told_although_there_is_nothing_to_do(project: Project) -> None:
    project.fill(0)
    assert "'sparkk://here:7077' is not a Spark master" in project.fails(
        "deploy", "job.properties", "--master", "sparkk://here:7077"
    )
