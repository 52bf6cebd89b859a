"""Acks: what is answered to which sender, once offsets are known to be safe."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from streambench.system.net.connection import Connection

_MOST = 10_000


class _Run(Struct, gc=False):
    """Messages in a row from one connection: ``end`` is the offset behind them, ``count`` how many the
    connection had sent by then."""

    connection: Connection
    end: int
    count: int
    length: int


class Acks:
    """Remembers, for one partition, which connection sent what has been delivered and is not safe yet.

    Its memory is bounded by the number of connections: where there are very many short runs, only the last
    one of each connection is kept. A sender may then be answered later than it could be, and never too early.
    """

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self._counts: dict[Connection, int] = {}
        """Delivered messages of each connection; of those that have some in ``_runs``."""
        self._most = _MOST

    def add(self, connection: Connection, end: int, length: int) -> None:
        """So many messages of a connection were delivered, the last one with the offset before ``end``."""
        runs = self._runs
        count = self._counts[connection] = self._counts.get(connection, connection.safe) + length
        if runs and runs[-1].connection is connection:
            last = runs[-1]
            last.end, last.count, last.length = end, count, last.length + length
            return
        runs.append(_Run(connection, end, count, length))
        if len(runs) > self._most:
            latest = {run.connection: run for run in runs}
            self._runs = deque(sorted(latest.values(), key=lambda run: run.end))
            self._most = max(_MOST, 2 * len(latest))

    def up_to(self, offset: int) -> dict[Connection, int]:
        """Everything up to and including ``offset`` is safe: of which connections how many messages are,
        where that is news."""
        runs = self._runs
        safe: dict[Connection, int] = {}
        while runs and runs[0].end <= offset + 1:
            run = runs.popleft()
            safe[run.connection] = run.count
            if self._counts.get(run.connection) == run.count:
                del self._counts[run.connection]
        if runs and runs[0].end - runs[0].length <= offset:
            run = runs[0]
            safe[run.connection] = run.count - (run.end - offset - 1)
        return safe
