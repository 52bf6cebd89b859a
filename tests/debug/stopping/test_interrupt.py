"""Interrupts of threads: what is left of one that does not arrive."""

from __future__ import annotations

import subprocess
import sys

import pytest

ABOUT = """\
import cProfile, sys, threading, time
from streambench.debug.stopping import interrupt

waiting = threading.Event()

def process():
    waiting.set()
    time.sleep(1000)

def taken():
    return 1

if {kind!r} == "pending":
    thread = threading.Thread(target=process, daemon=True)
    thread.start()
    waiting.wait()
    while not interrupt.interrupt_inside(thread.ident, {{process.__code__}}):
        pass
    interrupt.clear_interrupts()
else:
    interrupt.forget_interrupt()
print(cProfile.Profile().runcall(lambda: taken()))
"""


@pytest.mark.parametrize("kind", ["pending", "forgotten"])
def test_a_profiler_works_beside_an_interrupt_that_does_not_arrive(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABOUT.format(kind=kind)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
