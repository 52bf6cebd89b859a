"""Everything that a network and a broker are known to do to a client in the middle of its work, forced one by one.

Under exactly-once the output is then as if nothing had happened, under at-least-once nothing is missing. What no client can mend stands at
the end: a topic that is deleted takes with it what was committed to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from tests.faults.kafka.proxy import ADD_PARTITIONS, END_TRANSACTION, PRODUCE, Fault
from tests.faults.kafka.table import MESSAGES, PARTITIONS, Broker, Trial
from tests.surroundings import SOAK

EXPECTED = {part: [b"%d" % number for number in range(MESSAGES)] for part in range(PARTITIONS)}

TOO_LARGE, NOT_ENOUGH_REPLICAS, OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_PRODUCER, INVALID_RECORD = 10, 19, 45, 47, 59, 87
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
    long: bool = False


def _restart(trial: Trial) -> None:
    trial.broker.nodes.kill(1)
    trial.broker.nodes.start_node(1)


def _away_until_the_job_fails(trial: Trial) -> None:
    trial.broker.nodes.kill(1)
    trial.fault.go_on()
    trial.wait_for_failure()
    trial.broker.nodes.start_node(1)


def _another_run(trial: Trial) -> None:
    trial.attempt()


def _another_producer(trial: Trial) -> None:
    from kafka import KafkaProducer
    from kafka.protocol.producer import ProduceRequest

    version = int.from_bytes(trial.fault.request[6:8], "big")
    identity = ProduceRequest.decode(memoryview(trial.fault.request[4:]), version=version, header=True).transactional_id
    assert identity
    producer = KafkaProducer(bootstrap_servers=trial.broker.servers, transactional_id=identity, max_block_ms=15_000)
    try:
        producer.init_transactions()
    finally:
        producer.close(timeout=1)


TRANSACTIONS = ("exactly-once",)
PATIENT = {"patience__ms": 60_000}

ROWS = [
    Row("the connection is cut before Produce", Fault(PRODUCE, "cut before")),
    Row("the connection is cut after Produce", Fault(PRODUCE, "cut after")),
    Row("the connection is cut three times", Fault(PRODUCE, "cut after", times=3)),
    Row("an answer to Produce is lost", Fault(PRODUCE, "no answer")),
    Row("an answer to Produce is late", Fault(PRODUCE, "late answer", LATE_S)),
    Row("the broker refuses for a second", Fault(PRODUCE, "refuse", 1.0)),
    Row("the broker refuses for longer than patience", Fault(PRODUCE, "refuse", LONG_S)),
    Row("a retriable error for a while", Fault(PRODUCE, "error", LATE_S, NOT_ENOUGH_REPLICAS)),
    Row("a retriable error for longer than patience", Fault(PRODUCE, "error", LONG_S, NOT_ENOUGH_REPLICAS)),
    Row("no answer to Produce for longer than patience", Fault(PRODUCE, "no answer", LONG_S)),
    Row("the broker takes a number for wrong", Fault(PRODUCE, "error", code=OUT_OF_ORDER)),
    Row("the broker takes an epoch for wrong", Fault(PRODUCE, "error", code=INVALID_EPOCH)),
    Row("the broker does not know the producer", Fault(PRODUCE, "error", code=UNKNOWN_PRODUCER)),
    Row("the broker does not like a record", Fault(PRODUCE, "error", code=INVALID_RECORD)),
    Row("the broker is killed and comes back", Fault(PRODUCE, "wait"), _restart, PATIENT, alone=True),
    Row("the broker is killed for longer than patience", Fault(PRODUCE, "wait"), _away_until_the_job_fails, alone=True, long=True),
    Row("the broker finds messages too large", Fault(PRODUCE, "error", 1.0, TOO_LARGE)),
    Row("another run of the job comes first", Fault(PRODUCE, "wait"), _another_run, {**PATIENT, "producer__request__timeout__ms": 20_000}),
    Row("the connection is cut before partitions are added", Fault(ADD_PARTITIONS, "cut before", skip=1), guarantees=TRANSACTIONS),
    Row("the connection is cut after partitions are added", Fault(ADD_PARTITIONS, "cut after", skip=1), guarantees=TRANSACTIONS),
    Row("the connection is cut before a commit", Fault(END_TRANSACTION, "cut before", skip=1), guarantees=TRANSACTIONS),
    Row("the connection is cut after a commit", Fault(END_TRANSACTION, "cut after", skip=1), guarantees=TRANSACTIONS),
    Row("the answer to a commit is lost", Fault(END_TRANSACTION, "no answer", skip=1), guarantees=TRANSACTIONS),
    Row("the answer to a commit is late", Fault(END_TRANSACTION, "late answer", LATE_S, skip=1), guarantees=TRANSACTIONS),
    Row("no answer to commits for longer than patience", Fault(END_TRANSACTION, "no answer", LONG_S, skip=1), guarantees=TRANSACTIONS),
    Row("the broker is killed at a commit", Fault(END_TRANSACTION, "wait", skip=1), _restart, PATIENT, TRANSACTIONS, alone=True),
    Row(
        "a transaction takes longer than it may", Fault(END_TRANSACTION, "late", 3.5, skip=1),
        more={"producer__transaction__timeout__ms": 1500, "producer__request__timeout__ms": 10_000, "patience__ms": 20_000},
        guarantees=TRANSACTIONS,
    ),
    Row("another producer takes the transactional id", Fault(PRODUCE, "wait"), _another_producer, guarantees=TRANSACTIONS),
]  # fmt: skip


Outcomes = dict[tuple[str, str], "Future[Trial]"]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Outcomes]:
    """What became of the jobs that can run side by side: most of the time they wait."""
    asked = [item.callspec.params for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    with ThreadPoolExecutor(len(broker.proxies)) as pool:
        yield {
            (each["row"].name, each["guarantee"]): pool.submit(tried, broker, each["row"], each["guarantee"])
            for each in asked
            if not each["row"].alone
        }


def tried(broker: Broker, row: Row, guarantee: str) -> Trial:
    trial = Trial(broker, guarantee, **row.more)
    # In the middle of a commit that is not the first: some of it is acknowledged already.
    fault = replace(row.fault, skip=4, of=trial.output.stream.encode()) if row.fault.api == PRODUCE else replace(row.fault)
    trial.run(fault, row.meanwhile)
    return trial


def checked(trial: Trial) -> None:
    found = trial.written
    if trial.guarantee == "exactly-once":
        assert found == EXPECTED, trial.failures
    else:
        assert {part: set(messages) for part, messages in found.items()} == {part: set(each) for part, each in EXPECTED.items()}


def cases(*, alone: bool) -> pytest.MarkDecorator:
    rows = [row for row in ROWS if row.alone == alone and (SOAK or not row.long)]
    chosen = [(row, each) for row in rows for each in row.guarantees if each != "exactly-once"]
    return pytest.mark.parametrize("row,guarantee", [pytest.param(row, each, id=f"{row.name}-{each}") for row, each in chosen])


@cases(alone=False)
def test_a_job_comes_through(outcomes: Outcomes, row: Row, guarantee: str) -> None:
    checked(outcomes[row.name, guarantee].result())


@cases(alone=True)
def test_a_job_comes_through_the_death_of_its_broker(broker: Broker, row: Row, guarantee: str) -> None:
    checked(tried(broker, row, guarantee))
