"""The time that the messages of each partition take, as the rounds of a job have measured it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from msgspec import Struct

from streambench.model import SystemStreamPartition
from streambench.spark.history import Run

# The code and its messages change: older rounds say little.
_ROUNDS = 10
# In less, some looks at a loop hit a partition by chance.
_LEAST_S = 1.0
_PRIOR_S = 0.2


class MeasuredTime(Struct, frozen=True):
    """The seconds that a message takes: of all partitions together, and ``by_partition``. ``rounds``: how
    many have measured them."""

    rounds: int
    seconds: float
    by_partition: Mapping[str, float]

    def of(self, ssp: SystemStreamPartition, messages: int) -> float:
        """The seconds that so many messages of a partition will take; one that was never read has the
        average."""
        return messages * self.by_partition.get(str(ssp), self.seconds)


def measured_time(rounds: Iterable[Run]) -> MeasuredTime | None:
    """The time by the last rounds that have measured it, given oldest first; None where all of them together
    are too short."""
    messages: Counter[str] = Counter()
    seconds: defaultdict[str, float] = defaultdict(float)
    used = 0
    for run in reversed(list(rounds)):
        # A later attempt counts messages of the ones before it, and a failed one has some that do not count.
        first = [each for each in run.containers if not each.attempt and each.error is None]
        measured = [each for each in first if each.partition_seconds]
        for container in measured:
            messages.update(container.partition_messages)
            for ssp, each_s in container.partition_seconds.items():
                seconds[ssp] += each_s
        used += bool(measured)
        if used == _ROUNDS:
            break
    total, count = sum(seconds.values()), sum(messages.values())
    if total < _LEAST_S or not count:
        return None
    average = total / count
    # Of a partition with few messages the average says more than a look or two.
    by_partition = {
        ssp: (seconds[ssp] + _PRIOR_S) / (number + _PRIOR_S / average) for ssp, number in messages.items()
    }
    return MeasuredTime(used, average, by_partition)
