"""A notebook shows no secret of its configurations, whatever it shows of them."""

from __future__ import annotations

import pytest

from tests.magics.conftest import Shell

MARKER = "m4rk3r-S3cret"

CONFIG = """%%streamconfig inputs
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
systems.q.samza.factory=amqp
systems.q.url=amqp://me:${{env:PASSWORD}}@127.0.0.1:1/
systems.q.patience.ms=300
systems.q.streams.orders.queue=orders
systems.k.samza.factory=kafka
systems.k.bootstrap.servers=127.0.0.1:1
systems.k.consumer.bootstrap.timeout.ms=300
systems.k.consumer.sasl.plain.password={password}
task.inputs=mem.clicks
"""


@pytest.mark.parametrize("password", ["${env:PASSWORD}", MARKER])
def test_no_output_of_a_notebook_has_a_secret(
    ip: Shell, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    monkeypatch.setenv("PASSWORD", MARKER)
    outputs = [ip.run(CONFIG.format(password=password))]
    for line in (
        "create Count --config inputs",
        "attach Count",
        "step 2",
        "show",
        "streams",
        "checkpoints",
        "commit",
        "stop",
    ):
        try:
            outputs.append(ip.run(f"%stream {line}"))
        except Exception as error:
            outputs.append(repr(error))
        outputs.append(repr(ip.displayed))
    assert any("2" in each for each in outputs)
    outputs.append(ip.run("%stream attach Count q.orders"))
    for line in ("peek q.orders", "send q.orders x", "peek k.orders", "step 1"):
        outputs.append(ip.fails(f"%stream {line}"))
        outputs.append(repr(ip.error))
    outputs.append(repr(ip.magics.bench.configs["inputs"]))
    assert "systems.q.url" in outputs[-1]
    assert not [each for each in outputs if MARKER in each]


def test_what_cannot_be_resolved_is_told_when_the_cell_is_run(ip_empty: Shell) -> None:
    said = ip_empty.fails(CONFIG.format(password="${PASSWORD}"))
    assert "systems.q.url" in said
    assert "${env:PASSWORD}" in said
