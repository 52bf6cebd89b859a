"""Whatever the inputs, the configuration and the order of arrival: what the wired choosers promise holds."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import event, given
from hypothesis import strategies as st

from streambench.chooser import MessageChooser, PartitionMetadata, RoundRobinChooser
from streambench.chooser.wiring import wire_chooser
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from tests.chooser.reference import ReferenceChooser, Rules


@dataclass
class Scenario:
    """A container's inputs, its configuration, and what happens: a number offers the next message of that
    partition, None chooses.

    ``offsets``: per partition all that will ever be read, with gaps where compaction took some. ``metadata``
    has partitions of other containers, too.
    """

    offsets: dict[SystemStreamPartition, list[int]]
    starts: dict[SystemStreamPartition, int]
    metadata: dict[SystemStream, dict[int, PartitionMetadata]]
    config: dict[str, str]
    rules: Rules
    events: list[int | None]


@st.composite
def scenarios(draw: st.DrawFn, *, plain: bool = False) -> Scenario:
    streams = [SystemStream("sys", name) for name in "abcd"[: draw(st.integers(1, 4))]]
    scenario = Scenario({}, {}, {}, {}, Rules({}, 1, {}), [])
    for stream in streams:
        scenario.metadata[stream] = {}
        for number in range(draw(st.integers(1, 3))):
            _draw_partition(draw, scenario, SystemStreamPartition("sys", stream.stream, number))
    if not plain:
        _draw_configuration(draw, scenario, streams)
    happens = (
        st.one_of(st.none(), st.integers(0, len(scenario.offsets) - 1)) if scenario.offsets else st.none()
    )
    scenario.events = draw(st.lists(happens, max_size=60))
    return scenario


def _draw_partition(draw: st.DrawFn, scenario: Scenario, ssp: SystemStreamPartition) -> None:
    offsets, upcoming = [], 0
    for gap in draw(st.lists(st.integers(0, 2), max_size=8)):
        offsets.append(upcoming + gap)
        upcoming = offsets[-1] + 1
    there = draw(st.integers(0, len(offsets)))
    newest = offsets[there - 1] if there else None
    if there:
        # What was newest may be gone by the time it is read: then nobody ever sees exactly this offset.
        following = offsets[there] if there < len(offsets) else upcoming + 3
        newest = draw(st.integers(offsets[there - 1], following - 1))
    scenario.metadata[ssp.system_stream][ssp.partition] = PartitionMetadata(
        None if newest is None else "0",
        None if newest is None else str(newest),
        str(0 if newest is None else newest + 1),
    )
    if draw(st.booleans()) or not scenario.offsets:
        first = draw(st.integers(0, len(offsets)))
        scenario.starts[ssp] = offsets[first] if first < len(offsets) else upcoming + 3
        scenario.offsets[ssp] = offsets[first:]


def _draw_configuration(draw: st.DrawFn, scenario: Scenario, streams: list[SystemStream]) -> None:
    scenario.rules.batch_size = draw(st.sampled_from([1, 1, 2, 3, 5]))
    scenario.config["task.consumer.batch.size"] = str(scenario.rules.batch_size)
    for stream in streams:
        key = f"systems.{stream.system}.streams.{stream.stream}.samza."
        priority = draw(st.sampled_from([None, None, -1, 0, 1, 2]))
        if priority is not None:
            scenario.config[key + "priority"] = str(priority)
            if priority >= 0:
                scenario.rules.priorities[stream] = priority
        if draw(st.booleans()):
            scenario.config[key + "bootstrap"] = "true"
            for number, metadata in scenario.metadata[stream].items():
                newest = None if metadata.newest is None else int(metadata.newest)
                scenario.rules.newest[SystemStreamPartition(stream.system, stream.stream, number)] = newest


class Play:
    """Plays a scenario to a wired chooser and to the reference, as a container would: one message of each
    partition at a time."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.chooser = _wired(scenario)
        self.reference = ReferenceChooser(scenario.rules, scenario.starts)
        self.left = {ssp: list(offsets) for ssp, offsets in scenario.offsets.items()}
        self.inside: dict[SystemStreamPartition, int] = {}
        self.chosen: list[tuple[SystemStreamPartition, int]] = []
        self.choices: list[SystemStreamPartition | None] = []

    def offer(self, ssp: SystemStreamPartition) -> bool:
        """Hand over the partition's next message, if there is one and none of it is inside."""
        if ssp in self.inside or not self.left[ssp]:
            return False
        self.inside[ssp] = self.left[ssp].pop(0)
        self.chooser.update(IncomingMessageEnvelope(ssp, str(self.inside[ssp]), None, None))
        self.reference.waiting.append(ssp)
        return True

    def choose(self) -> SystemStreamPartition | None:
        stands = self.chooser.explain(None)
        assert {each.ssp: each.offset for each in stands.waiting} == {
            ssp: str(offset) for ssp, offset in self.inside.items()
        }
        assert len(stands.waiting) == len(self.inside)
        assert bool(stands.gate) == bool(self.reference.lagging())
        expected = self.reference.choose(self.inside)
        envelope = self.chooser.choose()
        ssp = None if envelope is None else envelope.ssp
        assert ssp == expected
        told = self.chooser.explain(envelope)
        assert told.rule
        assert str(told)
        if envelope is None:
            assert told.winner is None
        else:
            assert told.winner == (envelope.ssp, envelope.offset)
            assert {each.ssp for each in told.candidates} == set(self.inside)
            assert envelope.ssp not in told.held
            # Who waits and is not held comes next: that is what "next in 1" says.
            assert not stands.held.get(envelope.ssp, "").startswith("bootstrap")
            if stands.queue:
                assert stands.queue[0].ssp == envelope.ssp
            assert self.inside.pop(envelope.ssp) == int(envelope.offset)
            self.chosen.append((envelope.ssp, int(envelope.offset)))
        self.choices.append(ssp)
        return ssp

    def heads(self) -> bool:
        """Tell of the partitions that are read to their end; whether there is one that was not yet known to
        be."""
        heads = {ssp for ssp, left in self.left.items() if not left and ssp not in self.inside}
        news = heads - self.reference.done
        for ssp in sorted(heads):
            self.chooser.at_head(ssp)
        self.reference.done |= heads
        return bool(news)

    def run(self) -> None:
        ssps = sorted(self.scenario.offsets)
        for happens in self.scenario.events:
            if happens is None:
                self.choose()
            else:
                self.offer(ssps[happens])
        while any([self.offer(ssp) for ssp in ssps]) or self.choose() is not None or self.heads():
            pass


def _wired(scenario: Scenario) -> MessageChooser:
    chooser = wire_chooser(
        Config(scenario.config),
        list(scenario.metadata),
        scenario.metadata,
        MetricsRegistry(),
        lambda one, other: int(one) - int(other),
    )
    for ssp, start in sorted(scenario.starts.items()):
        chooser.register(ssp, str(start))
    chooser.start()
    return chooser


@given(scenarios())
def test_the_wired_choosers_choose_as_the_plain_rules_say(scenario: Scenario) -> None:
    play = Play(scenario)
    event(type(play.chooser).__name__)
    play.run()


@given(scenarios())
def test_every_message_is_chosen_once_and_each_partition_in_its_order(scenario: Scenario) -> None:
    play = Play(scenario)
    play.run()
    for ssp, offsets in scenario.offsets.items():
        assert [offset for chosen, offset in play.chosen if chosen == ssp] == offsets
    assert not play.inside
    assert not play.chooser.explain(None).waiting


@given(scenarios())
def test_the_gate_lets_nothing_else_pass_and_only_a_batch_outruns_priority(
    scenario: Scenario,
) -> None:
    play = Play(scenario)
    rules = scenario.rules

    def priority(ssp: SystemStreamPartition) -> int:
        return rules.priorities.get(ssp.system_stream, -1)

    choose = play.choose

    def checked() -> SystemStreamPartition | None:
        before, lagging, last = (
            set(play.inside),
            play.reference.lagging(),
            play.choices[-1] if play.choices else None,
        )
        ssp = choose()
        if ssp is not None:
            assert not lagging or ssp in lagging
            rivals = before & lagging if lagging else before
            assert priority(ssp) == max(map(priority, rivals)) or (rules.batch_size > 1 and ssp == last)
        else:
            assert not (before & lagging if lagging else before)
        return ssp

    play.choose = checked  # type: ignore[method-assign]
    play.run()


@given(scenarios())
def test_no_partition_goes_on_beyond_its_batch_while_its_equals_wait(scenario: Scenario) -> None:
    play = Play(scenario)
    rules = scenario.rules

    def priority(ssp: SystemStreamPartition) -> int:
        return rules.priorities.get(ssp.system_stream, -1)

    passed_over = 0
    while True:
        for ssp in sorted(scenario.offsets):
            play.offer(ssp)
        lagging = play.reference.lagging()
        rivals = {ssp for ssp in play.inside if not lagging or ssp in lagging}
        last = play.choices[-1] if play.choices else None
        chosen = play.choose()
        if chosen is not None:
            passed = any(priority(ssp) >= priority(chosen) for ssp in rivals - {chosen})
            passed_over = (passed_over if chosen == last else 0) + 1 if passed else 0
            assert passed_over <= rules.batch_size
        elif not play.heads():
            break


@given(scenarios(plain=True))
def test_in_round_robin_a_message_waits_for_one_of_each_other_partition(scenario: Scenario) -> None:
    play = Play(scenario)
    assert type(play.chooser) is RoundRobinChooser
    waits: dict[SystemStreamPartition, list[SystemStreamPartition]] = {}
    offer, choose = play.offer, play.choose

    def noted(ssp: SystemStreamPartition) -> bool:
        offered = offer(ssp)
        if offered:
            waits[ssp] = []
        return offered

    def checked() -> SystemStreamPartition | None:
        ssp = choose()
        if ssp is not None:
            before = waits.pop(ssp)
            assert len(before) == len(set(before)) < len(scenario.offsets)
            for others in waits.values():
                others.append(ssp)
        return ssp

    play.offer, play.choose = noted, checked  # type: ignore[method-assign]
    play.run()
