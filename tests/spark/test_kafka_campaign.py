"""A job from Kafka to Kafka on a standalone cluster that shares no directory, whose executors, drivers and
brokers are killed at random moments."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streambench.spark.shared import tokens
from streambench.testing.brokers.kafka import KafkaNodes
from streambench.testing.spark_cluster import SparkCluster
from tests.conftest import kafka_nodes
from tests.spark.campaign import SMALL, Campaign, Figures
from tests.spark.conftest import jvm_options
from tests.surroundings import SOAK

FIGURES = (
    Figures(1_000_000, 12, 20_000, 6, 2, moment_s=20)
    if SOAK
    else SMALL._replace(messages=2_400, driver_kills=0)
)
# Workers, and cores of each: there is one executor on a worker, and each is a JVM.
WORKERS, CORES = (2, 2) if SOAK else (1, 4)

IN_KAFKA = """\
stores.counts.factory=rocksdb
systems.s.samza.factory=kafka
systems.s.bootstrap.servers={}
"""


@pytest.fixture
def brokers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNodes]:
    """The Kafka of the tests; under SOAK=1 three nodes, of which one may be killed."""
    if not SOAK:
        yield request.getfixturevalue("kafka")
        return
    nodes = kafka_nodes(tmp_path_factory.mktemp("three"))
    nodes.start(3, 0)
    yield nodes
    nodes.stop()


def can_hide(directory: Path) -> bool:
    """True where a process may have a directory that others do not see."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", str(directory)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("spark_installed")
@pytest.mark.timeout(300)
def test_a_job_with_all_in_kafka_ends_as_undisturbed_though_all_are_killed(
    tmp_path: Path, brokers: KafkaNodes, progress: Callable[[], None], report: Callable[[str], None]
) -> None:
    chance = random.Random(os.environ.get("SEED", "7"))
    job = tmp_path / "job"
    job.mkdir()
    assert brokers.cluster is not None
    with SparkCluster(
        tmp_path / "cluster", workers=WORKERS, cores=CORES, java_options=jvm_options()
    ) as cluster:
        settings = IN_KAFKA.format(brokers.cluster.servers)
        campaign = Campaign(
            job, cluster.master, settings, FIGURES, chance,
            progress=progress, report=report, hidden=can_hide(job),
        )  # fmt: skip

        def kill_a_broker() -> str:
            victim = chance.randrange(3) + 1
            brokers.kill(victim)
            campaign.report(f"killed broker {victim}")
            campaign.go_on(FIGURES.messages // 20)
            brokers.start_node(victim)
            return str(victim)

        campaign.disturbances["broker"] = kill_a_broker
        try:
            with tokens(campaign.killed) as shared:
                assert shared == {}
            campaign.run_alone()
            campaign.run(*(["broker"] if SOAK else []))
        finally:
            campaign.close()
    campaign.check()
    assert campaign.ended == []
    both = [f"{name}.{kind}" for name in ("alone", "killed") for kind in ("properties", "txt")]
    assert {each.name for each in job.iterdir()} - {"__pycache__", "hidden"} == {"task.py", *both}
