"""The receiver: moves messages of a system that keeps nothing into the log, and then acknowledges them."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from typing import Any

from streambench import imports as load
from streambench.config import Config
from streambench.errors import (
    ConfigError,
    LockLostError,
    MessageTooLargeError,
    StreamSystemError,
    described,
    do_all,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import SystemConsumer, SystemFactory, SystemProducer
from streambench.system.capabilities import Acknowledging
from streambench.system.landing.admin import LandedAdmin
from streambench.system.landing.dead_letters import DeadLetters
from streambench.system.landing.stream_locks import StreamLocks
from streambench.system.log.factory import LogSystemFactory, log_of
from streambench.system.partitioner import partition_for

log = logging.getLogger(__name__)

_SOURCE = "landing"
_WAIT_MS = 100
_REST_S = 0.02
_RETRY_S = 0.5
# Of one poll, so many messages and about so many bytes are taken; nothing more is in memory here.
_MOST = 2_000
_BUDGET = 8 << 20
_FIRST = 100
_END_OF_TIME = 1 << 63  # milliseconds, as the log has them

Holders = Mapping[str, str]
"""Per stream, the process that receives it; empty: this one."""


class Receiver:
    """Lands those streams of one system that no other receiver lands; takes over where one ends.

    ``run`` does everything on the calling thread: the consumer never learns that this is no container.
    Messages go to the log as they come: key, message, headers and timestamp (that of their arrival where they
    have none). Each goes to the partition in which it was delivered. Where another number of partitions is
    configured, the key decides; messages without one go round robin. One flush covers all that was polled,
    and only what is on the disk is acknowledged. So nothing that was acknowledged is ever lost. What was on
    its way when a receiver died is sent again, and may then be there twice. Of what the log does not take,
    ``DeadLetters`` has care.

    ``heads``: the streams of which all is in the log that their source had when it was last asked, or that
    are received elsewhere. None as long as that is not known.
    """

    def __init__(
        self,
        system: str,
        streams: Collection[SystemStream],
        target: str,
        source: SystemFactory,
        config: Config,
        metrics: MetricsRegistry,
        *,
        who: str = "",
    ) -> None:
        """``target``: the log system; ``source``: what makes the parts of ``system`` itself."""
        self.system = system
        self.streams = sorted(streams)
        self.target = target
        self.heads: frozenset[str] | None = None
        self.landed = metrics.counter(f"{system}-messages-landed", "landing")
        self._dead_letters = DeadLetters(system, target, config, metrics)
        self.refused = self._dead_letters.refused
        self._flushes = metrics.counter(f"{system}-flushes", "landing")
        self._metrics = metrics
        self._source = source
        self._config = config
        self._linger_s = config.integer(f"systems.{system}.samza.landing.linger.ms") / 1000
        named = f"{who}, " if who else ""
        who = f"{named}process {os.getpid()} on {socket.gethostname()}"
        target_log = log_of(target, config)
        lease_s = target_log.settings.lock_lease_ms / 1000
        self._locks = StreamLocks(
            target_log.path, system, [each.stream for each in self.streams], who, lease_s=lease_s
        )
        self._on_holders: Callable[[Holders], object] | None = None
        self._reported: Holders = {}

    def on_holders(self, report: Callable[[Holders], object]) -> None:
        """Call ``report`` whenever a stream changes its receiver."""
        self._on_holders = report

    def run(self, stop: threading.Event) -> None:
        """Receive until ``stop`` is set. Raises StreamSystemError or ConfigError where that fails; everything
        is released then."""
        try:
            while not stop.is_set():
                self._locks.take()
                self._report_holders()
                if self._locks.held:
                    self._receive_or_stand_by(stop)
                else:
                    stop.wait(_RETRY_S)
        except ConfigError:
            raise
        except Exception as error:
            names = ", ".join(map(str, self.streams))
            raise StreamSystemError(
                f"{names} cannot be landed in {self.target}: {described(error)}"
            ) from error
        finally:
            self._locks.release()

    def _receive_or_stand_by(self, stop: threading.Event) -> None:
        """Land what is held. What another receiver took over, since this one was frozen, is left to it."""
        try:
            self._receive(stop)
        except LockLostError as error:
            log.warning("%s", error)
            self._locks.release()
        except ConfigError as error:
            if not self._locks.taken_over:
                raise
            # A frozen process still has its port.
            log.warning(
                "%s was taken over from a frozen receiver, but not all of what that one has: end it. %s",
                self.system,
                error,
            )
            stop.wait(_RETRY_S)
        except Exception as error:
            # A source may fail because another receiver acknowledged the same messages meanwhile.
            try:
                self._locks.check()
            except LockLostError as lost:
                log.warning("%s (%s)", lost, described(error))
                self._locks.release()
            else:
                raise

    def _report_holders(self) -> None:
        held = self._locks.held
        elsewhere = frozenset(each.stream for each in self.streams if each.stream not in held)
        self.heads = elsewhere
        holders = {
            str(each): "" if each.stream in held else self._locks.holder(each.stream) for each in self.streams
        }
        if holders != self._reported:
            self._reported = holders
            for stream, holder in holders.items():
                log.info("%s is received %s", stream, f"by {holder}" if holder else "here")
            if self._on_holders is not None:
                self._on_holders(holders)

    def _receive(self, stop: threading.Event) -> None:
        """Land what is held until ``stop`` is set, or more could be had."""
        streams = [each for each in self.streams if each.stream in self._locks.held]
        elsewhere = frozenset(each.stream for each in self.streams if each not in streams)
        partitions = self._prepared(streams)
        consumer = load.call_promised(self._source.get_consumer, 2, self.system, self._config, self._metrics)
        producer = LogSystemFactory().get_producer(self.target, self._config, self._metrics)
        try:
            producer.start()
            landing = _Landing(
                consumer, producer, partitions, self._dead_letters, self._linger_s, self._locks
            )
            landing.start()
            self._locks.taken_over = False
            look_at = time.monotonic() + _RETRY_S
            while not stop.is_set():
                refused = self._dead_letters.refused.count
                self._locks.check()
                count = landing.land()
                if count:
                    self.landed.inc(count - (self._dead_letters.refused.count - refused))
                    self._flushes.inc()
                behind = {ssp.stream for ssp in partitions if not consumer.at_head(ssp)}
                self.heads = elsewhere.union(each.stream for each in streams if each.stream not in behind)
                if not count and consumer.polled_by_loop:
                    stop.wait(_REST_S)
                if elsewhere and time.monotonic() >= look_at:
                    if self._locks.take():
                        return
                    look_at = time.monotonic() + _RETRY_S
        finally:
            self.heads = None
            do_all([consumer.stop, producer.stop, self._dead_letters.stop])

    def _prepared(self, streams: Iterable[SystemStream]) -> dict[SystemStreamPartition, _Partition]:
        """Have streams of the log to land in; the partitions of their sources."""
        found = {}
        source = load.call_promised(self._source.get_admin, 2, self.system, self._config, self._metrics)
        with closing(
            LandedAdmin(self.system, log_of(self.target, self._config), source, self._config)
        ) as admin:
            for stream in streams:
                sent, landed = admin.prepare(stream)
                target = SystemStream(self.target, f"{self.system}.{stream.stream}")
                key = f"systems.{self.system}.streams.{stream.stream}.partitions"
                is_configured = bool(self._config.get(key, "").strip())
                partitioner = _Partitioner(landed) if is_configured and landed != sent else None
                for number in range(sent):
                    ssp = SystemStreamPartition(stream.system, stream.stream, number)
                    found[ssp] = _Partition(ssp, target, partitioner)
        return found


class _Partitioner:
    """Chooses the partitions of messages, by their keys, or round robin."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._next_keyless = 0

    def partition(self, key: Any) -> int:
        if isinstance(key, bytes):
            return partition_for(key, self._partitions)
        self._next_keyless = (self._next_keyless + 1) % self._partitions
        return self._next_keyless


class _Partition:
    """The way of one partition into the log."""

    def __init__(
        self, ssp: SystemStreamPartition, target: SystemStream, partitioner: _Partitioner | None
    ) -> None:
        self.ssp = ssp
        self.target = target
        self._partitioner = partitioner

    def outgoing(self, envelope: IncomingMessageEnvelope) -> OutgoingMessageEnvelope:
        """The message as it is landed. A timestamp that the log has no room for becomes a header."""
        partition = (
            self.ssp.partition if self._partitioner is None else self._partitioner.partition(envelope.key)
        )
        timestamp, headers = envelope.timestamp, envelope.headers
        if timestamp is not None and not -_END_OF_TIME <= timestamp < _END_OF_TIME:
            timestamp, headers = None, {**(headers or {}), "timestamp": str(timestamp).encode()}
        return OutgoingMessageEnvelope(
            self.target, envelope.message, envelope.key, None, partition, timestamp, headers
        )


class _Landing:
    """One consumer and one producer at work."""

    def __init__(
        self,
        consumer: SystemConsumer,
        producer: SystemProducer,
        partitions: Mapping[SystemStreamPartition, _Partition],
        dead_letters: DeadLetters,
        linger_s: float,
        locks: StreamLocks,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._partitions = partitions
        self._dead_letters = dead_letters
        self._linger_s = linger_s
        self._locks = locks
        self._wait_ms = 0 if consumer.polled_by_loop else _WAIT_MS
        self._at_most = _FIRST

    def start(self) -> None:
        self._producer.register(_SOURCE)
        for ssp in self._partitions:
            self._consumer.register(ssp, "0")
        self._consumer.start()

    def land(self) -> int:
        """Wait a little for messages, and land them, or put elsewhere those that cannot be; how many. They
        are acknowledged when this returns."""
        wanted = dict.fromkeys(self._partitions, self._at_most)
        polled = self._consumer.poll(wanted, self._wait_ms)
        if not polled:
            return 0
        until = time.monotonic() + self._linger_s
        count = size = 0
        last: dict[SystemStreamPartition, str] = {}
        while polled:
            for envelope in polled:
                try:
                    self._producer.send(_SOURCE, self._partitions[envelope.ssp].outgoing(envelope))
                except MessageTooLargeError as error:
                    self._dead_letters.put(envelope, error)
                last[envelope.ssp] = envelope.offset
                size += _size(envelope)
            count += len(polled)
            left = until - time.monotonic()
            if count >= _MOST or size >= _BUDGET or left <= 0:
                break
            polled = self._consumer.poll(wanted, min(self._wait_ms, round(left * 1000)))
        self._locks.check()
        self._producer.flush(_SOURCE)
        self._dead_letters.flush()
        self._locks.check()
        if isinstance(self._consumer, Acknowledging):
            self._consumer.acknowledge(last)
        # Messages of this size: no more of them at once than memory is meant for.
        self._at_most = max(1, min(_MOST, _BUDGET // max(1, size // count)) // len(self._partitions))
        return count


def _size(envelope: IncomingMessageEnvelope) -> int:
    return (len(envelope.message) if isinstance(envelope.message, bytes) else 0) + (
        len(envelope.key) if isinstance(envelope.key, bytes) else 0
    )
