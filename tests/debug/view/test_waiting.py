"""The hint for those who wait for a job that has nothing to read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from streambench.config import Config
from streambench.container.observe.snapshot import ContainerSnapshot, PartitionSnapshot
from streambench.debug.view.waiting import WaitingHint, nothing_to_read
from streambench.model import SystemStream, SystemStreamPartition


def partition(
    name: str,
    oldest: str | None,
    position: str,
    upcoming: str | None,
    *,
    checkpointed: str | None = None,
    processed: int = 0,
) -> PartitionSnapshot:
    ssp = SystemStreamPartition.parse(name)
    lag = None if upcoming is None else int(upcoming) - int(position)
    return PartitionSnapshot(
        ssp, (), oldest, position, None, upcoming, lag, checkpointed, 0, processed, "empty", at_head=not lag
    )


def snapshot(*partitions: PartitionSnapshot, state: str = "running") -> ContainerSnapshot:
    return ContainerSnapshot(
        "job", 0, state, "", 0, sum(each.processed for each in partitions), partitions, (), {}, {}
    )


CONFIG = Config({"systems.log.samza.factory": "log", "systems.hook.samza.factory": "webhook"})
EMPTY = partition("log.in.0", None, "0", "0")
READ = partition("log.in.1", "0", "9", "9", checkpointed="8")
BEHIND = partition("log.in.2", "0", "9", "9")
WEBHOOK = partition("hook.orders.0", None, "0", None)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def send(stream: SystemStream) -> str:
    return f"send {stream}"


def test_an_end_that_was_rewound_to_is_not_that_of_the_first_start() -> None:
    oldest = Config({**CONFIG, "systems.log.samza.offset.default": "oldest"})
    stream = SystemStream("log", "in")
    assert nothing_to_read(snapshot(BEHIND), oldest) == {
        stream: "is at its end: nothing is there from log.in.2@9 on"
    }


@pytest.mark.parametrize(
    ("partitions", "said"),
    [
        ([EMPTY], "log.in is empty; to send to it: send log.in"),
        ([EMPTY, READ], "log.in has been read to its end; to send to it: send log.in"),
        ([BEHIND], "systems.log.samza.offset.default=oldest"),
        ([WEBHOOK], "hook.orders has received nothing yet, at the address that it listens on"),
        (
            [partition("hook.landed.0", None, "0", "0")],
            "hook.landed has received nothing yet, at the address that it listens on",
        ),
        (
            [WEBHOOK, EMPTY],
            "hook.orders has received nothing yet; log.in is empty; to send to it: send log.in",
        ),
        (
            [partition(f"log.s{n}.0", None, "0", "0") for n in range(5)],
            "log.s2 is empty; 2 more are like that; to send to it: send log.s0",
        ),
    ],
)
def test_each_empty_input_is_named_with_its_reason_and_the_remedy(
    partitions: list[PartitionSnapshot], said: str
) -> None:
    clock = Clock()
    hint = WaitingHint(CONFIG, send, now=clock)
    assert hint.of([snapshot(*partitions)]) == ""
    clock.now = 1.9
    assert hint.of([snapshot(*partitions)]) == ""
    clock.now = 2.0
    assert said in hint.of([snapshot(*partitions)])
    clock.now = 60.0
    assert hint.of([snapshot(*partitions)]) == ""


def test_where_there_is_something_to_read_nothing_is_said() -> None:
    waiting = partition("log.in.0", "0", "3", "9")
    assert nothing_to_read(snapshot(waiting, READ), CONFIG) == {}
    assert nothing_to_read(snapshot(), CONFIG) == {}
    assert nothing_to_read(snapshot(EMPTY, state="restarting"), CONFIG) == {}
    assert nothing_to_read([snapshot(EMPTY), snapshot(waiting)], CONFIG) == {}
    assert nothing_to_read(snapshot(replace(WEBHOOK, at_head=False)), CONFIG) == {}


@pytest.mark.parametrize(("wanted", "said"), [(5, "3 of 5 messages so far; nothing to read: "), (None, "")])
def test_after_some_messages_only_those_who_wait_for_more_are_told(wanted: int | None, said: str) -> None:
    clock = Clock()
    hint = WaitingHint(CONFIG, send, wanted, now=clock)
    done = snapshot(replace(READ, processed=3))
    assert hint.of([snapshot(READ)]) == hint.of([done]) == ""
    clock.now = 2.0
    told = hint.of([done])
    assert told.startswith(said) and bool(told) == bool(said)


def test_two_seconds_begin_again_with_each_message() -> None:
    clock = Clock()
    hint = WaitingHint(CONFIG, send, 9, now=clock)
    for number in range(4):
        clock.now = 1.5 * number
        assert hint.of([snapshot(replace(READ, processed=number))]) == ""
