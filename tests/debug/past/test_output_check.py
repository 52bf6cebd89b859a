"""Outputs that cannot be sent: in a branch of the past, by other code, and after a simulated crash."""

from __future__ import annotations

import re
from typing import Any

import pytest

import streambench as sb
from streambench.errors import SerdeError, TaskError
from tests.debug.control.test_time_travel import STORE, Counter, session_of
from tests.debug.crash.test_crash import GUARANTEES, Counting

UNSENDABLE: list[dict[str, Any]] = [
    {"headers": {"a": 5}}, {"timestamp": "x"}, {"timestamp": 1.5}, {"timestamp": 10**30}, {"partition": 9},
]  # fmt: skip
BS = {"mem.in": {0: [{"key": "b"}] * 6}}
BAD = re.compile("timestamp|header|partition")


@pytest.mark.parametrize("extras", UNSENDABLE, ids=str)
@pytest.mark.parametrize("by_column", [False, True])
def test_a_branch_fails_at_an_output_that_cannot_be_sent(extras: dict[str, Any], by_column: bool) -> None:
    class Late(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if self.seen != 3:
                return
            if by_column:
                columns = {f"{name.removesuffix('s')}s": [None, value] for name, value in extras.items()}
                collector.send_batch(sb.SystemStream.parse("mem.out"), [1, 2], **columns)
            else:
                collector.send("mem.out", 1, **extras)

    session, _ = session_of(inputs=BS)
    session.step(6)
    session.goto(1)
    session.swap(Late)
    with pytest.raises((SerdeError, TaskError), match=BAD):
        session.forward(5)
    assert session.position == 1 and session.stores() == {"Partition 0": {"n": {"b": 1}}}
    session.go_live()
    swap = session.swap(Late, replay=6)
    assert swap.replayed == 3 and swap.failed is not None and BAD.search(swap.failed)
    session.stop()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("extras", UNSENDABLE, ids=str)
def test_a_crash_does_not_send_what_cannot_be_sent(guarantee: Any, extras: dict[str, Any]) -> None:
    class Late(Counting):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            bad = extras if envelope.message == "b" else {}
            collector.send("mem.out", envelope.message, **bad)

    session, _ = session_of(Late, {"mem.in": {0: ["a", "b"]}}, {**STORE, **guarantee})
    session.step()
    with pytest.raises(SerdeError, match=r"what it sent to mem\.out cannot be sent"):
        session.step()
    crash = session.crash()
    assert crash.outputs_new == () and not crash.safe
    assert crash.error is not None and "what it sent to mem.out cannot be sent" in crash.error
    assert "send no. 1 of " in crash.error and "mem.in.0@1" in crash.error
    assert [step.new for step in session.crash_everywhere().unsafe if step.new] == []
