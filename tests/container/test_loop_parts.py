"""The parts of an event loop: what sees a choice, which calls are timed, and when all is caught up."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from streambench.batch import MessageBatch
from streambench.config import Config
from streambench.container.loop_parts import CallSampler, ChoiceWatch, HeadCheck
from streambench.container.observer import ContainerObserver, Observation
from streambench.container.outputs.dead_letters import DeadLetters
from streambench.container.trace import Trace
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.memory import MemorySystemFactory
from streambench.system.systems import Systems
from tests.container.jobs import Bench, Choices, ignore

SSP = SystemStreamPartition("mem", "a", 0)
MESSAGES = [IncomingMessageEnvelope(SSP, str(number), None, number) for number in range(5)]


class Watched:
    """A choice watch, and what it shows its parts to."""

    def __init__(self, *, remembered: int | None = 10, config: dict[str, Any] | None = None) -> None:
        made = Config(config or {})
        self.observation = Observation()
        self.letters = DeadLetters(made, Systems(made, MemorySystemFactory()), [], MetricsRegistry())
        self.choices: deque[IncomingMessageEnvelope] | None = (
            None if remembered is None else deque(maxlen=remembered)
        )
        self.watch = ChoiceWatch(self.letters, self.choices, observation=self.observation)
        self.seen: list[Any] = []

    def choose(self, envelope: IncomingMessageEnvelope) -> object:
        """Show a choice as the event loop does; true where it is held."""
        show = self.watch.observer()
        return show is not None and show(envelope)


# Choices


def test_choices_may_be_made_in_bursts_where_each_need_not_be_seen() -> None:
    job, observer = Watched(), ContainerObserver()
    assert job.watch.may_burst()
    job.observation.trace = Trace()  # filled in bulk
    assert job.watch.may_burst()
    job.observation.add(observer)
    assert not job.watch.may_burst()
    job.observation.remove(observer)
    assert job.watch.may_burst()
    job.watch.explain = job.seen.append
    assert not job.watch.may_burst()


def test_there_are_no_bursts_where_dead_letters_need_the_input() -> None:
    job = Watched(config={"task.dead.letter.stream": "mem.dead", "task.inputs": "mem.a"})
    assert not job.watch.may_burst()
    job.choose(MESSAGES[1])
    assert job.letters.input is MESSAGES[1]


def test_where_nothing_sees_choices_there_is_nothing_to_call() -> None:
    job = Watched(remembered=None)
    assert job.watch.shown() is None
    assert job.watch.observer() is None
    job.observation.add(ContainerObserver())  # it overrides nothing
    assert job.watch.shown() is None


@pytest.mark.parametrize("observed", [False, True])
def test_a_choice_is_remembered_and_traced(observed: bool) -> None:
    job = Watched(remembered=2)
    trace = job.observation.trace = Trace()
    if observed:
        job.observation.add(Choices(job.seen.append))
    assert [job.choose(envelope) for envelope in MESSAGES[:3]] in ([None] * 3, [False] * 3)
    assert job.choices is not None
    assert list(job.choices) == MESSAGES[1:3]
    assert trace.chosen == MESSAGES[:3]
    assert job.seen == (MESSAGES[:3] if observed else [])


def test_a_held_message_that_is_resumed_is_shown_once_and_traced_then() -> None:
    job = Watched()
    trace = job.observation.trace = Trace()
    job.observation.add(Choices(lambda envelope: job.seen.append(envelope) or envelope.message == 1))
    assert [job.choose(envelope) for envelope in MESSAGES[:2]] == [False, True]
    assert trace.chosen == MESSAGES[:1]
    job.watch.resumed = MESSAGES[1]
    assert not job.choose(MESSAGES[1])
    assert (job.seen, list(job.choices or ()), trace.chosen) == (MESSAGES[:2],) * 3
    assert job.watch.resumed is None


def test_a_resumed_message_is_remembered_once_though_its_observer_is_gone() -> None:
    job, holds = Watched(), Choices(lambda envelope: True)
    job.observation.add(holds)
    assert job.choose(MESSAGES[0])
    job.observation.remove(holds)
    job.watch.resumed = MESSAGES[0]
    assert not job.choose(MESSAGES[0])
    assert list(job.choices or ()) == MESSAGES[:1]


def test_a_choice_is_explained_after_it_is_remembered() -> None:
    job = Watched()
    job.watch.explain = lambda envelope: job.seen.append((envelope, list(job.choices or ())))
    job.choose(MESSAGES[0])
    assert job.seen == [(MESSAGES[0], [MESSAGES[0]])]


def test_the_messages_of_a_batch_are_shown_behind_its_first_one() -> None:
    job = Watched(remembered=3)
    job.observation.add(Choices(job.seen.append))
    explained: list[Any] = []
    job.watch.explain = explained.append
    job.choose(MESSAGES[0])
    job.watch.note_batch(MESSAGES[0], MessageBatch.of(MESSAGES))
    assert job.seen == MESSAGES
    assert list(job.choices or ()) == MESSAGES[2:]
    assert explained == [MESSAGES[0], MESSAGES[-1]]


def test_of_a_batch_that_nothing_observes_the_last_messages_are_remembered() -> None:
    job = Watched(remembered=2)
    trace = job.observation.trace = Trace()
    job.choose(MESSAGES[0])
    job.watch.note_batch(MESSAGES[0], MessageBatch.of(MESSAGES))
    assert list(job.choices or ()) == MESSAGES[3:]
    assert trace.chosen == [MESSAGES[0]] * 5


# Timed calls


def test_one_message_is_timed_each_time_the_sampler_is_armed() -> None:
    bench, timer = Bench(ignore, {"mem.a": {0: [1, 2, 3]}}), MetricsRegistry().timer("t")
    container = bench.started()
    assert container.status.multiplexer is not None
    partition, sampler = container.status.multiplexer.partitions[SSP], CallSampler(timer)
    assert not sampler.is_due
    sampler.arm()
    assert sampler.is_due
    sampler.time(partition)
    assert not sampler.is_due
    container.run("caught-up")
    assert timer.count == 1


def test_a_sampler_without_a_timer_is_never_due() -> None:
    sampler = CallSampler(None)
    sampler.arm()
    assert not sampler.is_due


# The head of all inputs


class Heads:
    """A started container, and the check of its heads. ``fed``: the streams that it sends to."""

    def __init__(self, *messages: Any) -> None:
        self.container = Bench(ignore, {"mem.a": {0: list(messages)}}).started()
        self.consumers = self.container.status.consumers
        self.fed: set[SystemStream] = set()
        assert self.container.status.multiplexer is not None
        self.check = HeadCheck(
            self.container.status.multiplexer,
            self.consumers,
            SimpleNamespace(streams=self.fed),  # type: ignore[arg-type]
        )


def test_inputs_are_caught_up_once_the_last_message_was_processed() -> None:
    heads = Heads("x")
    assert not heads.check.has_caught_up(0)
    heads.container.run("caught-up")
    assert heads.check.has_caught_up(1)


def test_inputs_are_not_caught_up_while_something_is_in_the_inbox() -> None:
    heads = Heads()
    assert heads.check.has_caught_up(0)
    heads.consumers.post(lambda: None)
    assert not heads.check.has_caught_up(0)


def test_readers_are_asked_once_for_a_run_and_again_for_the_next() -> None:
    heads = Heads()
    before = heads.consumers.refresh_epoch
    for processed in range(3):
        assert heads.check.has_caught_up(processed)
    assert heads.consumers.refresh_epoch == before + 1
    heads.check.begin()
    assert heads.check.has_caught_up(3)
    assert heads.consumers.refresh_epoch == before + 2


def test_a_job_that_feeds_its_own_input_asks_again_after_each_message() -> None:
    heads = Heads()
    heads.fed.add(SystemStream("mem", "a"))
    before = heads.consumers.refresh_epoch
    for processed in (0, 0, 1, 1, 2):
        assert heads.check.has_caught_up(processed)
    assert heads.consumers.refresh_epoch == before + 3
