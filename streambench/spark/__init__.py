"""A job on Apache Spark: the same container, inside Spark tasks; and its streams as DataFrames."""

from streambench.job.running import JobRunningError
from streambench.spark.backfill import Backfill
from streambench.spark.dataframes import read, read_store, register
from streambench.spark.deployment import backfill, deploy
from streambench.spark.result import (
    ContainerProgress,
    DeployedContainer,
    DeployError,
    DeployProgress,
    DeployResult,
    DeployTaskError,
    TakenOverError,
)
from streambench.spark.service import JobStatus, ServiceStatus, deploy_all, serve
from streambench.spark.session import open_session

__all__ = [
    "Backfill",
    "ContainerProgress",
    "DeployError",
    "DeployProgress",
    "DeployResult",
    "DeployTaskError",
    "DeployedContainer",
    "JobRunningError",
    "JobStatus",
    "ServiceStatus",
    "TakenOverError",
    "backfill",
    "deploy",
    "deploy_all",
    "open_session",
    "read",
    "read_store",
    "register",
    "serve",
]
