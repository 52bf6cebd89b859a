"""A job on a standalone cluster, whose executors and drivers are killed at random moments."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from streambench.testing.spark_cluster import SparkCluster
from tests.spark.campaign import SMALL, Campaign, Figures
from tests.surroundings import SOAK

FIGURES = Figures(5_000_000, 12, 20_000, 10, 2, moment_s=20) if SOAK else SMALL

ON_A_LOG = """\
stores.counts.factory=memory
systems.s.samza.factory=log
systems.s.path=streams
"""


@pytest.mark.usefixtures("spark_installed")
@pytest.mark.timeout(300)
def test_a_job_ends_as_undisturbed_though_executors_and_drivers_are_killed(
    tmp_path: Path, progress: Callable[[], None], report: Callable[[str], None]
) -> None:
    chance = random.Random(os.environ.get("SEED", "7"))
    job = tmp_path / "job"
    job.mkdir()
    with SparkCluster(tmp_path / "cluster", cores=2) as cluster:
        campaign = Campaign(job, cluster.master, ON_A_LOG, FIGURES, chance, progress=progress, report=report)
        try:
            campaign.run_alone()
            campaign.run()
        finally:
            campaign.close()
    campaign.check()
    assert campaign.ended == []
    assert not list(in_directory(tmp_path))


def in_directory(directory: Path) -> list[psutil.Process]:
    """The processes that work in a directory."""
    found = []
    for each in psutil.process_iter(["cwd"]):
        if (each.info["cwd"] or "").startswith(str(directory)):
            found.append(each)
    return found
