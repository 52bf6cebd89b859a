"""Streams that come over the network, in a notebook that both sends and receives."""

from __future__ import annotations

import pytest

from streambench.errors import StreamSystemError
from tests.magics.conftest import Shell
from tests.ports import free_ports


@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_job_that_waits_for_its_next_step_is_sent_to_and_gets_it_then(ip: Shell, kind: str) -> None:
    ip.run(
        "%%streamconfig "
        f"net\nsystems.t.samza.factory={kind}\nsystems.t.streams.lines.listen={free_ports(1, kind)}\n"
        "systems.t.samza.msg.serde=json\ntask.inputs=t.lines\n"
    )
    ip.run("%stream create Count --config net")
    assert ip.run("%stream step") == "Count: nothing to read, it has caught up with its inputs"
    assert (
        ip.run("%stream send t.lines '{\"n\": 1}'")
        == "sent 1 message to t.lines; nothing confirms that it arrived"
    )
    (task,) = ip.magics.bench.jobs["Count"].session.container.tasks
    while not task.task.seen:
        ip.run("%stream step")
    assert task.task.seen == [{"n": 1}]
    ip.run("%stream run --until caught-up")
    assert ip.run("%stream wait") == "Count is paused: 1 message processed, caught up with all inputs"
    assert ip.run("%stream streams t.lines").splitlines()[1].split() == ["t.lines", "0", "-", "-", "-"]
    with pytest.raises(
        StreamSystemError, match=r"'t' keeps nothing that could be looked at: .*systems\.t\.samza\.landing"
    ):
        ip.run("%stream peek t.lines")
    ip.run("%stream stop")
