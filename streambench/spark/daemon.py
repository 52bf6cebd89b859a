"""Spark's Python daemon, with all that a container imports loaded before its workers are forked.

Spark names it by ``spark.python.daemon.module``. A worker of Spark's own daemon imports pandas, pyarrow and
streambench for itself, which takes longer than a small increment of a job.
"""

from __future__ import annotations

import gc
import os

# Read as numpy is imported: a process that is forked should have no threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pandas  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import streambench.spark.worker
import streambench.system.log  # noqa: F401

if __name__ == "__main__":
    # What is loaded now stays: a collection in a worker would copy its pages.
    gc.freeze()
    manager()
