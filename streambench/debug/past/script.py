"""The script of a replica: everything that it begins with and repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count

from msgspec import Struct
from msgspec.structs import asdict

from streambench.container.trace import TraceEvent
from streambench.debug.history.attributes import TaskMemory
from streambench.debug.history.batches import Batches
from streambench.debug.history.block import Block
from streambench.debug.history.history import History
from streambench.debug.history.writes import Values
from streambench.model import SystemStream, SystemStreamPartition


class Waypoint(Struct, kw_only=True):
    """A position of a replica, and what it repeats from there on.

    ``numbers``: per partition, the messages chosen before. ``offsets``: per task of the replica its offsets,
    and where it begins later than its partition. ``first_callback``: the callbacks without a message
    before."""

    position: int
    now_ms: int
    events: Sequence[TraceEvent]
    ticks: Sequence[tuple[int, int, int]]
    first_callback: int
    numbers: Sequence[int]
    offsets: Mapping[str, Sequence[tuple[str | None, str | None]]]
    keyless: Mapping[SystemStream, int]

    def __post_init__(self) -> None:
        self.keyless = dict(self.keyless)

    def script(
        self, history: History, block: Block, values: Values, memory: Mapping[str, TaskMemory] | None = None
    ) -> Script:
        """The recorded run from here on, with these values of stores."""
        first, *later = history.since(block)
        ssps, position = history.inputs.ssps, self.position
        indexes = chain(first.order[position - first.start :], *(each.order for each in later))
        return Script(
            **asdict(self),
            order=zip(count(position + 1), (ssps[index] for index in indexes), strict=False),
            batches=Batches(chain.from_iterable(each.batches for each in (first, *later))),
            values=values,
            memory=memory,
        )


class Script(Waypoint, kw_only=True):
    """The begin of a replica, and the recorded run from there on.

    ``order``: the positions of the messages, each with its partition; ``batches``: those that a task got at
    once. ``memory``: of tasks; None where they are new, as after a start. ``values``: of stores, where they
    differ from those of the container. ``keeps_all_stores``: False where stores without a changelog are
    empty, as after a start."""

    order: Iterator[tuple[int, SystemStreamPartition]]
    batches: Batches
    values: Values
    memory: Mapping[str, TaskMemory] | None = None
    keeps_all_stores: bool = True


def recorded_script(history: History, block: Block) -> Script:
    """The recorded run, from the beginning of a block on."""
    blocks = history.since(block)
    begin = Waypoint(
        position=block.start,
        now_ms=block.now_ms,
        events=[event for each in blocks for event in each.events if event.kind != "commit"],
        ticks=clock_ticks(blocks),
        first_callback=block.first_callback,
        numbers=block.numbers,
        offsets=block.offsets,
        keyless=block.keyless,
    )
    return begin.script(history, block, history.values_before(block), block.memory)


def clock_ticks(blocks: Sequence[Block]) -> list[tuple[int, int, int]]:
    """The readings of the clock, each with the position and the number of callbacks without a message from
    which on it is valid."""
    return [
        tick for each in blocks for tick in ((each.start, each.now_ms, each.first_callback), *each.ticks)
    ]
