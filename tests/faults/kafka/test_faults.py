"""Everything that a network and a broker are known to do to a client in the middle of its work, forced one by
one.

Under exactly-once the output is then as if nothing had happened, under at-least-once nothing is missing. What
no client can mend stands at the end: a topic that is deleted takes with it what was written to it, and where
it is made again at once nobody is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from kafka import TopicPartition

from streambench.errors import FencedError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.kafka.clients import LookUps
from streambench.system.kafka.settings import Settings
from streambench.system.systems import Systems
from tests.faults.kafka.proxy import ADD_PARTITIONS, END_TRANSACTION, FETCH, LIST_OFFSETS, PRODUCE, Fault
from tests.faults.kafka.table import MESSAGES, PARTITIONS, Broker, Trial, committed
from tests.surroundings import SOAK
from tests.system.kafka.cluster import config, new_stream, sent

EXPECTED = {part: [b"%d" % number for number in range(MESSAGES)] for part in range(PARTITIONS)}

TOO_LARGE, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_PRODUCER, INVALID_RECORD = (
    10,
    19,
    45,
    47,
    59,
    87,
)
LATE_S = 1.5  # more than a request may take
LONG_S = 4.0  # more than patience.ms


@dataclass(frozen=True)
class Row:
    name: str
    fault: Fault
    meanwhile: Callable[[Trial], None] | None = None
    more: Mapping[str, object] = field(default_factory=dict)
    guarantees: tuple[str, ...] = ("exactly-once", "at-least-once")
    alone: bool = False
    """Others would be harmed, too."""
    stalls: bool = False
    """Nothing is acknowledged any more until there is another producer, which there is soon: the job itself
    notices nothing."""
    soak: tuple[str, ...] = ()
    """Under which guarantees it takes SOAK=1: what only has kafka-python send again is the same under both,
    and what lasts for a while is no harder than what lasts for longer than patience."""


def _restart(trial: Trial) -> None:
    trial.broker.nodes.kill(1)
    trial.broker.nodes.start_node(1)


def _away_until_the_job_fails(trial: Trial) -> None:
    trial.broker.nodes.kill(1)
    trial.fault.go_on()
    trial.wait_for_failure()
    trial.broker.nodes.start_node(1)


def _another_run(trial: Trial) -> None:
    with suppress(FencedError):  # the run that it replaces is started anew, and may replace it in turn
        trial.attempt()


def _another_producer(trial: Trial) -> None:
    from kafka import KafkaProducer
    from kafka.protocol.producer import ProduceRequest

    version = int.from_bytes(trial.fault.request[6:8], "big")
    identity = ProduceRequest.decode(
        memoryview(trial.fault.request[4:]), version=version, header=True
    ).transactional_id
    assert identity
    producer = KafkaProducer(
        bootstrap_servers=trial.broker.servers, transactional_id=identity, max_block_ms=15_000
    )
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=1)


TRANSACTIONS = ("exactly-once",)
AT_LEAST = ("at-least-once",)
BOTH = ("exactly-once", "at-least-once")
PATIENT = {"patience__ms": 60_000}
# No request of a producer is given up before patience is over; those of others are.
STUCK = {
    "patience__ms": 20_000,
    "producer__request__timeout__ms": 19_900,
    "consumer__request__timeout__ms": 1000,
}

ROWS = [
    Row("the connection is cut before Produce", Fault(PRODUCE, "cut before"), soak=BOTH),
    Row("the connection is cut after Produce", Fault(PRODUCE, "cut after")),
    Row("the connection is cut three times", Fault(PRODUCE, "cut after", times=3), soak=BOTH),
    Row("an answer to Produce is lost", Fault(PRODUCE, "no answer"), soak=AT_LEAST),
    Row("an answer to Produce is late", Fault(PRODUCE, "late answer", LATE_S), soak=BOTH),
    Row("the broker refuses for a second", Fault(PRODUCE, "refuse", 1.0), soak=BOTH),
    Row("the broker refuses for longer than patience", Fault(PRODUCE, "refuse", LONG_S), soak=AT_LEAST),
    Row("nothing passes for a while", Fault(PRODUCE, "hole", LATE_S), soak=BOTH),
    Row("nothing passes for longer than patience", Fault(PRODUCE, "hole", LONG_S)),
    Row("a retriable error for a while", Fault(PRODUCE, "error", LATE_S, NOT_ENOUGH_REPLICAS), soak=BOTH),
    Row("a retriable error for longer than patience", Fault(PRODUCE, "error", LONG_S, NOT_ENOUGH_REPLICAS)),
    Row("no answer to Produce for longer than patience", Fault(PRODUCE, "no answer", LONG_S), soak=AT_LEAST),
    Row("the broker takes a number for wrong", Fault(PRODUCE, "error", code=OUT_OF_ORDER), soak=AT_LEAST),
    Row("the broker takes an epoch for wrong", Fault(PRODUCE, "error", code=INVALID_EPOCH), soak=BOTH),
    Row("the broker does not know the producer", Fault(PRODUCE, "error", code=UNKNOWN_PRODUCER), soak=BOTH),
    Row("the broker does not like a record", Fault(PRODUCE, "error", code=INVALID_RECORD)),
    Row(
        "connections are dead, and nobody is told",
        Fault(PRODUCE, "dead"),
        more=STUCK,
        alone=True,
        stalls=True,
    ),
    Row(
        "connections are dead at a commit",
        Fault(END_TRANSACTION, "dead"),
        None,
        STUCK,
        TRANSACTIONS,
        alone=True,
        stalls=True,
        soak=BOTH,
    ),
    Row(
        "the broker is killed and comes back",
        Fault(PRODUCE, "wait"),
        _restart,
        PATIENT,
        alone=True,
        soak=BOTH,
    ),
    Row(
        "the broker is killed for longer than patience",
        Fault(PRODUCE, "wait"),
        _away_until_the_job_fails,
        alone=True,
        soak=BOTH,
    ),
    Row("the broker finds messages too large", Fault(PRODUCE, "error", 1.0, TOO_LARGE), soak=AT_LEAST),
    Row(
        "another run of the job comes first",
        Fault(PRODUCE, "wait"),
        _another_run,
        {**PATIENT, "producer__request__timeout__ms": 20_000},
    ),
    Row(
        "the connection is cut before partitions are added",
        Fault(ADD_PARTITIONS, "cut before"),
        guarantees=TRANSACTIONS,
        soak=BOTH,
    ),
    Row(
        "the connection is cut after partitions are added",
        Fault(ADD_PARTITIONS, "cut after"),
        guarantees=TRANSACTIONS,
    ),
    Row(
        "the connection is cut before a commit", Fault(END_TRANSACTION, "cut before"), guarantees=TRANSACTIONS
    ),
    Row("the connection is cut after a commit", Fault(END_TRANSACTION, "cut after"), guarantees=TRANSACTIONS),
    Row(
        "the answer to a commit is lost",
        Fault(END_TRANSACTION, "no answer"),
        guarantees=TRANSACTIONS,
        soak=BOTH,
    ),
    Row(
        "the answer to a commit is late",
        Fault(END_TRANSACTION, "late answer", LATE_S),
        guarantees=TRANSACTIONS,
        soak=BOTH,
    ),
    Row("nothing passes after a commit", Fault(END_TRANSACTION, "hole", LATE_S), guarantees=TRANSACTIONS),
    Row(
        "no answer to commits for longer than patience",
        Fault(END_TRANSACTION, "no answer", LONG_S),
        guarantees=TRANSACTIONS,
    ),
    Row(
        "the broker is killed at a commit",
        Fault(END_TRANSACTION, "wait"),
        _restart,
        PATIENT,
        TRANSACTIONS,
        alone=True,
        soak=BOTH,
    ),
    Row(
        "a transaction takes longer than it may",
        Fault(END_TRANSACTION, "late", 3.5),
        more={
            "producer__transaction__timeout__ms": 1500,
            "producer__request__timeout__ms": 10_000,
            "patience__ms": 20_000,
        },
        guarantees=TRANSACTIONS,
    ),
    Row(
        "another producer takes the transactional id",
        Fault(PRODUCE, "wait"),
        _another_producer,
        guarantees=TRANSACTIONS,
    ),
]


Outcomes = dict[tuple[str, str], "Future[Trial]"]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Outcomes]:
    """What became of the jobs that can run side by side: most of the time they wait."""
    asked = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    with ThreadPoolExecutor(len(broker.proxies)) as pool:
        yield {
            (each["row"].name, each["guarantee"]): pool.submit(tried, broker, each["row"], each["guarantee"])
            for each in asked
            if not each["row"].alone
        }


def tried(broker: Broker, row: Row, guarantee: str) -> Trial:
    trial = Trial(broker, guarantee, **row.more)
    # At a commit that is not the first, and in its middle: some of it is acknowledged already. Before the
    # first there are two transactions without outputs: a container is claimed, and writes where it begins.
    output = trial.output.stream.encode()
    aims = {
        PRODUCE: {"skip": 4, "of": output},
        ADD_PARTITIONS: {"skip": 1, "of": output},
        END_TRANSACTION: {"skip": 3},
    }
    fault = replace(row.fault, **aims[row.fault.api])
    trial.run(fault, row.meanwhile)
    return trial


def checked(trial: Trial) -> None:
    found = trial.written
    if trial.guarantee == "exactly-once":
        assert found == EXPECTED, trial.failures
    else:
        assert {part: set(messages) for part, messages in found.items()} == {
            part: set(each) for part, each in EXPECTED.items()
        }


def cases(*, alone: bool) -> pytest.MarkDecorator:
    chosen = [
        (row, each)
        for row in ROWS
        for each in row.guarantees
        if row.alone == alone and (SOAK or each not in row.soak)
    ]
    return pytest.mark.parametrize(
        "row,guarantee", [pytest.param(row, each, id=f"{row.name}-{each}") for row, each in chosen]
    )


@cases(alone=False)
def test_a_job_comes_through(outcomes: Outcomes, row: Row, guarantee: str) -> None:
    checked(outcomes[row.name, guarantee].result())


@cases(alone=True)
def test_a_job_alone_comes_through(
    broker: Broker, row: Row, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if row.stalls:
        monkeypatch.setattr("streambench.system.kafka.stall_detector.STALLED_S", 1.0)
    trial = tried(broker, row, guarantee)
    checked(trial)
    if row.stalls:
        assert trial.failures == []
        assert {
            part: list(dict.fromkeys(messages)) for part, messages in trial.written.items()
        } == EXPECTED  # in order, if twice


def test_a_question_that_is_not_answered_is_asked_by_another_client(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.system.kafka.stall_detector.STALLED_S", 0.5)
    direct, stream, proxy = Systems(config(broker.nodes)), new_stream(), broker.proxies[-1]
    direct.admin("k").create(stream, 1)
    direct.close()
    stuck = config(
        broker.nodes,
        bootstrap__servers=proxy.address,
        patience__ms=20_000,
        consumer__request__timeout__ms=60_000,
    )
    look_ups, partition = LookUps(Settings.from_config("k", stuck)), TopicPartition(stream.stream, 0)
    assert look_ups.oldest([partition]) == {partition: 0}
    proxy.plan(fault := Fault(LIST_OFFSETS, "dead"))
    try:
        assert look_ups.upcoming([partition]) == {partition: 0}
    finally:
        proxy.plan(None)
        look_ups.close()
    assert fault.hits == 1


def test_a_client_that_wrongly_reads_nothing_is_replaced(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.system.kafka.stall_detector.STALLED_S", 0.5)
    direct, stream, proxy = Systems(config(broker.nodes)), new_stream(), broker.proxies[-1]
    direct.admin("k").create(stream, 2)
    stuck = Systems(
        config(
            broker.nodes,
            bootstrap__servers=proxy.address,
            patience__ms=60_000,
            consumer__request__timeout__ms=500_000,
        )
    )
    consumer, ssps = (
        stuck.consumer("k", MetricsRegistry()),
        [SystemStreamPartition("k", stream.stream, number) for number in range(2)],
    )
    for ssp in ssps:
        consumer.register(ssp, "0")
    consumer.start()
    read: list[bytes] = []

    def read_on(wanted: int) -> None:
        while len(read) < wanted:
            read.extend(each.message for each in consumer.poll(dict.fromkeys(ssps, 100), 50))

    sent(direct, stream, [(number % 2, None, b"%d" % number) for number in range(10)])
    read_on(10)
    proxy.plan(fault := Fault(FETCH, "dead"))
    try:
        while not fault.reached.is_set():
            consumer.poll(dict.fromkeys(ssps, 100), 50)
        sent(direct, stream, [(number % 2, None, b"%d" % number) for number in range(10, 20)])
        read_on(20)
    finally:
        proxy.plan(None)
        consumer.stop()
        stuck.close()
        direct.close()
    assert sorted(map(int, read)) == list(range(20))


def test_what_a_deleted_topic_held_is_gone_and_nothing_else(broker: Broker) -> None:
    trial = Trial(broker, "exactly-once")
    held: dict[int, list[bytes]] = {}

    def delete(trial: Trial) -> None:
        held.update(committed(broker.servers, trial.output.stream, PARTITIONS))
        trial.direct.admin("k").delete(trial.output)
        trial.fault.go_on()
        trial.wait_for_failure()
        trial.make_output()

    trial.run(Fault(PRODUCE, "wait", skip=4, of=trial.output.stream.encode()), delete)
    assert trial.written == {part: EXPECTED[part][len(held[part]) :] for part in EXPECTED}, trial.failures


def test_a_topic_recreated_at_once_lacks_only_what_was_written_before(broker: Broker) -> None:
    trial = Trial(broker, "exactly-once")

    def make_again(trial: Trial) -> None:
        trial.direct.admin("k").delete(trial.output)
        trial.make_output()

    trial.run(Fault(PRODUCE, "wait", skip=4, of=trial.output.stream.encode()), make_again)
    for messages in trial.written.values():
        numbers = [int(each) for each in messages]
        assert numbers == sorted(set(numbers)), trial.failures
        assert numbers[-1] == MESSAGES - 1
