"""How several workers share the tests: by files, so that what a module sets up is set up once, and by more or
less where that saves time.

The files that take longest come first: at the end all workers shall be at short ones, and none be left alone
with a long one.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

#: All tests on the same Spark session of two threads: to start one takes ten seconds of CPU.
ON_ONE_SESSION = (
    "tests/integration/test_equivalence.py",
    "tests/integration/test_real_streams.py",
    "tests/spark/test_backfill.py",
    "tests/spark/test_deploy.py",
    "tests/spark/test_increments.py",
    "tests/spark/test_killed_drivers.py",
    "tests/spark/test_secrets.py",
    "tests/spark/test_slow_tasks.py",
    "tests/spark/test_submit_lines.py",
    "tests/spark/source/test_dataframes.py",
    "tests/spark/source/test_kafka.py",  # and a Kafka, which takes less than a session
    "tests/spark/test_all_in_kafka.py",
    "tests/cli/test_demo.py",
    "tests/magics/commands/test_deploy.py",
)

#: What sets up something together that takes long to set up: one worker has all of it.
TOGETHER = (
    ("tests/browser/",),
    (
        "tests/system/kafka/",
        "tests/spark/test_history.py",
        "tests/spark/test_kafka_campaign.py",
        "tests/faults/kafka/test_faults.py",
        "tests/checkpoint/test_managers.py",
        "tests/integration/test_every_system.py",  # needs RabbitMQ as well
        "tests/system/amqp/",
    ),
    ON_ONE_SESSION,
    ("tests/test_house.py", "tests/test_architecture.py", "tests/test_setup.py", "tests/test_errors.py"),
)

#: Files whose tests have nothing in common: any worker may have any of them, and each of them takes long.
APART = (
    "tests/faults/test_kills.py",
    "tests/faults/test_kills_of_receivers.py",
    "tests/integration/test_documents.py",
    "tests/spark/test_programs.py",
    "tests/spark/test_stopping.py",
    "tests/system/webhook/test_kills.py",
)

#: What takes longest comes first, and first of all what takes longest under SOAK=1. The first three workers
#: begin with what needs no Spark: the archive of its classes is being made. The others come after them, in no
#: order.
FIRST = (
    "tests/faults/test_kills.py",
    "tests/faults/kafka/test_campaign.py",
    "tests/system/kafka/",
    "tests/browser/",
    "tests/faults/test_every_step.py",
    "tests/serde/test_broken.py",
    "tests/integration/test_equivalence.py",
    "tests/integration/test_real_streams.py",
    "tests/spark/",
    "tests/integration/test_documents.py",
    "notebooks/08-spark.ipynb",
    "notebooks/07-replay.ipynb",
    "tests/system/webhook/test_kills.py",
    "tests/faults/test_kills_of_receivers.py",
    "tests/chooser/test_properties.py",
    "tests/container/test_choices.py",
    "tests/container/test_properties.py",
    "tests/container/test_random_batches.py",
    "tests/container/test_state_crashes.py",
    "tests/store/",
    "tests/system/landing/test_faults.py",
    "tests/system/amqp/test_kills.py",
    "tests/metrics/",
    "tests/serde/",
    "tests/job/test_group.py",
    "tests/system/net/",
    "tests/faults/",
    "tests/job/",
    "tests/integration/",
    "tests/cli/",
    "tests/system/amqp/",
    "tests/checkpoint/test_managers.py",
    "tests/system/pull/test_example.py",
    "notebooks/05-messaging.ipynb",
    "notebooks/01-first-stream.ipynb",
    "notebooks/04-kafka.ipynb",
)


class Scheduling(LoadFileScheduling):
    """What is sent to a worker at once."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(APART):
            return nodeid
        return next(
            (group[0] for group in TOGETHER if nodeid.startswith(group)), super()._split_scope(nodeid)
        )


def share_a_session(first: pytest.Item, second: pytest.Item) -> bool:
    """Return True where the Spark session of the first test is to be there for the second."""
    return all(each.nodeid.startswith(ON_ONE_SESSION) for each in (first, second))


def rank(item: pytest.Item) -> int:
    """Where a test comes: smaller is earlier."""
    nodeid = item.nodeid
    return next((number for number, name in enumerate(FIRST) if nodeid.startswith(name)), len(FIRST))
