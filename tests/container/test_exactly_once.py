"""Exactly once in one process: what a commit lets out, when one is due, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from streambench.checkpoint.pending_writes import PendingWrites
from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import (
    CheckpointError,
    ConfigError,
    FencedError,
    MessageTooLargeError,
    SerdeError,
    StreambenchError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.rows import Rows
from streambench.system import producers_applier
from streambench.system.log import appender, open_log
from streambench.system.log.producer import LogProducer
from streambench.system.producers_applier import ProducersApplier
from streambench.task import MessageCollector, RequestScope, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import JobRun, run_job
from tests.container.jobs import OUT, Bench, echo, ignore

ONCE = {"task.processing.guarantee": "exactly-once"}
STORE = {"stores.counts.factory": "memory", "stores.counts.changelog": "mem.changes"}


class Counts(StreamTask):
    """Counts each message in a store, sends the count; commits at ``commit`` and fails at ``boom``."""

    def init(self, context: TaskContext) -> None:
        self.counts = context.store("counts")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        count = 1 + (self.counts.get(envelope.message) or 0)
        self.counts.put(envelope.message, count)
        collector.send(OutgoingMessageEnvelope(OUT, [envelope.message, count]))
        if envelope.message == "commit":
            coordinator.commit(RequestScope.CURRENT_TASK)
        if envelope.message == "boom":
            raise ValueError(envelope.message)


def messages(run: JobRun, stream: str = "mem.out") -> list[Any]:
    return [message for entries in run.outputs.get(stream, {}).values() for _, message in entries]


def failed(*arguments: Any, **options: Any) -> JobRun:
    with pytest.raises(StreambenchError) as raised:
        run_job(*arguments, **options)
    run: JobRun = raised.value.job_run  # type: ignore[attr-defined]
    return run


# What a commit lets out


def test_outputs_are_there_after_a_commit_and_not_before() -> None:
    bench = Bench(echo, {"mem.a": {0: [1, 2, 3]}}, ONCE)
    container = bench.started()
    container.step(3)
    assert bench.outputs() == []
    container.commit()
    assert bench.outputs() == [1, 2, 3]
    container.stop()
    assert bench.outputs() == [1, 2, 3]


def test_after_a_failure_nothing_since_the_last_commit_is_there() -> None:
    run = failed(Counts, ONCE | STORE, {"mem.a": {0: ["x", "commit", "y", "boom"]}})
    assert messages(run) == [["x", 1], ["commit", 1]]
    assert run.outputs["mem.changes"] == {0: [("x", 1), ("commit", 1)]}
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "1"}}


def test_the_next_start_goes_on_as_if_nothing_had_happened() -> None:
    class Careless(Counts):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            if envelope.message == "boom":
                envelope = IncomingMessageEnvelope(envelope.ssp, envelope.offset, None, "calm")
            super().process(envelope, collector, coordinator)

    inputs = {"mem.a": {0: ["x", "commit", "x", "boom", "x"]}}
    run = run_job(Careless, ONCE | STORE, previous=failed(Counts, ONCE | STORE, inputs))
    undisturbed = run_job(Careless, ONCE | STORE, inputs)
    assert (
        messages(run) == messages(undisturbed) == [["x", 1], ["commit", 1], ["x", 2], ["calm", 1], ["x", 3]]
    )
    assert run.checkpoints == undisturbed.checkpoints


@pytest.mark.parametrize(
    ("before", "after"), [("at-least-once", "exactly-once"), ("exactly-once", "at-least-once")]
)
def test_the_guarantee_may_change_between_runs(before: str, after: str) -> None:
    first = failed(
        Counts, {"task.processing.guarantee": before} | STORE, {"mem.a": {0: ["x", "commit", "x", "boom"]}}
    )
    uncommitted = [["x", 2]] if before == "at-least-once" else []
    assert messages(first) == [["x", 1], ["commit", 1], *uncommitted]
    again = run_job(
        Counts, {"task.processing.guarantee": after, "task.ignored.exceptions": "*"} | STORE, previous=first
    )
    assert messages(again) == [*messages(first), ["x", 2]]
    assert again.outputs["mem.changes"][0][-1:] == [("x", 2)]


def test_a_commit_of_one_task_commits_the_whole_container() -> None:
    run = failed(Counts, ONCE | STORE, {"mem.a": {0: ["x", "boom"], 1: ["commit"]}})
    assert messages(run) == [["x", 1], ["commit", 1]]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "0"}, "Partition 1": {"mem.a.1": "0"}}


def test_outputs_of_a_window_are_committed_though_nothing_was_processed() -> None:
    class Windowed(StreamTask):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None: ...

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            collector.send(OutgoingMessageEnvelope(OUT, "window"))

    bench = Bench(Windowed, {"mem.a": {0: []}}, ONCE | {"task.window.ms": 100})
    container = bench.started()
    bench.clock.advance(100)
    container.step()
    assert bench.outputs() == []
    container.commit()
    assert bench.outputs() == ["window"]


def test_timestamps_and_headers_get_there() -> None:
    def send(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, 1))
        collector.send(OutgoingMessageEnvelope(OUT, 2, timestamp=0, headers={"h": b"v"}))

    bench = Bench(send, {"mem.a": {0: ["x"]}}, ONCE)
    bench.started().run("caught-up")
    bench.container.stop()
    assert bench.streams.of(OUT)[0].fields == [None, 1, None, None, 2, (0, {"h": b"v"})]


# When one is due


def test_a_job_reads_its_own_outputs_until_there_are_no_more() -> None:
    def countdown(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message:
            collector.send(OutgoingMessageEnvelope(SystemStream("mem", "a"), envelope.message - 1))

    run = run_job(countdown, ONCE, {"mem.a": {0: [3]}})
    assert [message for _, _, _, message in run.processed] == [3, 2, 1, 0]
    bench = Bench(countdown, {"mem.a": {0: [3]}}, ONCE)
    assert bench.started().step(10) == 4


def test_a_job_that_feeds_nobody_commits_no_more_often_for_it() -> None:
    run = run_job(echo, ONCE, {"mem.a": {0: [1, 2, 3]}})
    assert run.metrics["container.commit-calls"] == 0
    assert [call.event for call in run.calls if call.event == "commit"] == ["commit"]


@pytest.mark.parametrize(
    "large", [{"message": b"x" * 400_000}, {"message": b"", "headers": {"h": b"x" * 400_000}}]
)
def test_a_commit_is_due_when_much_output_is_pending(large: dict[str, Any]) -> None:
    def much(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, **large))

    bench = Bench(much, {"mem.a": {0: list(range(7))}}, ONCE | {"task.commit.max.output.mb": 1})
    container = bench.started()
    seen = []
    for _ in range(7):
        container.step()
        seen.append(len(bench.outputs()))
    assert seen == [0, 0, 3, 3, 3, 6, 6]
    assert bench.committed() == {"mem.a.0": "5"}


# What is refused


def test_an_output_that_cannot_be_encoded_names_its_message() -> None:
    def wrong(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, object()))

    with pytest.raises(SerdeError, match=r"mem\.out cannot be sent .*while processing mem\.a\.0@0"):
        run_job(wrong, ONCE | {"systems.mem.samza.msg.serde": "json"}, {"mem.a": {0: ["x"]}})


def test_no_room_for_outputs_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=r"task\.commit\.max\.output\.mb.* give 1 or more"):
        run_job(echo, ONCE | {"task.commit.max.output.mb": 0}, {"mem.a": {0: ["x"]}})


def log_job(directory: Path, **more: Any) -> dict[str, Any]:
    with open_log(directory / "log") as streams:
        if "in" not in streams.streams():
            streams.create("in")
            streams.partition("in", 0).append(None, [b"1", b"2"])
    return {
        **ONCE,
        "job.name": "job",
        "task.inputs": "log.in",
        "systems.log.samza.factory": "log",
        "systems.log.path": directory / "log",
        "systems.log.samza.offset.default": "oldest",
        **more,
    }


def to(stream: str) -> Any:
    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(SystemStream.parse(stream), envelope.message))

    return process


def run_log(config: dict[str, Any], task: Any) -> None:
    container = Container.from_config(Config(config), task)
    container.start()
    container.run("caught-up")
    container.stop()


def test_another_kind_of_system_is_refused_before_its_first_output(
    tmp_path: Path,
) -> None:
    config = log_job(tmp_path, **{"systems.files.samza.factory": "file", "systems.files.path": tmp_path})
    with pytest.raises(
        ConfigError,
        match=r"systems\.files\.samza\.factory: .*exactly-once .*'files' is another kind of system",
    ) as raised:
        run_log(config, to("files.out"))
    assert raised.value.key == "systems.files.samza.factory"
    assert not (tmp_path / "out").exists()


def test_checkpoints_in_memory_cannot_go_with_outputs_in_a_log(tmp_path: Path) -> None:
    config = log_job(tmp_path, **{"systems.mem.samza.factory": "memory", "task.checkpoint.system": "mem"})
    with pytest.raises(ConfigError, match="the checkpoints are in memory: 'log' is another kind of system"):
        run_log(config, to("log.out"))


def test_a_changelog_that_cannot_go_along_is_refused_by_a_key_of_the_user(tmp_path: Path) -> None:
    config = log_job(
        tmp_path,
        **{
            "systems.mem.samza.factory": "memory",
            "task.checkpoint.system": "mem",
            "stores.s.factory": "memory",
        },
    )
    said = r"^task\.checkpoint\.system: .*'log' is another kind of system \(log\), and has the changelog of"
    with pytest.raises(ConfigError, match=said):
        run_log(config, to("log.out"))


def test_a_changelog_elsewhere_is_refused_before_the_job_takes_over(tmp_path: Path) -> None:
    config = log_job(
        tmp_path,
        **{
            "systems.mem.samza.factory": "memory",
            "stores.s.factory": "memory",
            "stores.s.changelog": "mem.s",
        },
    )
    with pytest.raises(ConfigError, match=r"stores\.s\.changelog: .*'mem' is another kind of system"):
        run_log(config, to("log.out"))
    assert not (tmp_path / "log" / "_jobs").exists()


def test_a_message_that_is_too_large_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(MessageTooLargeError, match=r"systems\.log\.max\.message\.bytes=0"):
        run_log(log_job(tmp_path, **{"systems.log.max.message.bytes": 0}), to("log.out"))


def one_by_one(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    for message in (b"a", b"x" * 200, b"b"):
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), message))


def by_the_column(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    collector.send_batch(SystemStream("log", "out"), [b"a", b"x" * 200, b"b"])


@pytest.mark.parametrize("task", [one_by_one, by_the_column])
def test_a_message_that_is_too_large_may_be_left_out_of_a_commit(tmp_path: Path, task: Any) -> None:
    run_log(
        log_job(tmp_path, **{"systems.log.max.message.bytes": 100, "task.drop.serialization.errors": "true"}),
        task,
    )
    with open_log(tmp_path / "log") as streams:
        assert streams.partition("out", 0).bounds() == (0, 4)


def test_a_task_cannot_send_to_the_changelog_of_its_own_job(tmp_path: Path) -> None:
    config = log_job(tmp_path, **{"stores.s.factory": "memory", "stores.s.changelog": "log.changes"})
    with pytest.raises(ConfigError, match=r"sent to log\.changes, which is a changelog of this job"):
        run_log(config, to("log.changes"))


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_task_cannot_send_to_that_changelog_after_a_restart_either(guarantee: str, tmp_path: Path) -> None:
    values = {
        "stores.s.factory": "memory",
        "stores.s.changelog": "log.changes",
        "task.processing.guarantee": guarantee,
    }
    config = log_job(tmp_path, **values)
    run_log(config, ignore)
    with open_log(tmp_path / "log") as streams:
        streams.partition("in", 0).append(None, [b"3"])
    with pytest.raises(ConfigError, match=r"sent to log\.changes, which is a changelog of this job"):
        run_log(config, to("log.changes"))
    with open_log(tmp_path / "log") as streams:
        assert streams.partition("changes", 0).bounds() == (0, 0)


def test_what_a_commit_lets_pass_can_be_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the commit would be made, and could never be applied."""
    limit = 10_000
    monkeypatch.setattr(producers_applier, "_LARGEST", limit)
    monkeypatch.setattr(appender, "_LARGEST_BATCH", limit)
    rows = Rows(SystemStreamPartition("log", "out", 0), [], [])
    with open_log(tmp_path) as streams:
        streams.create("out")
        producer = LogProducer("log", streams, MetricsRegistry())
        for count in range(1, 400):
            rows.extend(
                Rows(
                    rows.ssp,
                    [b"k" * (count % 3)],
                    [b"v" * (count % 5)],
                    None,
                    [{"ä": b"h"}] if count % 2 else None,
                )
            )
            rows.stamp(1)
            effect = PendingWrites("job", 1, count, [rows])
            try:
                ProducersApplier(lambda system: producer).check(effect)
            except MessageTooLargeError:
                break
            producer.append_once(rows, "job", 1, count)
    assert 50 < count < 400


def test_checkpoints_older_than_the_streams_are_refused_before_a_commit(
    tmp_path: Path,
) -> None:
    config = log_job(tmp_path)
    run_log(config, ignore)
    shutil.copytree(tmp_path / "log" / "_jobs", tmp_path / "old")
    with open_log(tmp_path / "log") as streams:
        streams.partition("in", 0).append(None, [b"3"])
    run_log(config, to("log.out"))
    shutil.rmtree(tmp_path / "log" / "_jobs")
    shutil.move(tmp_path / "old", tmp_path / "log" / "_jobs")
    with pytest.raises(
        CheckpointError,
        match=r"log\.out\.0 holds outputs of a later commit .* the checkpoints are older than the streams",
    ):
        run_log(config, to("log.out"))


def test_deleted_checkpoints_begin_anew_and_nothing_is_taken_for_written(tmp_path: Path) -> None:
    config = log_job(tmp_path)
    run_log(config, to("log.out"))
    shutil.rmtree(tmp_path / "log" / "_jobs")
    run_log(config, to("log.out"))
    with open_log(tmp_path / "log") as streams:
        assert streams.partition("out", 0).bounds() == (0, 4)


def test_who_was_replaced_notices_without_a_commit() -> None:
    bench = Bench(echo, {"mem.a": {0: [1]}}, ONCE | {"task.poll.interval.ms": 50})
    old = bench.started()
    old.step()
    Bench(
        ignore,
        {},
        {"task.inputs": "mem.a", **ONCE},
        streams=bench.streams,
        checkpoints=bench.checkpoints.sibling(),
    ).started()
    bench.clock.advance(50)
    with pytest.raises(FencedError):
        old.step()
    assert bench.outputs() == []


@pytest.mark.parametrize("default", ["oldest", "upcoming"])
def test_what_a_former_holder_did_during_the_planning_is_not_done_again(
    default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**ONCE, "systems.mem.samza.offset.default": default, "task.inputs": "mem.a"}
    old = Bench(echo, {"mem.a": {0: []}}, settings)
    former = old.started()
    heir = Bench(echo, {}, settings, streams=old.streams, checkpoints=old.checkpoints.sibling())
    open_generation = heir.checkpoints.open_generation

    def at_the_last_moment(*arguments: Any, **named: Any) -> Any:
        old.put("mem.a.0", 1, 2, 3)
        former.run("caught-up")
        former.commit()
        return open_generation(*arguments, **named)

    monkeypatch.setattr(heir.checkpoints, "open_generation", at_the_last_moment)
    assert heir.started().run("caught-up") == 0
    heir.container.stop()
    assert old.outputs() == [1, 2, 3]
