"""The lines that submit a job, as Spark's own ``spark-submit`` understands them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambench.spark.package import package
from streambench.spark.submit_lines import submit_lines
from tests.spark.conftest import Job
from tests.spark.test_package import with_code


@pytest.fixture(scope="module")
def parse(spark: Any) -> Iterator[Any]:
    """The arguments of a line, as Spark's own ``spark-submit`` reads them."""
    jvm = spark.sparkContext._jvm

    def parsed(line: str) -> Any:
        words = jvm.PythonUtils.toSeq(shlex.split(line)[1:])
        environment = jvm.PythonUtils.toScalaMap({"HADOOP_CONF_DIR": "/etc/hadoop"})
        return jvm.org.apache.spark.deploy.SparkSubmitArguments(words, environment)

    yield parsed


@pytest.mark.parametrize(
    ("target", "master", "mode"),
    [
        ("local", "local[*]", None),
        ("standalone", "spark://HOST:7077", None),
        ("yarn", "yarn", "cluster"),
        ("k8s", "k8s://https://HOST:6443", "cluster"),
    ],
)
def test_spark_submit_understands_the_lines(
    job: Job, parse: Any, target: Any, master: str, mode: str | None
) -> None:
    made = package(with_code(job).config)
    archive = Path("/jobs/job.zip")
    line = submit_lines(made, archive, target)[-1]
    found = parse(line)
    place = "local:///opt/streambench" if target == "k8s" else "/jobs"
    assert (found.maybeMaster().get(), found.deployMode(), found.name()) == (master, mode, "job")
    assert found.pyFiles().endswith(f"{place}/job.zip")
    assert found.primaryResource().endswith(f"{place}/submit_job.py")
    assert found.isPython()
    if target in ("yarn", "k8s"):
        assert found.sparkProperties().apply("spark.executor.instances") == "2"
