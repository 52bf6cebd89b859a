"""Messages per second, worked out from successive snapshots."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streambench.model import SystemStreamPartition

if TYPE_CHECKING:
    from streambench.container.observe.snapshot import ContainerSnapshot

    Snapshots = ContainerSnapshot | Sequence[ContainerSnapshot]


class Rates:
    """Messages per second, per partition and in all, over the last ``over_ms`` milliseconds of the snapshots
    it is shown.

    Times are those of the snapshots. A rate is None until two of them are some time apart.
    """

    def __init__(self, over_ms: int = 3000) -> None:
        self._over_ms = over_ms
        self._seen: dict[int, deque[tuple[int, int, Mapping[SystemStreamPartition, int]]]] = {}

    def add(self, snapshots: Snapshots) -> None:
        """Take a newer snapshot (of each container) into account. Of containers that are not there any more
        nothing is known."""
        present = all_of(snapshots)
        self._seen = {each.container: self._seen.get(each.container, deque()) for each in present}
        for snapshot in present:
            seen = self._seen[snapshot.container]
            partitions = {each.ssp: each.processed for each in snapshot.partitions}
            if seen and (snapshot.processed < seen[-1][1] or not _continues(partitions, seen[-1][2])):
                seen.clear()
            if seen and seen[-1][0] >= snapshot.time_ms:
                seen.pop()
            seen.append((snapshot.time_ms, snapshot.processed, partitions))
            while len(seen) > 2 and seen[1][0] <= snapshot.time_ms - self._over_ms:
                seen.popleft()

    def of(self, ssp: SystemStreamPartition, container: int = 0) -> float | None:
        """Messages per second of a partition."""
        seen = self._seen.get(container)
        if not seen:
            return None
        (start, _, before), (end, _, now) = seen[0], seen[-1]
        return _rate(now.get(ssp, 0) - before.get(ssp, 0), end - start)

    def total(self) -> float | None:
        """Messages per second of all containers together."""
        known = [
            _rate(seen[-1][1] - seen[0][1], seen[-1][0] - seen[0][0]) for seen in self._seen.values() if seen
        ]
        rates = [rate for rate in known if rate is not None]
        return sum(rates) if rates else None


def all_of(snapshots: Snapshots) -> Sequence[ContainerSnapshot]:
    """The snapshots as a sequence, whether one was given or several."""
    return snapshots if isinstance(snapshots, Sequence) else [snapshots]


def _continues(now: Mapping[SystemStreamPartition, int], before: Mapping[SystemStreamPartition, int]) -> bool:
    """Return True where the same partitions are counted on, not others as after a new start."""
    return now.keys() == before.keys() and all(count >= before[ssp] for ssp, count in now.items())


def _rate(messages: int, milliseconds: int) -> float | None:
    return messages * 1000 / milliseconds if milliseconds > 0 else None
