"""Jobs of one kernel that are made, run, swapped, stopped and made again: nothing of them stays."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections import Counter
from typing import Any

import pytest
from ipywidgets.widgets import widget as widgets

from streambench.container.container import Container
from streambench.debug.control.session import Session
from streambench.errors import TaskError
from streambench.system.api import SystemConsumer
from tests.magics.conftest import Shell
from tests.surroundings import SOAK

CYCLES = 200 if SOAK else 20
SETTLED = 3
"""Cycles before anything is counted: caches are filled, modules imported."""

CONFIG = """%%streamconfig kept
systems.log.samza.factory=log
systems.log.path=streams
systems.log.samza.key.serde=string
systems.log.samza.msg.serde=json
systems.log.samza.offset.default=oldest
stores.n.factory=rocksdb
stores.n.key.serde=string
stores.n.msg.serde=json
task.inputs=log.words
"""

TASK = """%%streamtask Tally
class Tally:
    def init(self, context):
        self.n = context.store("n")

    def process(self, envelope, collector, coordinator):
        key = envelope.message
        self.n.put(key, (self.n.get(key) or 0) + 1)
        collector.send("log.seen", key)
        assert key != "bad"
"""


@pytest.fixture
def kernel(ip_empty: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell that shows panels, with two partitions of words on the disk."""
    monkeypatch.setattr(widgets.Widget, "_send", lambda self, message, buffers=None: None)
    monkeypatch.setattr(ip_empty.shell, "kernel", object(), raising=False)
    ip_empty.run(CONFIG)
    ip_empty.run(TASK)
    ip_empty.run("%stream streams create log.words --partitions 2 --config kept")
    return ip_empty


def cycle(kernel: Shell, *, fails: bool) -> None:
    """Make a job, step it, run it, go back, swap its code, and stop it, or let it fail."""
    kernel.run('%stream send log.words --config kept --from ["a", "b", "a"]')
    kernel.run("%stream create Tally --config kept")
    kernel.run("%stream show")
    kernel.run("%stream step")
    kernel.run(TASK)
    kernel.run("%stream swap")
    kernel.run("%stream run --until caught-up")
    kernel.run("%stream wait")
    kernel.run("%stream back")
    kernel.run("%stream live")
    if fails:
        kernel.run("%stream send log.words '\"bad\"' --config kept")
        with pytest.raises(TaskError):
            kernel.run("%stream step")
        kernel.run("%stream stop")
        kernel.run("%stream rewind upcoming")
    else:
        kernel.run("%stream stop")


def held() -> Counter[str]:
    """What is held at present, by kind: threads, open files, widgets, consumers, containers, sessions."""
    gc.collect()
    found = Counter(thread.name for thread in threading.enumerate())
    found["open files"] = len(os.listdir("/proc/self/fd"))
    found["widgets"] = len(widgets._instances)
    kinds: tuple[tuple[str, type[Any]], ...] = (
        ("consumers", SystemConsumer), ("containers", Container), ("sessions", Session),
    )  # fmt: skip
    for each in gc.get_objects():
        for name, kind in kinds:
            found[name] += isinstance(each, kind)
    return found


def left_over(before: Counter[str]) -> Counter[str]:
    """Everything held beyond ``before``, when a minute has passed at the latest. It may take a moment to go:
    ``gc.collect`` does nothing while another thread collects, and a thread that ends still holds its
    session."""
    deadline = time.monotonic() + 60
    while True:
        more = held() - before
        # A file may be open for other work of this process; one cycle in four fails.
        if more["open files"] < CYCLES // 4:
            del more["open files"]
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.1)


def test_cycles_of_jobs_leave_nothing_behind(kernel: Shell) -> None:
    before: Counter[str] = Counter()
    for number in range(SETTLED + CYCLES):
        if number == SETTLED:
            before = held()
        cycle(kernel, fails=number % 4 == 3 or number == SETTLED - 1)
    cycle(kernel, fails=True)  # as the one before the first count
    assert not left_over(before)
