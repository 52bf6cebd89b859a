"""Commits that are Kafka transactions: whatever the client says of one, it counts as a whole, once or not at
all."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource
from typer.testing import CliRunner

from streambench.checkpoint.api import Checkpoint, Generation
from streambench.cli.app import app
from streambench.errors import (
    CheckpointError,
    FencedError,
    MessageTooLargeError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.rows import Rows
from streambench.system.kafka.checkpoints import KafkaCheckpointManager
from streambench.system.kafka.clients import abandon, new_producer
from streambench.system.kafka.exactly_once import TransactionalCheckpointManager
from streambench.system.kafka.hanging import find_open
from streambench.system.kafka.settings import Settings
from streambench.system.producers_applier import ProducersApplier
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.system.kafka.cluster import all_of, config, new_stream, sent

INPUT = SystemStreamPartition("k", "clicks", 0)
APPLIER = ProducersApplier(lambda system: pytest.fail("a transaction needs nobody to apply it"))


class Job:
    """A job's checkpoints and its output, of two partitions."""

    def __init__(self, kafka: KafkaNodes, **settings: Any) -> None:
        self.config = config(kafka, **settings)
        self.settings = Settings.from_config("k", self.config)
        self.systems = Systems(self.config)
        self.output = new_stream()
        self.systems.admin("k").create(self.output, 2)
        self.name = f"job-{uuid.uuid4().hex[:8]}"
        self.made: list[KafkaCheckpointManager] = []

    def another(
        self, kind: type[KafkaCheckpointManager] = TransactionalCheckpointManager
    ) -> KafkaCheckpointManager:
        self.made.append(kind(self.settings, self.name, keep=10))
        return self.made[-1]

    def start(
        self, containers: int = 1, kind: type[KafkaCheckpointManager] = TransactionalCheckpointManager
    ) -> Generation:
        return self.another(kind).open_generation(
            {number: [f"task {number}"] for number in range(containers)}, now_ms=0
        )

    def holder(self, generation: Generation, container: int = 0) -> KafkaCheckpointManager:
        manager = self.another()
        manager.claim(generation.number, container, now_ms=0)
        return manager

    def ssp(self, partition: int) -> SystemStreamPartition:
        return SystemStreamPartition("k", self.output.stream, partition)

    def commit(self, holder: KafkaCheckpointManager, number: int, *, container: int = 0) -> None:
        """Commit two messages, and a position."""
        rows = [Rows(self.ssp(partition), [None], [b"%d" % number]) for partition in range(2)]
        holder.commit(
            lambda ends: {f"task {container}": Checkpoint({INPUT: str(number)}, sequence=number)},
            rows,
            APPLIER,
        )

    def outputs(self) -> dict[int, list[int]]:
        return {
            partition: [int(e.message) for e in found]
            for partition, found in all_of(self.systems, self.output).items()
        }

    def position(self, container: int = 0) -> int:
        return int(self.another().read_last()[f"task {container}"].offsets[INPUT])

    def close(self) -> None:
        for each in self.made:
            each.close()
        self.systems.close()


@pytest.fixture
def job(kafka: KafkaNodes) -> Iterator[Job]:
    made = Job(kafka, producer__request__timeout__ms=1000, patience__ms=20_000)
    yield made
    made.close()


def raises_when_committed(commit: Callable[[], None]) -> None:
    commit()
    raise kafka_errors.RequestTimedOutError


def raises_before(commit: Callable[[], None]) -> None:
    raise kafka_errors.RequestTimedOutError


def hangs_before(commit: Callable[[], None]) -> None:
    threading.Event().wait()


def hangs_when_committed(commit: Callable[[], None]) -> None:
    commit()
    threading.Event().wait()


def is_fenced(commit: Callable[[], None]) -> None:
    raise kafka_errors.ProducerFencedError


@pytest.mark.parametrize(
    "harm", [raises_when_committed, raises_before, hangs_before, hangs_when_committed, is_fenced]
)
def test_whatever_the_client_says_of_a_commit_it_is_there_once(
    job: Job, monkeypatch: pytest.MonkeyPatch, harm: Any
) -> None:
    holder = job.holder(job.start())
    job.commit(holder, 1)
    harmed: list[object] = []
    real = KafkaProducer.commit_transaction

    def commit(producer: Any) -> None:
        if harmed:
            real(producer)
        else:
            harmed.append(producer)
            harm(lambda: real(producer))

    monkeypatch.setattr(KafkaProducer, "commit_transaction", commit)
    monkeypatch.setattr("streambench.system.kafka.exactly_once._SUCCESSOR_S", 0.1)
    assert isinstance(holder, TransactionalCheckpointManager) and holder._transactions is not None
    holder._transactions._watch_s = 0.5
    job.commit(holder, 2)
    job.commit(holder, 3)
    assert len(harmed) == 1
    assert job.outputs() == {0: [1, 2, 3], 1: [1, 2, 3]}
    assert job.position() == 3


def test_only_who_has_time_waits_until_all_of_a_commit_can_be_read(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, asked = job.holder(job.start()), []
    job.commit(holder, 1)
    real = KafkaAdminClient.describe_transactions
    monkeypatch.setattr(
        KafkaAdminClient, "describe_transactions", lambda admin, ids: asked.append(ids) or real(admin, ids)
    )
    holder.finish_pending()
    assert asked
    asked.clear()
    holder.close()
    assert not asked


def test_a_message_that_was_not_written_is_no_commit_although_it_returns(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = job.holder(job.start())
    real, lost = KafkaProducer.send, []

    def send(producer: Any, topic: str, *values: Any, **named: Any) -> Any:
        future = real(producer, topic, *values, **named)
        if topic == job.output.stream and not lost:
            lost.append(topic)
            future.get(10)
            future.exception = kafka_errors.KafkaTimeoutError("not in time")
        return future

    monkeypatch.setattr(KafkaProducer, "send", send)
    job.commit(holder, 1)
    assert lost
    assert job.outputs() == {0: [1], 1: [1]}


def test_what_cannot_get_better_is_not_tried_for_ever(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    holder = job.holder(job.start())

    def commit(producer: Any) -> None:
        raise kafka_errors.InvalidRecordError("no")

    monkeypatch.setattr(KafkaProducer, "commit_transaction", commit)
    with pytest.raises(StreamSystemError, match="InvalidRecordError"):
        job.commit(holder, 1)
    with pytest.raises(CheckpointError, match="no container is claimed"):
        job.commit(holder, 2)
    monkeypatch.undo()
    job.commit(job.holder(job.start()), 1)
    assert job.outputs() == {0: [1], 1: [1]}


def test_what_kafka_refuses_is_told_soon(kafka: KafkaNodes) -> None:
    job = Job(kafka, producer__transaction__timeout__ms=99_999_999)
    with pytest.raises(StreamSystemError, match="InvalidTransactionTimeout"):
        job.holder(job.start())
    job.close()


def test_a_zombie_commits_nothing_and_does_not_take_itself_back(job: Job) -> None:
    first = job.start()
    zombie = job.holder(first)
    job.commit(zombie, 1)
    holder = job.holder(first)
    job.commit(holder, 2)
    with pytest.raises(FencedError, match="started again"):
        job.commit(zombie, 99)
    job.commit(holder, 3)
    second = job.start()
    with pytest.raises(FencedError, match="newer start"):
        job.commit(holder, 98)
    with pytest.raises(FencedError):
        job.another().claim(first.number, 0, now_ms=0)
    job.commit(job.holder(second), 4)
    assert job.outputs() == {0: [1, 2, 3, 4], 1: [1, 2, 3, 4]}


def test_a_start_fences_all_containers_of_the_last_under_either_guarantee(job: Job) -> None:
    old = job.start(3)
    zombies = [job.holder(old, number) for number in range(3)]
    for number, each in enumerate(zombies):
        job.commit(each, number, container=number)
    job.start(1, KafkaCheckpointManager)
    for number, each in enumerate(zombies):
        with pytest.raises(FencedError):
            job.commit(each, 99, container=number)
    assert job.outputs() == {0: [0, 1, 2], 1: [0, 1, 2]}
    assert [job.position(number) for number in range(3)] == [0, 1, 2]


def test_a_start_that_was_only_begun_stops_no_holder_of_a_container(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = job.holder(job.start())

    def dies(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streambench.system.kafka.checkpoints.fence", dies)
    with pytest.raises(KeyboardInterrupt):
        job.start()
    monkeypatch.undo()
    job.commit(holder, 1)
    job.commit(job.holder(job.start()), 2)
    assert job.outputs() == {0: [1, 2], 1: [1, 2]}


def test_a_transaction_that_the_dead_left_open_holds_up_nobody(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = job.holder(job.start())
    job.commit(dead, 1)

    def dies(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("streambench.system.kafka.transactions.Transactions._commit", dies)
    monkeypatch.setattr(TransactionalCheckpointManager, "_take_back", lambda manager, transactions: None)
    with pytest.raises(KeyboardInterrupt):
        job.commit(dead, 2)
    monkeypatch.undo()
    starting = job.another()
    last = starting.last_generation()
    assert last is not None and last.number == 1
    assert starting.read_committed()["task 0"].offsets == {INPUT: "1"}
    assert job.systems.admin("k").open_at(starting._partition), "to be ended by the start"  # type: ignore[attr-defined]
    holder = job.holder(job.start())
    assert job.position() == 1
    job.commit(holder, 3)
    assert job.outputs() == {0: [1, 3], 1: [1, 3]}


def test_containers_commit_side_by_side_and_old_records_go(job: Job) -> None:
    generation = job.start(2)
    holders = [job.holder(generation, number) for number in range(2)]
    for each in holders:
        each._trim_every = 5
    failures: list[BaseException] = []

    def commit_many(container: int) -> None:
        try:
            for number in range(40):
                job.commit(holders[container], number, container=container)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=commit_many, args=(container,)) for container in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {partition: sorted(found) for partition, found in job.outputs().items()} == dict.fromkeys(
        range(2), sorted([*range(40), *range(40)])
    )
    assert [job.position(number) for number in range(2)] == [39, 39]
    oldest = job.systems.admin("k").metadata([holders[0]._stream])[holders[0]._stream][0].oldest
    assert int(oldest or 0) > 20


def test_no_commit_waits_for_more_messages(kafka: KafkaNodes) -> None:
    hour = 3_600_000
    job = Job(kafka, producer__linger__ms=hour, patience__ms=2 * hour)
    job.commit(job.holder(job.start()), 1)
    sent(job.systems, job.output, [(0, None, b"2")])
    assert job.outputs() == {0: [1, 2], 1: [1]}
    job.close()


def test_checkpoints_name_where_changelogs_really_end(job: Job) -> None:
    holder = job.holder(job.start())
    ends: list[str] = []
    for number in range(3):
        rows = [Rows(job.ssp(0), [b"a", b"b"], [b"1", b"2"], base=0)]

        def made(found: Any, number: int = number) -> dict[str, Checkpoint]:
            ends.append(found[job.ssp(0)])
            return {"task 0": Checkpoint({}, changelogs={"s": ends[-1]}, sequence=number)}

        holder.commit(made, rows, APPLIER)
    assert ends == ["2", "5", "8"]  # each transaction ends with a record of its own


def test_a_value_that_the_changelog_does_not_take_is_told(job: Job) -> None:
    holder = job.holder(job.start())
    with pytest.raises(MessageTooLargeError, match=rf"{job.ssp(1)}: a message of \d+ bytes"):
        holder.commit(
            lambda ends: {},
            [Rows(job.ssp(0), [b"a"], [b"x"]), Rows(job.ssp(1), [b"a"], [b"x" * (2 << 20)])],
            APPLIER,
        )
    assert job.outputs() == {0: [], 1: []}


def test_an_output_that_was_deleted_is_told_as_that(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambench.system.kafka.stall_detector._LOOKS", 100)
    holder = job.holder(job.start())
    job.commit(holder, 1)
    job.systems.admin("k").delete(job.output)
    with pytest.raises(UnknownStreamError, match=f"{job.output} was deleted while it was written to"):
        job.commit(holder, 2)


def test_an_output_that_was_made_anew_in_the_middle_gets_all_of_the_commit(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = job.holder(job.start())
    job.commit(holder, 1)
    real, done = KafkaProducer.flush, []

    def flush(producer: Any, timeout: Any = None) -> None:
        real(producer, timeout)
        if not done:
            done.append(job.systems.admin("k").delete(job.output))
            job.systems.admin("k").create(job.output, 2)

    monkeypatch.setattr(KafkaProducer, "flush", flush)
    job.commit(holder, 2)
    monkeypatch.undo()
    assert job.outputs() == {0: [2], 1: [2]}


@pytest.fixture
def hang(kafka: KafkaNodes) -> Iterator[Callable[[SystemStream], None]]:
    """Leaves a transaction in a partition of which its coordinator knows nothing."""
    assert kafka.cluster is not None
    servers = kafka.cluster.servers.split(",")
    admin = KafkaAdminClient(bootstrap_servers=servers)
    verify, left = "transaction.partition.verification.enable", []

    def leave(stream: SystemStream) -> None:
        admin.alter_configs([ConfigResource("BROKER", "1", {verify: "false"})])
        partition = TopicPartition(stream.stream, 0)
        with KafkaProducer(
            bootstrap_servers=servers, transactional_id=f"hangs-{stream.stream}", linger_ms=0
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer._transaction_manager._partitions_in_transaction.add(partition)
            producer.send(stream.stream, b"x", partition=0).get(10)
            producer._sender.force_close()
        left.append(partition)

    yield leave
    for partition in left:
        for each in find_open(admin, [partition]):
            each.abort(admin)
    admin.reset_configs([ConfigResource("BROKER", "1", [verify])])
    admin.close()


def test_checkpoints_behind_a_transaction_that_hangs_are_not_passed_over(
    job: Job, hang: Callable[[SystemStream], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("streambench.system.kafka.checkpoints._SUSPECT_S", 0.2)
    monkeypatch.setattr("streambench.system.kafka.admin._LOOK_AGAIN_S", 0.1)
    holder = job.holder(job.start())
    hang(holder._stream)
    job.commit(holder, 1)
    with pytest.raises(
        CheckpointError,
        match=rf"a transaction hangs at offset \d+ .*streambench kafka repair {holder._stream}",
    ):
        job.another().read_last()
    (tmp_path / "job.properties").write_text("".join(f"{key}={value}\n" for key, value in job.config.items()))
    for told in (r"\.0: ended the transaction at offset \d+", ": no transaction hangs"):
        said = (
            CliRunner()
            .invoke(app, ["kafka", "repair", str(holder._stream), "-c", str(tmp_path / "job.properties")])
            .stdout
        )
        assert re.fullmatch(re.escape(str(holder._stream)) + told, said.strip())
    assert job.position() == 1


def test_a_transaction_that_lives_is_never_taken_for_one_that_hangs(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that ends between a look at the partition and a look at its coordinator seems to hang; another look
    tells."""
    monkeypatch.setattr("streambench.system.kafka.admin._LOOK_AGAIN_S", 0)
    producer = new_producer(job.settings, transactional_id=f"lives-{job.name}")
    producer.init_transactions()
    real, seen = KafkaAdminClient.list_transactions, []

    def ended_meanwhile(admin: Any, *arguments: Any, **more: Any) -> Any:
        producer.commit_transaction()
        while (
            next(iter(admin.describe_transactions([f"lives-{job.name}"]).values())).state.value
            != "CompleteCommit"
        ):
            pass
        seen.append(real(admin, *arguments, **more))
        begun()
        return seen[-1]

    def begun() -> None:
        producer.begin_transaction()
        producer.send(job.output.stream, b"1", partition=0).get(10)

    begun()
    monkeypatch.setattr(KafkaAdminClient, "list_transactions", ended_meanwhile)
    assert job.systems.admin("k").abort_hanging(job.output) == ([], [])  # type: ignore[attr-defined]
    assert len(seen) == 2
    producer.commit_transaction()
    abandon(producer)
    assert job.outputs()[0] == [1, 1, 1]


def test_a_transaction_of_which_no_broker_tells_is_let_alone(
    job: Job, hang: Callable[[SystemStream], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever may not describe a transactional id is told of no transaction of it, however alive it is."""
    monkeypatch.setattr("streambench.system.kafka.admin._LOOK_AGAIN_S", 0)
    hang(job.output)
    (tmp_path / "job.properties").write_text("".join(f"{key}={value}\n" for key, value in job.config.items()))
    repair = ["kafka", "repair", str(job.output), "-c", str(tmp_path / "job.properties")]
    with monkeypatch.context() as hidden:
        hidden.setattr(KafkaAdminClient, "list_transactions", lambda *arguments, **more: {1: []})
        result = CliRunner().invoke(app, repair)
        assert (result.exit_code, "may not describe its transactional id" in result.stdout) == (1, True)
        assert "ended the transaction" in CliRunner().invoke(app, [*repair, "--force"]).stdout


def test_a_dead_containers_transaction_is_told_of_and_waited_for(
    kafka: KafkaNodes, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(kafka, patience__ms=500, producer__transaction__timeout__ms=3000)
    generation = job.start(2)
    dead = new_producer(job.settings, transactional_id=job.another()._identity(0))
    dead.init_transactions()
    dead.begin_transaction()
    dead.send(job.made[0]._stream.stream, b"{}", partition=0).get(10)
    abandon(dead)
    job.holder(generation, 1)
    assert f"the transaction of {job.made[0]._identity(0)} is open from offset" in caplog.text
    job.close()


def test_an_input_with_a_transaction_that_hangs_is_told_of(
    job: Job,
    hang: Callable[[SystemStream], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("streambench.system.kafka.consumer._CHECK_EVERY_S", 0.1)
    hang(job.output)
    consumer = job.systems.consumer("k", MetricsRegistry())
    consumer.register(job.ssp(0), "0")
    consumer.start()
    while "a transaction hangs at offset 0" not in caplog.text:
        assert consumer.poll({job.ssp(0): 10}, 50) == []
    consumer.stop()


def test_an_input_that_was_deleted_is_told_as_that(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambench.system.kafka.consumer._CHECK_EVERY_S", 0.1)
    monkeypatch.setattr("streambench.system.kafka.consumer._LOOK_MS", 300)
    for again in (False, True):
        consumer = job.systems.consumer("k", MetricsRegistry())
        consumer.register(job.ssp(0), "0")
        consumer.start()
        while not consumer.at_head(job.ssp(0)):
            consumer.poll({job.ssp(0): 10}, 50)
        job.systems.admin("k").delete(job.output)
        job.systems.admin("k").create(job.output, 2) if again else None
        with pytest.raises(
            UnknownStreamError,
            match=f"{job.output} was deleted{' and made again' if again else ''} while it was read",
        ):
            while True:
                consumer.poll({job.ssp(0): 10}, 50)
        consumer.stop()
        if not again:
            job.systems.admin("k").create(job.output, 2)
