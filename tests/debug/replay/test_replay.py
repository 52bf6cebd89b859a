"""Recordings of sessions, and sessions over recordings."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import streambench as sb
from streambench import debug
from streambench.container.container import Container
from streambench.debug import Recording
from streambench.debug.comparison.message_source import recording_of
from streambench.debug.control.session import Session
from streambench.debug.replay.replay_summary import summary_lines
from streambench.errors import ContainerStateError, StreambenchError, TaskError
from streambench.recording.file import BLOCK_MESSAGES
from tests.container.jobs import Bench
from tests.container.test_failure_capture import GOOD, Sums, config_of, process_all, put
from tests.debug.control.test_time_travel import Counter, messages, session_of, shown

SERDES = {"systems.mem.samza.msg.serde": "json", "systems.mem.samza.key.serde": "string"}


class LastFirst(sb.MessageChooser):
    """Chooses the message that came last."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def update(self, envelope: Any) -> None:
        self.waiting.append(envelope)

    def choose(self) -> Any:
        return self.waiting.pop() if self.waiting else None


class Fragile(Counter):
    """Fails at the fifth message of a task, in the middle of its work."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        if self.seen == 5:
            self.store.put("half", 1)
            raise ValueError("the fifth")


class Lists(sb.StreamTask):
    """Keeps its messages in a list, which it changes in place."""

    def init(self, context: Any) -> None:
        self.seen: list[Any] = []

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.seen.append(envelope.message)


def recorded(
    tmp_path: Path, task: Any = Counter, config: Any = None, inputs: Any = None, **options: Any
) -> tuple[Session, Path]:
    session, _ = session_of(task, inputs, config=config, **options)
    path = tmp_path / "run.recording"
    session.record(path)
    return session, path


def test_a_recording_is_opened_twice_with_the_same_attributes(tmp_path: Path) -> None:
    session, _ = session_of(Lists)
    session.step(2)
    session.commit()
    session.record(tmp_path / "late.recording")
    session.step(3)
    session.stop_recording()
    recording = Recording.read(tmp_path / "late.recording")
    assert debug.open(recording).attributes() == debug.open(recording).attributes() == session.attributes()


def test_a_recording_ends_in_a_run_that_goes_on(tmp_path: Path) -> None:
    session, path = recorded(tmp_path, inputs=messages(3000))
    session.step(1000)
    session.run(lambda: session.recorded is not None)
    ended = session.stop_recording()
    session.wait()
    assert session.state == "paused"
    assert (ended.path, ended.size) == (path, path.stat().st_size)
    assert 1000 <= ended.messages == len(Recording.read(path)) <= session.position
    assert Recording.read(path).is_complete
    with pytest.raises(ContainerStateError, match=r"not being recorded: session.record\(\) begins it"):
        session.stop_recording()
    session.record(tmp_path / "again.recording")
    session.commit()
    session.step(3)
    assert session.stop_recording().messages == 3


class Interrupted(Counter):
    """Has the main thread interrupted at its third message, as Ctrl-C would."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        if self.seen == 3:
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_while_a_recording_opens_ends_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, path = recorded(tmp_path)
    session.run("caught-up")
    session.wait()
    session.stop()
    ended: list[Session] = []
    abandon = Session.abandon

    def noted(opened: Session) -> None:
        ended.append(opened)
        abandon(opened)

    monkeypatch.setattr(Session, "abandon", noted)
    with pytest.raises(KeyboardInterrupt):
        debug.open(path, Interrupted)
    assert [(each.state, each.running) for each in ended] == [("failed", False)]


def test_a_recording_says_how_far_it_is_while_it_is_read_and_opened(tmp_path: Path) -> None:
    session, path = recorded(tmp_path, inputs=messages(30))
    session.run("caught-up")
    session.wait()
    session.stop()
    read: list[tuple[int, int]] = []
    recording = Recording.read(path, lambda *each: read.append(each))
    assert read[0][1] == path.stat().st_size >= read[-1][0] > read[0][0]
    ran: list[tuple[int, int]] = []
    debug.open(recording, progress=lambda *each: ran.append(each))
    assert ran[-1] == (len(recording), len(recording)) and len(ran) > 1


@pytest.mark.parametrize(
    "settings",
    [
        {},
        SERDES,
        {"task.processing.guarantee": "exactly-once"},
        {"stores.n.factory": "rocksdb"},
        {"task.chooser.class": "tests.debug.replay.test_replay:LastFirst"},
        {"task.ignored.exceptions": "ValueError"},
    ],
    ids=["objects", "bytes", "exactly-once", "rocksdb", "chooser", "ignoring"],
)
def test_every_position_of_a_recording_is_that_of_the_session(tmp_path: Path, settings: Any) -> None:
    config = {"task.window.ms": 10, "task.commit.ms": 20, **settings}
    inputs = messages(20)
    if settings is SERDES:
        inputs = {
            stream: {number: [json.dumps(each).encode() for each in given] for number, given in parts.items()}
            for stream, parts in inputs.items()
        }
    session, path = recorded(tmp_path, config=config, inputs=inputs)
    seen = {0: shown(session)}
    clock = session.container.status.clock
    while session.step(1):
        clock.advance(4)  # type: ignore[attr-defined]
        seen[session.position] = shown(session)
    seen[session.position] = shown(session)  # a window may have been due after the last message
    order = [(each.ssp, each.offset) for each in session.container.choices]
    session.stop()
    opened = debug.open(path)
    assert opened.position == opened.latest == max(seen) > 10
    for position in reversed(seen):
        opened.goto(position)
        assert shown(opened)[:3] == seen[position][:3], position
        assert [each[1:] for each in shown(opened)[3]] == [each[1:] for each in seen[position][3]]
    opened.go_live()
    assert [(each.ssp, each.offset) for each in opened.container.choices][-len(order) :] == order
    opened.stop()


def test_outputs_have_as_many_partitions_in_a_replay_as_they_had(tmp_path: Path) -> None:
    def last_of_nine(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("mem", "out"), 1, partition=8))

    bench = Bench(
        last_of_nine, {"mem.in": {0: [1, 2]}, "mem.out": {8: []}}, {"task.inputs": "mem.in"}, observed=False
    )
    session = Session(bench.container)
    session.record(tmp_path / "wide.recording")
    session.start()
    session.step(2)
    session.stop()
    assert [each.partition for each in debug.open(tmp_path / "wide.recording").outputs()] == [8, 8]


class WindowFails(Counter):
    """Fails in its second window."""

    def window(self, collector: Any, coordinator: Any) -> None:
        super().window(collector, coordinator)
        if self.context.user.windows == 2:
            raise ValueError("the second window")


def test_a_recording_of_a_failed_window_opens_before_the_preceding_message(tmp_path: Path) -> None:
    session, path = recorded(tmp_path, WindowFails, {"task.window.ms": 10})
    seen = {0: shown(session)}
    with pytest.raises(TaskError, match="the second window"):
        while session.step(1):
            session.container.status.clock.advance(4)  # type: ignore[attr-defined]
            seen[session.position] = shown(session)
    opened = debug.open(path)
    assert opened.position == max(seen)
    assert shown(opened)[:3] == seen[max(seen)][:3]
    with pytest.raises(TaskError, match="the second window"):
        opened.step(1)


def test_entries_expire_in_a_replay_as_they_did(tmp_path: Path) -> None:
    config = {"task.window.ms": 10, "task.commit.ms": 20, "stores.n.ttl.ms": 12}
    session, path = recorded(tmp_path, config=config)
    while session.step(1):
        session.container.status.clock.advance(4)  # type: ignore[attr-defined]
    last = without_metrics(session)
    session.stop()
    assert sum(len(of_task["n"]) for of_task in last[0].values()) > 0
    assert without_metrics(debug.open(path)) == last


def test_a_recording_of_a_failure_opens_before_the_failing_message(tmp_path: Path) -> None:
    session, path = recorded(tmp_path, Fragile)
    seen: list[Any] = [shown(session)]
    with pytest.raises(TaskError) as raised:
        while session.step(1):
            seen.append(shown(session))
    recording = Recording.read(path)
    assert recording.is_complete
    assert recording.failure is not None
    assert (str(recording.failure.ssp), recording.failure.offset) == (
        str(raised.value.ssp),
        raised.value.offset,
    )
    assert "the fifth" in recording.failure.text
    opened = debug.open(path)
    assert opened.position == len(seen) - 1
    assert opened.message is not None
    assert (opened.message.ssp, opened.message.offset) == (raised.value.ssp, raised.value.offset)
    assert shown(opened)[0] == seen[-1][0]
    assert opened.back(2) == len(seen) - 3
    assert shown(opened)[0] == seen[-3][0]
    opened.go_live()
    with pytest.raises(TaskError, match="the fifth"):
        opened.step()


def test_mended_code_goes_on_in_a_recording(tmp_path: Path) -> None:
    session, path = recorded(tmp_path, Fragile)
    with pytest.raises(TaskError):
        session.step(1000)
    opened = debug.open(path)
    opened.swap(Counter)
    assert opened.step(10) == 1
    assert opened.position == len(Recording.read(path))
    assert all(each.held for each in opened.outputs())


def test_a_recording_begins_with_the_next_commit(tmp_path: Path) -> None:
    session, _ = session_of(config={"task.commit.ms": -1})
    Counter.commits_after, before = 10_000, Counter.commits_after
    try:
        session.step(5)
        session.record(tmp_path / "late.recording")
        session.step(3)
        assert session.recorded_to is None
        session.commit()
        assert session.recorded_to is not None
        state = without_metrics(session)
        session.step(4)
        last = without_metrics(session)
        session.stop()
    finally:
        Counter.commits_after = before
    opened = debug.open(tmp_path / "late.recording")
    assert opened.position == 4
    assert without_metrics(opened) == last
    assert opened.goto(0) == 0
    assert without_metrics(opened) == state


def test_a_recording_asked_for_before_the_start_begins_with_it(tmp_path: Path) -> None:
    first, bench = session_of()
    first.abandon()
    session = Session(type(bench)(Counter, {"mem.in": {0: [{"key": "a"}]}}, bench.config).container)
    session.record(tmp_path / "all.recording")
    session.start()
    session.step(1)
    session.stop()
    assert [each.message for each in Recording.read(tmp_path / "all.recording")] == [{"key": "a"}]


def test_secrets_of_the_configuration_are_not_recorded(tmp_path: Path) -> None:
    session, path = recorded(tmp_path, config={"systems.mem.password": "hunter2-secret"})
    session.step(3)
    session.stop()
    assert b"hunter2-secret" not in path.read_bytes()
    assert Recording.read(path).config["systems.mem.password"] == "***"


def test_what_is_torn_is_left_out(tmp_path: Path) -> None:
    session, path = recorded(tmp_path)
    ends = [path.stat().st_size]
    for _ in range(10):
        assert session.step(1) == 1
        ends.append(path.stat().st_size)
    session.stop()
    whole, offsets = path.read_bytes(), [each.offset for each in Recording.read(path)]
    # The block of the last step is followed by that of the end, which is torn here, too.
    for processed, (end, following) in enumerate(pairwise([*ends, ends[-1] + 100])):
        for size in (end, end + 1, (end + following) // 2, following - 1):
            path.write_bytes(whole[:size])
            recording = Recording.read(path)
            assert not recording.is_complete
            assert "last whole block" in recording.notes[-1]
            assert [each.offset for each in recording] == offsets[:processed]


def test_recording_ends_at_its_size_and_the_job_goes_on(tmp_path: Path) -> None:
    session, _ = session_of()
    session.record(tmp_path / "small.recording", mb=0)
    assert session.step(5) == 5
    assert session.recorded_to is None
    assert session.step(5) == 5
    session.stop()
    recording = Recording.read(tmp_path / "small.recording")
    assert len(recording) == 1
    assert "0 MB" in recording.notes[0]


def test_only_some_messages_of_a_recording_are_a_recording(tmp_path: Path) -> None:
    session, path = recorded(tmp_path)
    session.step(10)
    session.stop()
    recording = Recording.read(path)
    part = recording.only([1, 4, 5])
    part.save(tmp_path / "part.recording")
    kept = [recording.messages[place] for place in (1, 4, 5)]
    assert list(Recording.read(tmp_path / "part.recording")) == kept
    opened = debug.open(tmp_path / "part.recording")
    assert opened.position == 3
    assert opened.message is not None
    assert opened.message.offset == kept[-1].offset


def test_code_that_is_not_here_is_asked_for(tmp_path: Path) -> None:
    def local(envelope: Any, collector: Any, coordinator: Any) -> None:
        pass

    session, path = recorded(tmp_path, local)
    session.step(2)
    session.stop()
    opened = debug.open(path)  # this process still has the function
    assert opened.position == 2
    recording = Recording.read(path)
    recording.header = sb_replace(recording.header, id="another process")
    with pytest.raises(sb.ConfigError, match="task=FILE.py:CLASS.*recorded_source=True"):
        debug.open(recording)


def test_a_recording_shows_what_it_is(tmp_path: Path) -> None:
    session, path = recorded(tmp_path)
    session.step(10)
    session.stop()
    size = f"{path.stat().st_size:,} bytes"
    recording = Recording.read(path)
    assert repr(recording) == f"<recording of {recording.job}, 10 messages, no failure, {path} ({size})>"
    part = recording.only([1])
    assert repr(part) == f"<recording of {recording.job}, 1 message, no failure, in no file>"
    assert "<div>10 messages</div>" in recording._repr_html_()


def test_another_file_is_no_recording(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello")
    with pytest.raises(StreambenchError, match="is no recording"):
        debug.open(tmp_path / "x")
    with pytest.raises(StreambenchError, match="cannot read"):
        debug.open(tmp_path / "missing")


def test_a_session_without_a_history_says_that_it_cannot_record(tmp_path: Path) -> None:
    session, _ = session_of(history=0)
    with pytest.raises(ContainerStateError, match="history=0"):
        session.record(tmp_path / "none.recording")


def without_metrics(session: Session) -> tuple[Any, ...]:
    """Stores, attributes and offsets, without the task's metric: it counts from the begin of a replay."""
    stores, attributes, offsets, _ = shown(session)
    for of_task in attributes.values():
        del of_task["number"]
    return stores, attributes, offsets


def sb_replace(struct: Any, **values: Any) -> Any:

    return replace(struct, **values)


def test_the_capture_of_a_session_has_all_of_its_history(tmp_path: Path) -> None:
    config = config_of(tmp_path, task__inputs="log.in,log.more")
    put(config, "log.in", *GOOD, {"key": "c", "bad": True})
    put(config, "log.more", *GOOD)
    session = Session(Container(config, Sums, remember_choices=100))
    session.start()
    seen = {0: session.stores()}
    with pytest.raises(TaskError) as raised:
        while session.step(1):
            seen[session.position] = session.stores()
            if session.position == 3:
                session.commit()
    path = Path(str(raised.value).rpartition(" ")[2])
    recording = Recording.read(path)
    assert recording.header.kind == "capture"
    assert recording.header.ordered
    assert not recording.notes
    opened = debug.open(path)
    for position in reversed(seen):
        opened.goto(position)
        assert opened.stores() == seen[position]
    session.abandon()


KILLED = """
import os, signal, sys
from pathlib import Path
from streambench.container.container import Container
from streambench.debug.control.session import Session
from tests.container.test_failure_capture import config_of, process_all

session = Session(Container(config_of(Path(sys.argv[1])), process_all))
session.record(sys.argv[2])
session.start()
session.step(3)
session.step(4)
os.kill(os.getpid(), signal.SIGKILL)
"""


KILLED_IN_ONE_RUN = """
import os, signal, sys, time
from pathlib import Path
from streambench.container.container import Container
from streambench.debug.control.session import Session
from tests.container.test_failure_capture import config_of

class SlowToCopy:
    def __deepcopy__(self, memo):
        time.sleep(0.3)
        return self

class Counts:
    def init(self, context):
        self.seen, self.kept = 0, SlowToCopy()

    def process(self, envelope, collector, coordinator):
        self.seen += 1
        if self.seen == 15_000:
            os.kill(os.getpid(), signal.SIGKILL)

config = config_of(Path(sys.argv[1]), task__poll__interval__ms=1)
session = Session(Container(config, Counts))
session.record(sys.argv[2])
session.start()
session.run()
session.wait()
"""


def test_a_kill_in_a_run_without_commits_loses_a_bounded_part(tmp_path: Path) -> None:
    put(config_of(tmp_path), "log.in", *[{"key": str(number)} for number in range(15_000)])
    path = tmp_path / "killed.recording"
    done = subprocess.run([sys.executable, "-c", KILLED_IN_ONE_RUN, str(tmp_path), str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    recording = Recording.read(path)
    assert 15_000 - 2 * BLOCK_MESSAGES <= len(recording) < 15_000
    assert "lacks at most about 1,000 messages or 1 s" in recording.notes[-1]


FULL = """
import resource, sys
from pathlib import Path
from streambench.container.container import Container
from streambench.debug.control.session import Session
from tests.container.test_failure_capture import config_of, process_all

# Outputs stay in memory: only the recording meets the limit.
config = config_of(Path(sys.argv[1]), systems__log__linger__ms=3_600_000)
session = Session(Container(config, process_all))
session.record(sys.argv[2])
session.start()
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, resource.RLIM_INFINITY))
for _ in range(30):
    session.step(10)
print(session.position, session.recorded_to)
"""


def test_a_recording_on_a_full_disk_ends_with_its_last_whole_block(tmp_path: Path) -> None:
    chance = random.Random(7)
    texts = [chance.randbytes(100).hex() for _ in range(300)]
    put(config_of(tmp_path), "log.in", *[{"key": text} for text in texts])
    path = tmp_path / "full.recording"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "300 None\n"
    recording = Recording.read(path)
    assert 0 < len(recording) < 300
    assert f"ends after {len(recording)} messages: File too large; the job goes on" in done.stderr
    assert debug.open(path, process_all).position == len(recording)


def test_a_recording_outlives_a_kill_up_to_its_last_block(tmp_path: Path) -> None:
    put(config_of(tmp_path), "log.in", *[{"key": str(number)} for number in range(20)])
    path = tmp_path / "killed.recording"
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    recording = Recording.read(path)
    assert not recording.is_complete
    assert [each.offset for each in recording] == [str(number) for number in range(7)]
    opened = debug.open(path, process_all)
    assert opened.position == 7
    assert len(opened.outputs()) == 7


class Click:
    """A message of a class of its own."""

    def __init__(self, user: str) -> None:
        self.user = user


def test_messages_that_cannot_be_kept_are_noted_once_a_stream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"mem.in": {0: [Click("a"), Click("b")], 1: [Click("c")]}}
    session, path = recorded(tmp_path, Lists, inputs=given)
    session.step(1)
    session.step(2)
    session.stop()
    (note,) = Recording.read(path).notes
    assert note.startswith("messages of mem.in are objects of classes, which a recording cannot keep")
    assert "with a serde (systems.mem.samza.msg.serde) they are kept" in note
    assert caplog.text.count(note) == 1
    assert f"  note: {note}" in summary_lines(Recording.read(path), Lists)
    in_memory = recording_of([Click("a")], sb.Config({"systems.memory.samza.factory": "memory"}), Lists)
    assert not in_memory.notes
