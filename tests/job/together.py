"""Processes that start one job at the same moment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from streambench import Config

#: A program that runs the job until its input ends. It prints "held" once its containers are at work.
RUNS = """
import os, signal, sys, threading
import streambench as sb

class Ignore(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        pass

def stop():
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGINT)

said = []

def show(snapshots):
    if not said and all(each.state == "running" for each in snapshots):
        said.append(True)
        print("held", flush=True)
        threading.Thread(target=stop, daemon=True).start()

if __name__ == "__main__":
    config = sb.Config.from_text(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        sb.run(config, None, task=Ignore, on_snapshots=show, every_s=0.05, if_running="refuse")
        print("stopped", flush=True)
    except sb.StreambenchError as error:
        print(error, flush=True)
"""


@contextmanager
def begun_together(program: str, config: Config, job: str, processes: int = 2) -> Iterator[list[str]]:
    """The first answers of programs that go on at one moment. They get the configuration and the name of the
    job as arguments, and a line to begin; the end of their input ends them."""
    text = "".join(f"{key}={value}\n" for key, value in config.items())
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        begun = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", program, text, job], **pipes))
            for _ in range(processes)
        ]
        stack.callback(lambda: [each.stdin.close() for each in begun if each.stdin is not None])
        answers = [each.stdout for each in begun if each.stdout is not None]
        assert [each.readline() for each in answers] == ["ready\n"] * processes
        for each in begun:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        yield [each.readline().strip() for each in answers]
