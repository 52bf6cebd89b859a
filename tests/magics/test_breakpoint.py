"""A breakpoint of JupyterLab in a ``%%streamtask`` cell stops: the debugger finds the cell under the name
that the kernel gives it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60

TASK = """%%streamtask {name}
# a comment
def process(envelope, collector, coordinator):
    doubled = envelope.message * 2
    return doubled"""
LINE = 4

SET_UP = """%load_ext streambench
from streambench import Config
config = Config({"systems.mem.samza.factory": "memory", "systems.mem.samza.offset.default": "oldest",
                 "task.inputs": "mem.a"})
%stream streams create mem.a --config config
%stream send mem.a word --config config
"""


class Debugged:
    """A kernel and its debugger, spoken to as JupyterLab does."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client
        self._number = 0

    def run(self, code: str) -> str:
        return self.client.execute(code)

    def finish(self, code: str) -> None:
        reply = self.client.execute(code, reply=True, timeout=PATIENCE_S)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"].get("traceback", []))

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        self._number += 1
        request = {"type": "request", "seq": self._number, "command": command, "arguments": arguments}
        message = self.client.session.msg("debug_request", request)
        self.client.control_channel.send(message)
        while True:
            reply = self.client.get_control_msg(timeout=PATIENCE_S)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                assert reply["content"].get("success", True), reply["content"]
                return reply["content"].get("body", {})

    def event(self, name: str) -> dict[str, Any]:
        while True:
            message = self.client.get_iopub_msg(timeout=PATIENCE_S)
            if message["msg_type"] == "debug_event" and message["content"]["event"] == name:
                return message["content"]["body"]


@pytest.fixture(scope="module")
def debugged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Debugged]:
    """A kernel with the streams of ``SET_UP``, and its debugger attached."""
    tmp_path = tmp_path_factory.mktemp("kernel")
    manager = KernelManager(kernel_name="python3")
    folders = os.pathsep.join([str(ROOT), str(ROOT / "magics"), os.environ.get("PYTHONPATH", "")])
    manager.start_kernel(
        cwd=str(tmp_path), env={**os.environ, "PYTHONPATH": folders, "IPYTHONDIR": str(tmp_path / "ipython")}
    )
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)
        debugged = Debugged(client)
        debugged.finish(SET_UP)
        debugged.ask(
            "initialize",
            clientID="test",
            adapterID="",
            pathFormat="path",
            linesStartAt1=True,
            columnsStartAt1=True,
        )
        debugged.ask("attach")
        yield debugged
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@pytest.mark.parametrize(
    ("name", "below"), [("copy", ""), ("again", "\n\n")], ids=["as typed", "empty lines below"]
)
def test_a_breakpoint_in_the_cell_of_a_task_stops_there(debugged: Debugged, name: str, below: str) -> None:
    cell = TASK.format(name=name) + below
    source = debugged.ask("dumpCell", code=cell)["sourcePath"]
    debugged.ask(
        "setBreakpoints", source={"path": source}, breakpoints=[{"line": LINE}], sourceModified=False
    )
    debugged.ask("configurationDone")
    debugged.finish(cell)
    debugged.finish(f"%stream create {name} --config config")
    debugged.run("%stream run --until caught-up\n%stream wait")
    thread = debugged.event("stopped")["threadId"]
    top = debugged.ask("stackTrace", threadId=thread)["stackFrames"][0]
    assert (top["name"], top["line"]) == ("process", LINE)
    assert top["source"]["path"] == source
    debugged.ask("continue", threadId=thread)
    debugged.finish("pass")
