"""From a configuration to a job model: which tasks there are, which partitions each reads, and which
container runs it."""

from streambench.planning.groupers import Grouper
from streambench.planning.model import ContainerModel, JobModel, TaskModel
from streambench.planning.plan import job_name, plan

__all__ = ["ContainerModel", "Grouper", "JobModel", "TaskModel", "job_name", "plan"]
