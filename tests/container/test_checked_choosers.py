"""What a chooser that is not ours does against the contract is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.chooser import MessageChooser, RoundRobinChooser
from streambench.chooser.wiring import wire_chooser
from streambench.config import Config
from streambench.errors import ChooserError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.testing import ManualClock
from tests.container.jobs import Bench, ignore


class Twice(RoundRobinChooser):
    """Returns each message once more."""

    last: IncomingMessageEnvelope | None = None

    def choose(self) -> IncomingMessageEnvelope | None:
        again, self.last = self.last, None
        if again is None:
            again = self.last = super().choose()
        return again


class Thief(RoundRobinChooser):
    """Returns what no partition has."""

    def choose(self) -> IncomingMessageEnvelope | None:
        chosen = super().choose()
        return chosen and IncomingMessageEnvelope(chosen.ssp, "77", None, "mine")


class Talker(RoundRobinChooser):
    def choose(self) -> Any:
        return "the next one, please"


class Lazy(MessageChooser):
    def update(self, envelope: IncomingMessageEnvelope) -> None:
        """Forgets it."""

    def choose(self) -> None:
        return None


class Mine(RoundRobinChooser):
    """Does as it should."""


PRIORITY = {"systems.mem.streams.a.samza.priority": 2}
GATE = {"systems.mem.streams.a.samza.bootstrap": True}


@pytest.mark.parametrize("settings", [{}, PRIORITY, GATE], ids=["alone", "priorities", "gate"])
@pytest.mark.parametrize(
    ("chooser", "offset", "processed"),
    [(Twice, "0", 1), (Thief, "77", 0)],
    ids=["a message twice", "a message of its own"],
)
def test_a_chooser_that_returns_what_is_not_waiting_ends_the_job(
    settings: dict[str, Any], chooser: type, offset: str, processed: int
) -> None:
    inputs = {"mem.a": {0: [1, 2, 3]}, "mem.b": {0: [1, 2, 3]}}
    container = Bench(ignore, inputs, {"task.chooser.class": chooser, **settings}).started()
    says = rf"^{chooser.__name__}\.choose returned a message that is not waiting: mem.a.0@{offset};"
    with pytest.raises(ChooserError, match=says):
        container.run("caught-up")
    assert (container.state, container.processed) == ("failed", processed)


def test_a_chooser_that_returns_no_message_at_all_is_named() -> None:
    container = Bench(ignore, {"mem.a": {0: [1]}}, {"task.chooser.class": Talker}).started()
    with pytest.raises(
        ChooserError, match=r"Talker\.choose returned 'the next one, please', which is no message"
    ):
        container.step()


def idle_for(bench: Bench, milliseconds: int) -> None:
    """Let a container have nothing to do for so long, by its clock."""
    until = bench.clock.now_ms() + milliseconds

    def is_over() -> bool:
        bench.clock.advance(100)
        return bench.clock.now_ms() >= until

    bench.container.run(is_over)


def test_of_a_chooser_that_chooses_nothing_one_warning_tells(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(
        ignore,
        {"mem.a": {number: [1, 2] for number in range(12)}},
        {"task.chooser.class": Lazy, "task.max.idle.ms": 0},
    )
    bench.started()
    idle_for(bench, 900)
    assert caplog.messages == []
    idle_for(bench, 5000)
    assert caplog.messages == ["12 messages wait, and Lazy chooses none of them"]


def test_a_closed_gate_is_no_fault_of_the_chooser(caplog: pytest.LogCaptureFixture) -> None:
    first, other = SystemStream("mem", "a"), SystemStream("mem", "b")
    metadata = {first: {0: PartitionMetadata("0", "4", "5")}, other: {0: PartitionMetadata("0", "4", "5")}}
    clock = ManualClock()
    chooser = wire_chooser(
        Config({"task.chooser.class": Mine, **GATE}), [first, other], metadata, MetricsRegistry(), None, clock
    )
    for stream in metadata:
        chooser.register(SystemStreamPartition(stream.system, stream.stream, 0), "0")
    chooser.start()
    chooser.update(IncomingMessageEnvelope(SystemStreamPartition("mem", "b", 0), "0", None, 1))
    for _ in range(50):
        assert chooser.choose() is None
        clock.advance(100)
    assert caplog.messages == []
