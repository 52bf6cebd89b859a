"""Where reading begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.inputs.starting_offsets import StartingOffsets, start_point
from streambench.container.outputs.direct_writer import writing
from streambench.errors import ConfigError, ContainerStateError, OffsetError, TaskError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.memory import MemoryStreams, MemorySystemFactory
from streambench.system.systems import Systems
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import JobRun, run_job
from tests.container.jobs import Bench, ignore
from tests.samza_traces import samza_traces

SSP = SystemStreamPartition("sys", "a", 0)
TASK = "Partition 0"
FULL = PartitionMetadata("10", "19", "20")
EMPTY = PartitionMetadata(None, None, "20")


def start(
    config: dict[str, str] | None = None,
    checkpoint: Checkpoint | None = None,
    metadata: PartitionMetadata = FULL,
) -> tuple[str, str | None]:
    """Where the task begins, and the last message it had processed."""
    made = Config(config or {})
    made.validate()
    starting = StartingOffsets(
        made, Systems(made, MemorySystemFactory()), {SSP.system_stream: {0: metadata}}, {}, frozenset()
    )
    return starting.resolve(TASK, SSP, checkpoint)


def after(offset: str) -> Checkpoint:
    return Checkpoint({SSP: offset})


ALL_TRACES = samza_traces("offsets")
TRACES = [trace for trace in ALL_TRACES if trace["startpoint"] is None]
WITH_START_POINT = [trace for trace in ALL_TRACES if trace["startpoint"] is not None]


def in_samza(trace: dict[str, Any]) -> Checkpoint | None:
    given = trace["checkpoint"]
    return (
        None
        if given is None
        else Checkpoint({SystemStreamPartition.parse(ssp): offset for ssp, offset in given.items()})
    )


def in_metadata(trace: dict[str, Any]) -> PartitionMetadata:
    return PartitionMetadata(**trace["metadata"])


def test_reading_begins_where_samza_begins() -> None:
    equal = [trace for trace in TRACES if "differs" not in trace and "start" in trace["result"]]
    assert len(equal) == 312
    found = {trace["id"]: start(trace["config"], in_samza(trace), in_metadata(trace)) for trace in equal}
    assert found == {
        trace["id"]: (trace["result"]["start"], trace["result"]["last_processed"]) for trace in equal
    }


def test_a_default_that_samza_refuses_is_refused() -> None:
    refused = [trace for trace in ALL_TRACES if "error" in trace["result"]]
    assert len(refused) == 90 + 30 + 3 * 54
    for trace in refused:
        with pytest.raises(
            ConfigError, match=r"samza\.offset\.default: 'fail' is not one of oldest, newest, upcoming"
        ):
            start(trace["config"], in_samza(trace), in_metadata(trace))


def test_a_checkpoint_out_of_range_is_reported_and_the_default_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outside = [trace for trace in TRACES if "out of range" in trace.get("differs", "")]
    assert len(outside) == 216
    for trace in outside:
        caplog.clear()
        assert start(trace["config"], in_samza(trace), in_metadata(trace)) == start(
            trace["config"], None, in_metadata(trace)
        )
        assert f"the checkpoint of {TASK} goes on at" in caplog.text


def test_a_checkpoint_just_outside_is_judged_by_the_position_after_it() -> None:
    """Samza leaves it to the consumer; here the next position counts: that after 9 is there in 10 to 20, that
    after 20 is not."""
    edges = [trace for trace in TRACES if "just outside" in trace.get("differs", "")]
    assert len(edges) == 48
    for trace in edges:
        found = start(trace["config"], in_samza(trace), in_metadata(trace))
        is_inside = "offset 9 " in trace["differs"]
        assert found == (
            (trace["result"]["start"], "9") if is_inside else start(trace["config"], None, in_metadata(trace))
        )


def rewound(trace: dict[str, Any]) -> Checkpoint:
    """What a rewind to the trace's start point leaves."""
    systems = Systems(Config({}), MemorySystemFactory())
    where = trace["startpoint"].removeprefix("specific:")
    return Checkpoint({}, {SSP: start_point(systems, SSP, in_metadata(trace), where)})


def test_a_start_point_goes_before_everything_as_in_samza() -> None:
    equal = [trace for trace in WITH_START_POINT if "differs" not in trace]
    assert len(equal) == 3 * 162
    reached = [
        trace
        for trace in equal
        if trace["startpoint"] != "specific:15" or trace["metadata"]["oldest"] == "10"
    ]
    there = [
        trace
        for trace in reached
        if trace["startpoint"] != "oldest" or trace["metadata"]["oldest"] is not None
    ]
    assert (len(reached), len(there)) == (378, 270)
    found = {trace["id"]: start(trace["config"], rewound(trace), in_metadata(trace))[0] for trace in there}
    assert found == {trace["id"]: trace["result"]["start"] for trace in there}


def test_the_oldest_of_an_empty_partition_is_what_comes_next() -> None:
    """Samza gives such a start point up and follows the checkpoint, which leads to the same message."""
    empty = [
        trace
        for trace in WITH_START_POINT
        if trace["startpoint"] == "oldest" and trace["metadata"]["oldest"] is None
    ]
    assert {start({}, rewound(trace), in_metadata(trace))[0] for trace in empty} == {"0", "20"}


def test_a_start_point_that_is_not_there_is_refused_when_it_is_asked_for() -> None:
    """Samza takes it as it is, and leaves it to the consumer what becomes of it."""
    outside = [
        trace
        for trace in WITH_START_POINT
        if trace["startpoint"] == "specific:15" and trace["metadata"]["oldest"] is None
    ]
    assert outside
    for trace in outside:
        with pytest.raises(OffsetError, match=r"sys\.a\.0: 15 is outside of what it holds"):
            rewound(trace)


def timed(*times_ms: int | None) -> tuple[Systems, PartitionMetadata]:
    """Return systems with a partition in memory that has messages of these times, and its metadata."""
    systems = Systems(Config({}), MemorySystemFactory(MemoryStreams()))
    systems.create(SSP.system_stream, 1)
    producer = systems.producer("sys", MetricsRegistry())
    producer.register("test")
    producer.start()
    for time_ms in times_ms:
        producer.send(
            "test", OutgoingMessageEnvelope(SSP.system_stream, b"x", partition=0, timestamp=time_ms)
        )
    producer.flush("test")
    return systems, systems.metadata([SSP.system_stream])[SSP.system_stream][0]


def test_a_start_point_of_a_time_is_the_first_message_that_is_not_older() -> None:
    systems, here = timed(100, None, 200, 150, 300)
    places = {
        when: start_point(systems, SSP, here, f"timestamp:{when}")
        for when in ("0", "101", "200", "201", "301")
    }
    assert places == {"0": "0", "101": "2", "200": "2", "201": "4", "301": "5"}
    assert start_point(systems, SSP, here, "timestamp:1970-01-01T00:00:00.300Z") == "4"
    assert start_point(systems, SSP, EMPTY, "timestamp:5") == "20"


def test_a_time_is_refused_where_no_message_has_one() -> None:
    systems, here = timed(None, None)
    with pytest.raises(OffsetError, match=r"none of its 2 messages has a timestamp.* Give an offset"):
        start_point(systems, SSP, here, "timestamp:0")


def test_a_start_point_goes_before_a_reset_a_recorded_start_does_not() -> None:
    reset = OLDEST | {"systems.sys.streams.a.samza.reset.offset": "true"}
    assert start(reset, Checkpoint({}, {SSP: "17"}))[0] == "17"
    assert start(reset, Checkpoint({}, {SSP: "17"}, generation=3))[0] == "10"
    assert start(reset, Checkpoint({SSP: "12"}, {SSP: "17"}))[0] == "10"


def test_a_reset_that_is_neither_true_nor_false_is_none() -> None:
    assert start({"systems.sys.streams.a.samza.reset.offset": "yes"}, after("14")) == ("15", "14")


# The order of precedence

OLDEST = {"systems.sys.samza.offset.default": "oldest"}
STREAM_NEWEST = {"systems.sys.streams.a.samza.offset.default": "newest"}


@pytest.mark.parametrize(
    ("config", "checkpoint", "where"),
    [
        ({}, None, "20"),
        (OLDEST, None, "10"),
        (OLDEST | STREAM_NEWEST, None, "19"),
        (OLDEST | STREAM_NEWEST, after("14"), "15"),
        (OLDEST | {"systems.sys.streams.a.samza.reset.offset": "true"}, after("14"), "10"),
        (OLDEST, Checkpoint({}), "10"),
        (OLDEST, Checkpoint({}, {SSP: "17"}), "17"),
        (OLDEST, Checkpoint({SSP: "11"}, {SSP: "17"}), "12"),
    ],
)
def test_checkpoint_beats_stream_beats_system_beats_upcoming(
    config: dict[str, str], checkpoint: Checkpoint | None, where: str
) -> None:
    assert start(config, checkpoint)[0] == where


@pytest.mark.parametrize("default", ["oldest", "newest", "upcoming"])
def test_in_an_empty_partition_everything_begins_at_upcoming(default: str) -> None:
    assert start({"systems.sys.samza.offset.default": default}, None, EMPTY) == ("20", None)


@pytest.mark.parametrize(
    ("offset", "inside"),
    [("8", False), ("9", True), ("10", True), ("19", True), ("20", False), ("25", False)],
)
def test_a_checkpoint_is_within_range_while_its_next_position_is(
    offset: str, inside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    where, processed = start(OLDEST, after(offset))
    assert (where, processed) == ((str(int(offset) + 1), offset) if inside else ("10", None))
    assert bool(caplog.records) is not inside


def test_the_report_says_what_was_wanted_what_there_is_and_what_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start(OLDEST, after("25"))
    assert [record.getMessage() for record in caplog.records] == [
        "sys.a.0: the checkpoint of Partition 0 goes on at 26, but the partition holds 10 to 20; reading "
        "begins at 10 "
        "(samza.offset.default=oldest)"
    ]


def test_a_recorded_start_that_is_not_there_any_more_is_reported_too(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert start(OLDEST, Checkpoint({}, {SSP: "3"})) == ("10", None)
    assert "goes on at 3" in caplog.text


def test_a_checkpoint_that_is_no_offset_of_the_system_names_the_place() -> None:
    with pytest.raises(
        OffsetError, match=r"sys\.a\.0: the checkpoint of Partition 0 cannot be used: 'seven' is no offset"
    ):
        start(OLDEST, after("seven"))


def test_a_system_that_does_not_know_its_end_is_read_from_its_beginning() -> None:
    assert start({}, None, PartitionMetadata(None, None, None)) == ("0", None)


# What the task sets in init


def test_an_input_that_a_run_leaves_out_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checkpoints = MemoryCheckpointManager()
    found = []
    for inputs in (["mem.a", "mem.b"], ["mem.a"], ["mem.a"]):
        caplog.clear()
        bench = Bench(ignore, {stream: {0: ["x"]} for stream in inputs}, checkpoints=checkpoints)
        bench.started().run("caught-up")
        bench.container.stop()
        found.append([record.getMessage() for record in caplog.records if "mem.b" in record.getMessage()])
    assert [len(each) for each in found] == [0, 1, 0]
    assert "mem.b was an input of earlier runs" in found[1][0]
    assert "the next commit of Partition 0 drops its position" in found[1][0]


class StartsAt(StreamTask):
    """Begins where it is told: ``where`` maps partitions to offsets."""

    where: dict[str, str]

    def init(self, context: TaskContext) -> None:
        self.context = context
        for ssp in context.partitions:
            if str(ssp) in self.where:
                context.set_starting_offset(ssp, self.where[str(ssp)])

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        pass


def starting(**options: Any) -> JobRun:
    where = options.pop("where")
    return run_job(
        type("Starts", (StartsAt,), {"where": where}),
        inputs={"mem.a": {0: list("abcde"), 1: list("xyz")}},
        **options,
    )


def test_what_the_task_sets_is_the_first_offset_that_is_read() -> None:
    run = starting(where={"mem.a.0": "3"})
    assert [f"{ssp}@{offset}" for ssp, offset, _, _ in run.processed] == [
        "mem.a.0@3",
        "mem.a.1@0",
        "mem.a.0@4",
        "mem.a.1@1",
        "mem.a.1@2",
    ]


@pytest.mark.parametrize("where", ["0", "2", "5"])
def test_what_the_task_sets_goes_before_its_checkpoint(where: str) -> None:
    run = starting(
        where={"mem.a.0": where},
        checkpoints={"Partition 0": {"mem.a.0": "3"}, "Partition 1": {"mem.a.1": "2"}},
    )
    assert [offset for _, offset, _, _ in run.processed] == [str(offset) for offset in range(int(where), 5)]


def test_what_the_task_sets_is_remembered_until_its_first_commit() -> None:
    first = starting(where={"mem.a.0": "1"}, max_messages=0)
    assert first.checkpoints == {}

    def ignore(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        pass

    second = run_job(ignore, None, previous=first)
    assert [offset for ssp, offset, _, _ in second.processed if ssp == "mem.a.0"] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("system", ["memory", "log"])
@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("6", "the partition holds 0 to 5"),
        ("noon", "'noon' is no(t an)? offset"),
        ("-1", "'-1' is no(t an)? offset"),
    ],
)
def test_what_is_no_place_in_the_partition_is_refused_and_not_remembered(
    system: str, where: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "job.name": "starts",
        "task.inputs": "sys.a",
        "systems.sys.samza.factory": system,
        "systems.sys.samza.offset.default": "oldest",
        **({"systems.sys.path": str(tmp_path)} if system == "log" else {}),
        "task.checkpoint.system": "file",
        "task.checkpoint.path": str(tmp_path / "checkpoints"),
    }
    streams = MemoryStreams()
    systems = Systems(Config(config), MemorySystemFactory(streams))
    systems.create(SystemStream("sys", "a"))
    with writing(systems, SystemStream("sys", "a"), 1, "test") as writer:
        writer.send(OutgoingMessageEnvelope(SystemStream("sys", "a"), b"x") for _ in range(5))

    def ran(task: Any, count: int | None = None) -> int:
        container = Container(
            Config(config), task, systems=Systems(Config(config), MemorySystemFactory(streams))
        )
        container.start()
        done = container.run("caught-up" if count is None else count)
        container.stop()
        return done

    assert ran(ignore, 3) == 3
    asked = rf"^sys\.a\.0: Partition 0 cannot begin at '{where}', which it asks for in init\(\): .*{reason}"
    with pytest.raises(OffsetError, match=asked):
        ran(type("Starts", (StartsAt,), {"where": {"sys.a.0": where}}))
    assert ran(ignore) == 2
    assert not caplog.records


def test_a_start_may_be_set_where_the_partition_has_grown_to_since(tmp_path: Path) -> None:
    streams = MemoryStreams()
    config = Config({"task.inputs": "mem.a", "systems.mem.samza.offset.default": "oldest"})
    streams.create(SystemStream("mem", "a"), 1)

    class Sends(StartsAt):
        where = {"mem.a.0": "2"}  # noqa: RUF012

        def init(self, context: TaskContext) -> None:
            with writing(
                Systems(config, MemorySystemFactory(streams)), SystemStream("mem", "a"), 1, "another"
            ) as writer:
                writer.send(OutgoingMessageEnvelope(SystemStream("mem", "a"), message) for message in "abc")
            super().init(context)

    container = Container(
        config,
        Sends,
        systems=Systems(config, MemorySystemFactory(streams)),
        checkpoints=MemoryCheckpointManager(),
    )
    container.start()
    assert container.run("caught-up") == 1
    container.stop()


def test_a_start_may_only_be_set_in_init() -> None:
    class Late(StartsAt):
        where: dict[str, str] = {}  # noqa: RUF012

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            self.context.set_starting_offset(envelope.ssp, "0")

    with pytest.raises(
        TaskError, match=r"set_starting_offset may only be called in init\(\): reading has begun"
    ) as caught:
        run_job(Late, None, {"mem.a": {0: ["x"]}})
    assert isinstance(caught.value.__cause__, ContainerStateError)


def test_a_start_may_only_be_set_for_a_partition_of_ones_own() -> None:
    class Greedy(StartsAt):
        def init(self, context: TaskContext) -> None:
            context.set_starting_offset(SystemStreamPartition("mem", "a", 7), "0")

    with pytest.raises(TaskError, match=r"Partition 0 does not read mem\.a\.7; it reads mem\.a\.0"):
        run_job(Greedy, None, {"mem.a": {0: ["x"]}})


def test_a_start_beyond_the_end_is_an_error() -> None:
    with pytest.raises(
        OffsetError,
        match=r"mem\.a\.0: Partition 0 cannot begin at '6', .*: the partition holds 0 to 5 \(the next\)",
    ):
        starting(where={"mem.a.0": "6"})
