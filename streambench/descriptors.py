"""Descriptors: how many files and sockets this process may have open, and what part of them is for
connections from outside.

All of them are counted, whatever they are used for: connections may never take from the reserve that the
job's own files need.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from streambench.errors import FileLimitError, TaskError

# Not when it is needed: without a free descriptor nothing can be imported.
try:
    import resource
except ImportError:  # no such limits on this system
    resource = None  # type: ignore[assignment]

RESERVE = 256
_UNLIMITED = 1 << 30


def limit() -> int:
    """The number of descriptors that this process may have (RLIMIT_NOFILE)."""
    if resource is None:
        return _UNLIMITED
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def allow(wanted: int) -> int:
    """Raise the limit to ``wanted`` descriptors beside the reserve, up to what this process may have; the
    limit that there is then."""
    present, needed = limit(), wanted + RESERVE
    if present < needed:
        assert resource is not None
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        present = max(present, needed if hard == resource.RLIM_INFINITY else min(needed, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (present, hard))
    return present


def spare() -> int:
    """The number of descriptors that are left for connections from outside; not for every message, since it
    counts them all."""
    there = limit()
    try:
        in_use = len(os.listdir("/proc/self/fd"))
    except FileNotFoundError:
        return there // 2  # this system does not say
    except OSError:
        return 0  # without a free descriptor no directory can be read either
    return there - min(RESERVE, there // 2) - in_use


@contextmanager
def limit_named() -> Iterator[None]:
    """Raise FileLimitError for what fails meanwhile for want of descriptors."""
    try:
        yield
    except Exception as error:
        named = limit_error(error)
        if named is None:
            raise
        raise named from error


def limit_error(error: BaseException) -> FileLimitError | None:
    """The named error for one that says that there are too many open files, or was caused by such a one.

    None for any other, and for those that name a task."""
    each: BaseException | None = error
    cause: OSError | None = None
    while each is not None and cause is None:
        if isinstance(each, (FileLimitError, TaskError)):
            return None
        if isinstance(each, OSError) and each.errno in (errno.EMFILE, errno.ENFILE):
            cause = each
        each = each.__cause__ or each.__context__
    if cause is None:
        return None
    there = limit()
    where = f" (opening {cause.filename})" if cause.filename else ""
    if cause.errno == errno.ENFILE:
        return FileLimitError(
            f"this machine has no more files to open for any process{where}: raise fs.file-max, or run less "
            "on it"
        )
    return FileLimitError(
        f"this process has {there} files and sockets open, and may not have more{where}: its limit "
        f"(RLIMIT_NOFILE) is {there}. Partitions, stores and connections need one or more each: allow "
        f"{max(4 * there, 4096)} with 'ulimit -n {max(4 * there, 4096)}' before the start, or spread the "
        "tasks over more containers"
    )
