"""A session says which message its task is busy with, and at which line of its code."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.debug.control.busy import Busy
from streambench.debug.control.session import Session
from streambench.debug.streams.by_hand import send
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.redaction import remember
from streambench.system.systems import Systems
from tests.debug.control.test_give_up import _IN, _PATIENCE_S

CONFIG = Config(
    {
        "systems.log.samza.factory": "log",
        "systems.log.samza.offset.default": "oldest",
        "task.inputs": "log.in",
    }
)


class Waits:
    """A task that waits in a function of its own at the message 2."""

    reached = threading.Event()
    end = threading.Event()

    def process(self, envelope: IncomingMessageEnvelope) -> None:
        if envelope.message == 2:
            self.wait()

    def wait(self) -> None:
        self.reached.set()
        self.end.wait(_PATIENCE_S)  # the line that it waits at


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    config = CONFIG.with_values(
        {
            "systems.log.path": str(tmp_path / "log"),
            "systems.log.samza.key.serde": "string",
            "systems.log.samza.msg.serde": "json",
            "job.name": "waits",
        }
    )
    systems = Systems(config)
    systems.create(_IN, 1)
    systems.close()
    send(config, _IN, [(f"k{number}", number) for number in range(4)])
    Waits.reached.clear()
    Waits.end.clear()
    task = type("Task", (Waits,), {"process": lambda self, envelope, *_: Waits.process(self, envelope)})
    session = Session(Container(config, task), "waits")
    session.start()
    yield session
    Waits.end.set()
    session.stop()


def test_the_message_and_the_line_of_a_busy_task_are_known(session: Session) -> None:
    assert session.busy is None
    session.run("caught-up")
    assert Waits.reached.wait(_PATIENCE_S)
    while "the line that it waits at" not in (busy := session.busy).code:
        threading.Event().wait(0.005)
    assert (str(busy.ssp), busy.offset, busy.key) == ("log.in.0", "2", "k2")
    assert busy.file == __file__
    place = f"log.in.0@2 key k2, test_busy.py line {busy.line}: self.end.wait(_PATIENCE_S)  # the line that"
    assert place in str(busy)
    assert str(busy).startswith("busy ")
    Waits.end.set()
    session.wait(_PATIENCE_S)
    assert session.busy is None


def test_a_long_key_and_a_long_line_say_how_much_is_left_out() -> None:
    busy = Busy(14.2, None, None, None, "/jobs/tasks.py", 6, "x" * 500)
    assert str(busy).startswith("busy 14 s, tasks.py line 6: xxx")
    assert "… +4" in str(busy)


def test_a_key_and_a_line_with_a_secret_are_masked() -> None:
    secret = "-".join(["busy", "s3cret"])
    remember(secret)
    ssp = SystemStreamPartition("log", "in", 0)
    busy = Busy(3.0, ssp, "1", secret, "/jobs/t.py", 6, f"log_in('{secret}')")
    assert str(busy) == "busy 3 s at log.in.0@1 key ***, t.py line 6: log_in('***')"
    assert secret not in str(Busy(3.0, ssp, "1", {"token": secret}))
