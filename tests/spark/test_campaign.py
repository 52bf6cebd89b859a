"""A job whose driver is killed at a random moment; under SOAK=1 on a standalone cluster, whose executors are
killed as well."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from streambench.testing.spark_cluster import SparkCluster
from tests.spark.campaign import SMALL, Campaign, Figures
from tests.spark.conftest import jvm_options
from tests.surroundings import SOAK

# A cluster is five JVMs more. In make test, test_kafka_campaign.py and test_standalone.py kill executors.
WITHOUT_EXECUTORS = SMALL._replace(messages=2_400, executor_kills=0)
FIGURES = Figures(5_000_000, 12, 20_000, 10, 2, moment_s=2) if SOAK else WITHOUT_EXECUTORS

ON_A_LOG = """\
stores.counts.factory=memory
systems.s.samza.factory=log
systems.s.path=streams
"""


KILLED = ["executors and drivers", "a worker", "the master"] if SOAK else ["drivers"]


@contextmanager
def spark_in(directory: Path) -> Iterator[tuple[str, Callable[[str], object]]]:
    """The master of a Spark, and what kills one of its processes by name."""
    if not SOAK:
        yield "local[2]", lambda name: None
        return
    with SparkCluster(directory, cores=2, java_options=jvm_options()) as cluster:
        yield cluster.master, cluster.kill


@pytest.mark.usefixtures("spark_installed")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed", KILLED)
def test_a_job_ends_as_undisturbed_though_processes_are_killed(
    tmp_path: Path, killed: str, progress: Callable[[], None], report: Callable[[str], None]
) -> None:
    chance = random.Random(os.environ.get("SEED", "7"))
    job = tmp_path / "job"
    job.mkdir()
    figures = FIGURES if killed == KILLED[0] else SMALL._replace(executor_kills=0, driver_kills=0)
    with spark_in(tmp_path / "cluster") as (master, kill):
        campaign = Campaign(job, master, ON_A_LOG, figures, chance, progress=progress, report=report)

        def kill_of_cluster(name: str) -> str:
            kill(name)
            return name

        campaign.disturbances["a worker"] = partial(kill_of_cluster, "worker-1")
        campaign.disturbances["the master"] = partial(kill_of_cluster, "master")
        try:
            campaign.run_alone()
            campaign.run(*([] if killed == KILLED[0] else [killed]))
        finally:
            campaign.close()
    campaign.check()
    assert campaign.ended == []
    assert in_directory(tmp_path) == []


def in_directory(directory: Path) -> list[psutil.Process]:
    """The processes that work in a directory."""
    there = psutil.process_iter(["cwd"])
    return [each for each in there if (each.info["cwd"] or "").startswith(str(directory))]
