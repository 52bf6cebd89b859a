"""How several workers share the tests: by files, so that what a module sets up is set up once, and by more or
less where that saves time.

The files that take longest come first: at the end all workers shall be at short ones, and none be left alone
with a long one.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.quick import asked_for

#: All tests on the same Spark session of two threads: to start one takes ten seconds of CPU.
ON_ONE_SESSION = (
    "tests/integration/test_equivalence.py",
    "tests/integration/test_real_streams.py",
    "tests/spark/test_backfill.py",
    "tests/spark/test_counted.py",
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

#: What takes longest comes first, and first of all what takes longest under SOAK=1. The first workers begin
#: with what needs no Spark: the archive of its classes is being made. The others come after these, unordered.
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


def share_imports(config: pytest.Config) -> None:
    """Import a part of the test files in each worker before it collects all of them.

    What one worker has compiled, the others read. In a new checkout all of them would compile everything,
    each at the same time: ten seconds of CPU."""
    worker = getattr(config, "workerinput", None)
    if worker is None or not any(Path(each).name == "tests" for each in config.args):
        return
    tests = Path(__file__).resolve().parent
    ignored = config.hook.pytest_ignore_collect
    files = [
        file
        for folder in sorted({file.parent for file in tests.rglob("test_*.py")})
        if not ignored(collection_path=folder, config=config)
        for file in sorted(folder.glob("test_*.py"))
        if not ignored(collection_path=file, config=config)
    ]
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for file in files[len(files) * number // count : len(files) * (number + 1) // count]:
        name = ".".join(file.relative_to(tests.parent).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # its collection tells of it
            import_module(name)


class Scheduling(LoadFileScheduling):
    """What is sent to a worker at once."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)


def scope(nodeid: str) -> str:
    """The tests that go to one worker together with this one, in the order of the collection, have the same.
    """
    if nodeid.startswith(APART):
        return nodeid
    return next((group[0] for group in TOGETHER if nodeid.startswith(group)), nodeid.partition("::")[0])


#: Of a session: the place of each test, and for each broker the last test of each scope that asks for it.
_places = pytest.StashKey[dict[str, int]]()
_last_users = pytest.StashKey[dict[str, dict[str, int]]]()

#: The names of a broker's fixture, and of parameters of tests that ask for it.
BROKERS = {"kafka": {"kafka"}, "rabbitmq": {"rabbitmq", "amqp"}}


def asks_for(item: pytest.Item, broker: str) -> bool:
    """Return True where a test asks for a broker by its fixtures or by its parameters."""
    return not BROKERS[broker].isdisjoint(asked_for(item))


def is_needed_again(broker: str, item: pytest.Item, following: pytest.Item | None) -> bool:
    """Return True where a test that comes after ``item`` to this worker asks for the broker."""
    if following is None:
        return False
    if following.path == item.path or asks_for(following, broker):
        return True
    stash, items = item.session.stash, item.session.items
    if _places not in stash:
        stash[_places] = {each.nodeid: at for at, each in enumerate(items)}
        stash[_last_users] = {
            name: {scope(each.nodeid): at for at, each in enumerate(items) if asks_for(each, name)}
            for name in BROKERS
        }
    places, last = stash[_places], stash[_last_users]
    return places[following.nodeid] <= last[broker].get(scope(following.nodeid), -1)


def share_a_session(first: pytest.Item, second: pytest.Item) -> bool:
    """Return True where the Spark session of the first test is to be there for the second."""
    return all(each.nodeid.startswith(ON_ONE_SESSION) for each in (first, second))


def rank(item: pytest.Item) -> int:
    """Where a test comes: smaller is earlier."""
    nodeid = item.nodeid
    return next((number for number, name in enumerate(FIRST) if nodeid.startswith(name)), len(FIRST))
