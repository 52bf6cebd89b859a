"""Spark masters: which are one, and where they are."""

from __future__ import annotations

import re

from streambench.errors import ConfigError
from streambench.masking import masked

_MASTER = re.compile(
    r"local(\[\s*(\*|\d+)\s*(,\s*\d+\s*)?\])?|local-cluster\[.+\]|yarn|(spark|k8s|mesos|sc)://.+"
)
_THREADS = re.compile(r"local(\[\s*(?P<threads>\*|\d+)\s*(,\s*(?P<failures>\d+)\s*)?\])?")
_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*(?P<memory>\d+)\s*\]")
_LOOPBACK = re.compile(r"(spark|sc)://(localhost|127\.[\d.]+|\[::1\])(:|/|$)")

_ATTEMPTS = 4


def check_master(master: str | None) -> None:
    """Raise ConfigError for what is no address of a Spark, whether or not there is anything to do for it."""
    if master is not None and not _MASTER.fullmatch(master):
        raise ConfigError(
            f"'{masked('master', master)}' is not a Spark master: give local[4] or local[*], "
            "spark://HOST:7077, yarn, k8s://https://HOST:PORT or sc://HOST"
        )


def with_attempts(master: str) -> str:
    """A local master that starts a task again when its Python process dies, as all others do by
    themselves."""
    match = _THREADS.fullmatch(master)
    if match is None:
        return master
    # Without blanks: Spark takes them at the comma alone.
    return f"local[{match['threads'] or 1},{match['failures'] or _ATTEMPTS}]"


def is_local(master: str) -> bool:
    """True where a session starts all of its processes itself: threads, or a local cluster."""
    return is_one_process(master) or is_local_cluster(master)


def is_one_process(master: str) -> bool:
    """True where the executor is the driver itself, with threads."""
    return bool(_THREADS.fullmatch(master))


def is_local_cluster(master: str) -> bool:
    """True where a session starts executors on this machine."""
    return bool(_CLUSTER.fullmatch(master))


def is_here(master: str) -> bool:
    """True where the executors are reached by the loopback interface."""
    return is_local(master) or bool(_LOOPBACK.match(master))


def worker_memory_mb(master: str) -> int | None:
    """The memory of a worker of a local cluster, in MiB; None for other masters."""
    cluster = _CLUSTER.fullmatch(master)
    return int(cluster["memory"]) if cluster else None
