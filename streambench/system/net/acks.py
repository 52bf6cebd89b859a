"""Acknowledgements to senders, once the offsets of their messages are known to be safe."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from streambench.system.net.connection import Connection

_MOST = 10_000


class _Span(Struct, gc=False):
    """Messages in a row from one connection: ``end`` is the offset behind them, ``count`` how many the
    connection had sent by then."""

    connection: Connection
    end: int
    count: int
    length: int


class Acks:
    """Remembers, for one partition, which connection sent what has been delivered and is not safe yet.

    Its memory is bounded by the number of connections: where there are very many short spans, only the last
    one of each connection is kept. A sender may then be answered later than it could be, and never too early.
    """

    def __init__(self) -> None:
        self._spans: deque[_Span] = deque()
        self._counts: dict[Connection, int] = {}
        """Delivered messages of each connection; of those that have some in ``_spans``."""
        self._most = _MOST

    def add(self, connection: Connection, end: int, length: int) -> None:
        """So many messages of a connection were delivered, the last one with the offset before ``end``."""
        spans = self._spans
        count = self._counts[connection] = self._counts.get(connection, connection.safe) + length
        if spans and spans[-1].connection is connection:
            last = spans[-1]
            last.end, last.count, last.length = end, count, last.length + length
            return
        spans.append(_Span(connection, end, count, length))
        if len(spans) > self._most:
            latest = {span.connection: span for span in spans}
            self._spans = deque(sorted(latest.values(), key=lambda span: span.end))
            self._most = max(_MOST, 2 * len(latest))

    def up_to(self, offset: int) -> dict[Connection, int]:
        """Everything up to and including ``offset`` is safe: of which connections how many messages are,
        where that is news."""
        spans = self._spans
        safe: dict[Connection, int] = {}
        while spans and spans[0].end <= offset + 1:
            span = spans.popleft()
            safe[span.connection] = span.count
            if self._counts.get(span.connection) == span.count:
                del self._counts[span.connection]
        if spans and spans[0].end - spans[0].length <= offset:
            span = spans[0]
            safe[span.connection] = span.count - (span.end - offset - 1)
        return safe
