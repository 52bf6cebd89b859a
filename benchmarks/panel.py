"""Cost of a panel: a job in a real kernel, with the panel on the screen.

The panel draws by the clock, four times a second. On a busy machine a job takes longer, and gets more
frames. So the CPU time of one frame is measured, on the threads that have a part in it: of the job, which
takes the snapshot, of the panel, and of the kernel, which sends it. The ratio is that of a job with four
frames a second."""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

from .container import fill_log, log_job
from .data import messages
from .report import Figure

_TIMEOUT_S = 300
_FRAMES_PER_SECOND = 4
_SETUP = """
import threading, time
import streambench as sb
from streambench.container.container import Container
from streambench_magics.panel.panel import Panel
%load_ext streambench
config = sb.Config({config!r})
spent = dict.fromkeys(["_paint", "snapshot"], 0.0)
frames = 0

def timed(kind, name):
    called = getattr(kind, name)

    def call(self, *args):
        global frames
        began = time.thread_time()
        try:
            return called(self, *args)
        finally:
            spent[name] += time.thread_time() - began
            frames += name == "_paint"

    setattr(kind, name, call)

timed(Panel, "_paint")
timed(Container, "snapshot")

def sending():
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(each.ident))
        for each in threading.enumerate() if each.name == "IOPub"
    )
"""
_TASK = """%%streamtask Count
class Count:
    def init(self, context):
        self.counts = {}

    def process(self, envelope, collector, coordinator):
        key = envelope.message["user"]
        self.counts[key] = self.counts.get(key, 0) + 1
"""
_RUN = """
%stream create job{number} --task Count --config config
%stream show job{number}
job = %stream job job{number}
%stream step
spent, frames, sent = dict.fromkeys(spent, 0.0), 0, sending()
job.session.run("caught-up")
job.session.wait()
seconds = sum(spent.values()) + sending() - sent
done, drawn = job.session.position, frames
%stream stop job{number}
"""


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratio of a job that is shown, and one that is not."""
    config = log_job(directory / "log").with_values({"systems.bench.samza.msg.serde": "json"})
    fill_log(config, messages(count).partitions)
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        _execute(client, _SETUP.format(config=dict(config)))
        _execute(client, _TASK)
        frame = statistics.median(_frame(client, number, count) for number in range(rounds))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    ratio = 1 - _FRAMES_PER_SECOND * frame
    note = f"{frame * 1e3:.1f} ms of CPU a frame"
    yield Figure("panel: shown / not, messages per second", ratio, "x", 0.97, note=note)


def _frame(client: Any, number: int, count: int) -> float:
    """Seconds of CPU that a frame takes while a job runs."""
    _execute(client, _RUN.format(number=number))
    seconds, drawn, done = _value(client, "seconds, drawn, done")
    if done != count:
        raise AssertionError(f"{done} messages were processed, not {count}")
    return float(seconds / drawn)


def _execute(client: Any, code: str) -> None:
    """Run a cell. Raises AssertionError where it fails."""
    content = _reply(client, code)
    if content["status"] != "ok":
        raise AssertionError(f"{content['ename']}: {content['evalue']}")


def _value(client: Any, expression: str) -> Any:
    found = _reply(client, "", {"value": expression})["user_expressions"]["value"]
    return ast.literal_eval(found["data"]["text/plain"])


def _reply(client: Any, code: str, expressions: dict[str, str] | None = None) -> dict[str, Any]:
    reply = client.execute_interactive(
        code, user_expressions=expressions, timeout=_TIMEOUT_S, output_hook=lambda message: None
    )
    content: dict[str, Any] = reply["content"]
    return content
