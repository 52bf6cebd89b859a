"""Nothing to read: the hint for those who wait for a job whose inputs are empty, or read to their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from streambench.config import Config
from streambench.counts import counted
from streambench.debug.view.rates import all_of
from streambench.model import SystemStream

if TYPE_CHECKING:
    from streambench.container.observe.snapshot import ContainerSnapshot, PartitionSnapshot
    from streambench.debug.view.rates import Snapshots

_AFTER_S = 2.0
_MOST_STREAMS = 3
_RECEIVED = "has received nothing"
_BEGINS_AT_END = "is read only from where its end was at the first start"


def nothing_to_read(snapshots: Snapshots, config: Config) -> Mapping[SystemStream, str]:
    """Per input stream, why there is nothing to read of it; empty where there is something, or that is not
    known yet. ``config``: that of the job, which says what is sent to an address, not to a stream."""
    every = all_of(snapshots)
    partitions = [each for snapshot in every for each in snapshot.partitions]
    if not partitions or not all(_has_read_all(each) for each in every):
        return {}
    streams: dict[SystemStream, list[PartitionSnapshot]] = {}
    for each in partitions:
        streams.setdefault(each.ssp.system_stream, []).append(each)
    return {stream: _why(stream, of_stream, config) for stream, of_stream in streams.items()}


def begun_at_their_ends(snapshots: Snapshots, config: Config) -> Mapping[SystemStream, str]:
    """The input streams with messages of which none was read, as no setting says where to begin; and why."""
    streams: dict[SystemStream, list[PartitionSnapshot]] = {}
    for snapshot in all_of(snapshots):
        for each in snapshot.partitions:
            streams.setdefault(each.ssp.system_stream, []).append(each)
    return {
        stream: why
        for stream, of_stream in streams.items()
        if not config.get(config.stream_key(stream.system, stream.stream, "samza.offset.default"))
        and (why := _why(stream, of_stream, config)).startswith(_BEGINS_AT_END)
    }


def described_waits(why: Mapping[SystemStream, str], send: Callable[[SystemStream], str]) -> str:
    """Describe each stream, and how to send to the first one that can be sent to (``send``: the command for
    it)."""
    shown = [f"{stream} {what}" for stream, what in list(why.items())[:_MOST_STREAMS]]
    more = [f"{len(why) - _MOST_STREAMS} more are like that"] if len(why) > _MOST_STREAMS else []
    sent_to = sendable(why)
    remedy = f"; to send to it: {send(sent_to[0])}" if sent_to else ", at the address that it listens on"
    return f"{'; '.join([*shown, *more])}{remedy}"


def sendable(why: Mapping[SystemStream, str]) -> list[SystemStream]:
    """Those of the streams that are sent to by their names; the others are sent to at an address."""
    return [stream for stream, what in why.items() if not what.startswith(_RECEIVED)]


class WaitingHint:
    """The hint of one run, once, when two seconds have brought no message and there is none to read.

    ``wanted``: the number of messages that the run waits for. Without one a job that has done something may
    well wait."""

    def __init__(
        self,
        config: Config,
        send: Callable[[SystemStream], str],
        wanted: int | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._send = send
        self._wanted = wanted
        self._now = now
        self._processed = -1
        self._since = 0.0
        self._is_announced = False

    def of(self, snapshots: Sequence[ContainerSnapshot]) -> str:
        """The hint after a newer snapshot of the job; empty where there is none to give."""
        processed = sum(each.processed for each in snapshots)
        why = (
            {}
            if self._is_announced or (processed and self._wanted is None)
            else nothing_to_read(snapshots, self._config)
        )
        if not why or processed != self._processed:
            self._processed, self._since = processed, self._now()
            return ""
        if self._now() - self._since < _AFTER_S:
            return ""
        self._is_announced = True
        waits = (
            f"{processed:,} of {counted(self._wanted, 'message')} so far; "
            if self._wanted is not None and processed
            else ""
        )
        return f"{waits}nothing to read: {described_waits(why, self._send)}"


def _has_read_all(snapshot: ContainerSnapshot) -> bool:
    return snapshot.state in ("running", "paused") and snapshot.restoring is None and snapshot.is_caught_up


def _why(stream: SystemStream, partitions: Sequence[PartitionSnapshot], config: Config) -> str:
    from streambench.system.systems import abilities_of

    if all(each.upcoming is None for each in partitions) or abilities_of(config, stream.system).listens:
        return f"{_RECEIVED} {'more' if any(each.processed for each in partitions) else 'yet'}"
    if all(each.oldest is None or each.oldest == each.upcoming for each in partitions):
        return "is empty"
    if all(each.checkpointed is None and not each.processed for each in partitions):
        key = f"systems.{stream.system}.samza.offset.default"
        if config.text(config.stream_key(stream.system, stream.stream, "samza.offset.default")) == "oldest":
            # Rewound to there: the default is not why.
            return f"is at its end: nothing is there from {partitions[0].ssp}@{partitions[0].position} on"
        earlier = f"({key}=oldest, and a rewind to oldest, reads what was there)"
        return f"{_BEGINS_AT_END} {earlier}"
    return "has been read to its end"
