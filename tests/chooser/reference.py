"""The rules of choosing in their plainest form: one list of what waits, looked through from the start for
every choice.

Written from the rules alone, without the layers of ``streambench.chooser``: the two must agree.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streambench.model import SystemStream, SystemStreamPartition


@dataclass
class Rules:
    """What is asked for. ``newest``: per partition of a bootstrap stream the newest offset at the start, None
    for an empty partition."""

    priorities: dict[SystemStream, int]
    batch_size: int
    newest: dict[SystemStreamPartition, int | None]


@dataclass
class ReferenceChooser:
    """Says which partition is chosen; whoever asks keeps the messages."""

    rules: Rules
    starts: dict[SystemStreamPartition, int]
    waiting: list[SystemStreamPartition] = field(default_factory=list)
    done: set[SystemStreamPartition] = field(default_factory=set)
    batch: tuple[SystemStreamPartition, int] | None = None

    def lagging(self) -> set[SystemStreamPartition]:
        """The partitions that have to catch up and whose turn it is: those of the highest rank."""
        lagging = {
            ssp
            for ssp, newest in self.rules.newest.items()
            if ssp in self.starts
            and newest is not None
            and self.starts[ssp] <= newest
            and ssp not in self.done
        }
        rank = {ssp: self.rules.priorities.get(ssp.system_stream, 1_000_000) for ssp in lagging}
        return {ssp for ssp in lagging if rank[ssp] == max(rank.values())}

    def choose(self, offsets: dict[SystemStreamPartition, int]) -> SystemStreamPartition | None:
        """The choice among those that wait; ``offsets``: of the message that each of them has waiting."""
        lagging = self.lagging()
        allowed = [ssp for ssp in self.waiting if not lagging or ssp in lagging]
        if not allowed:
            self.batch = None
            return None
        if self.batch and self.batch[0] in allowed and self.batch[1] < self.rules.batch_size:
            self.batch = self.batch[0], self.batch[1] + 1
        else:
            self.batch = max(allowed, key=lambda ssp: self.rules.priorities.get(ssp.system_stream, -1)), 1
        chosen = self.batch[0]
        self.waiting.remove(chosen)
        if chosen in lagging and offsets[chosen] >= (self.rules.newest[chosen] or 0):
            self.done.add(chosen)
        return chosen
