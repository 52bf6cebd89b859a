"""A sound job on logs, files and memory, with some keys changed at random.

It runs, or it is refused in one line; and afterwards the sound job goes on.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streambench as sb
from streambench.system.log import open_log
from streambench.system.memory import memory_streams
from tests.surroundings import SOAK
from tests.test_config_fuzz import LEAVES, NOT_HERE, TEXTS, VALUES, is_one_visible_line

CASES = 20_000 if SOAK else 60

SOUND = {
    "job.name": "sound",
    "task.inputs": "log.in,lines.in,mem.in",
    "task.broadcast.inputs": "log.all#0",
    "task.class": "sound.py:Sound",
    "task.window.ms": "1",
    "task.window.at.end": "true",
    "task.commit.ms": "60000",
    "task.consumer.batch.size": "2",
    "task.ignored.exceptions": "ValueError",
    "task.ignored.exceptions.dead.letter": "true",
    "task.drop.deserialization.errors": "true",
    "task.dead.letter.stream": "log.dead",
    "task.checkpoint.system": "log",
    "task.processing.guarantee": "exactly-once",
    "job.changelog.system": "log",
    "stores.kept.factory": "memory",
    "stores.kept.key.serde": "string",
    "stores.kept.msg.serde": "json",
    "stores.kept.changelog": "log.kept",
    "stores.brief.factory": "memory",
    "stores.brief.ttl.ms": "60000",
    "stores.brief.changelog": "none",
    "systems.log.samza.factory": "log",
    "systems.log.path": "streams",
    "systems.log.samza.key.serde": "string",
    "systems.log.samza.msg.serde": "json",
    "systems.log.samza.offset.default": "oldest",
    "systems.log.streams.in.samza.priority": "1",
    "systems.log.streams.out.partitions": "2",
    "systems.log.streams.all.samza.bootstrap": "true",
    "systems.lines.samza.factory": "file",
    "systems.lines.path": "lines",
    "systems.lines.samza.msg.serde": "json",
    "systems.lines.samza.offset.default": "oldest",
    "systems.mem.samza.factory": "memory",
    "systems.mem.samza.msg.serde": "json",
    "systems.mem.samza.offset.default": "oldest",
}
TASK = """
import streambench as sb


class Sound(sb.StreamTask):
    def init(self, context):
        self.context = context

    def process(self, envelope, collector, coordinator):
        kept = self.context.store("kept")
        kept["all"] = kept.get("all", 0) + 1
        collector.send("log.out", envelope.message, key="k")

    def window(self, collector, coordinator):
        collector.send("log.windows", 1)
"""
PATHS = (".path", ".dir", ".root")

CHANGES = st.dictionaries(
    st.sampled_from(sorted(SOUND)),
    st.one_of(st.none(), VALUES, st.sampled_from(sorted({*SOUND.values()})), TEXTS),
    min_size=1,
    max_size=3,
)


def _stays_in(directory: Path, values: dict[str, str]) -> bool:
    """True unless the changed job would write somewhere else, or wait for others."""
    for key, value in values.items():
        if any(word in value for word in NOT_HERE):
            return False
        if key.endswith(PATHS) and (value.startswith(("/", "~")) or ".." in value):
            return False
    return True


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sound")
    (made / "leaves.py").write_text(LEAVES)
    (made / "sound.py").write_text(TASK)
    (made / "lines").mkdir()
    (made / "lines" / "in.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    with open_log(made / "streams") as streams:
        for name in ("in", "all"):
            streams.create(name, 1)
            streams.partition(name, 0).append([b"a", b"b"], [b'{"n": 1}', b"broken"])
    memory_streams("mem").create(sb.SystemStream("mem", "in"), 1)
    message = sb.OutgoingMessageEnvelope(sb.SystemStream("mem", "in"), None)
    memory_streams("mem").partition(message.system_stream, 0).append(message, None, b"1")
    return made


def run(directory: Path, values: dict[str, str]) -> int:
    """Run a job until it has caught up; how many messages it processed."""
    text = "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in values.items())
    container = None
    try:
        config = sb.Config.from_text(text, origin="sound.properties", directory=directory)
        container = sb.Container(config)
        container.start()
        processed = container.run("caught-up")
        container.stop()
        return processed
    finally:
        if container is not None:
            container.abandon()


def _escaped(text: str) -> str:
    return "".join(
        each if each.isascii() and each.isalnum() else f"\\u{unit:04x}"
        for each in text
        for unit in _units(each)
    )


def _units(character: str) -> list[int]:
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def test_the_job_without_changes_processes_all_its_messages(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(template, tmp_path / "job")
    assert run(tmp_path / "job", SOUND) == 7  # two of them become dead letters
    assert run(tmp_path / "job", SOUND) == 0


@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=CHANGES)
def test_a_sound_job_with_changed_keys_runs_or_is_refused_in_one_line(
    changes: dict[str, str | None], template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: dict[str, Any] = {key: value for key, value in {**SOUND, **changes}.items() if value is not None}
    directory = template.parent / "changed"
    if not _stays_in(directory, values):
        return
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(template, directory)
    monkeypatch.chdir(directory)
    for step in (values, SOUND):
        try:
            run(directory, step)
        except sb.StreambenchError as error:
            assert is_one_visible_line(str(error)), repr(str(error))
