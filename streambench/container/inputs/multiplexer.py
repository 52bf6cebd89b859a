"""Input: the multiplexer keeps the chooser supplied with one candidate of each partition.

Every input partition has a buffer. Messages wait in it by the chunk as they were read, then, decoded, one by
one; the first of them is inside the chooser. Work is done per chunk wherever possible: a message that goes
through costs one ``popleft`` here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec.structs import replace

from streambench.chooser.api import MessageChooser
from streambench.chooser.explanation import Candidate, Explanation, unexplained
from streambench.chunk import Chunk, Messages, Undecodable, Unreadable
from streambench.container.inputs.consumers import Consumers, FetchedRecords
from streambench.container.inputs.partition_buffer import BufferState, PartitionBuffer
from streambench.container.inputs.raw_buffer import RawBuffer
from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.serde.api import Serde
from streambench.serde.streams import decoded

_REFILLS_PER_LOOK = 16
# Looked up in the enum, each would cost three times as much.
_READING, _AT_HEAD, _AT_END, _FINISHED = BufferState


class Multiplexer:
    """Feeds a chooser from the partitions, one candidate per partition at a time."""

    def __init__(
        self,
        consumers: Consumers,
        chooser: MessageChooser,
        partitions: Mapping[SystemStreamPartition, PartitionBuffer],
        *,
        compare: Callable[[str, str, str], int | None],
    ) -> None:
        """``compare(system, a, b)`` compares two offsets of a system."""
        self.chooser = chooser
        self.partitions = dict(sorted(partitions.items()))
        self._consumers = consumers
        self._compare = compare
        self._starved: dict[PartitionBuffer, None] = {}
        self._may_end: set[PartitionBuffer] = set()
        self._refill_count = 0
        self._is_started = False
        self.ended: list[PartitionBuffer] = []
        """The partitions that have ended since this was read last: everything of them was processed,
        and nothing will follow."""

    def start(self) -> None:
        """Register the partitions with the chooser and offer what is there, in the order of system, stream
        and partition."""
        for ssp, partition in self.partitions.items():
            partition.is_polled = self._consumers.is_polled(ssp.system)
            partition.at_head = self._consumers.head_check(ssp.system) if partition.is_polled else None
            if partition.is_polled and partition.waiting is None:
                partition.fetch_limit = min(partition.fetch_limit, self._consumers.at_once(ssp.system))
            if partition.is_bounded or (partition.end is None and self._consumers.may_end(ssp.system)):
                self._may_end.add(partition)
            self.chooser.register(ssp, partition.start)
            if (
                partition.end is not None
                and (self._compare(ssp.system, partition.start, partition.end) or 0) >= 0
            ):
                partition.state = _FINISHED
        self._is_started = True
        self.chooser.start()
        for partition in self.partitions.values():
            self._starved[partition] = None
        self.poll_starved()

    def stop(self) -> None:
        """Stop the chooser, once, if it was started."""
        if self._is_started:
            self._is_started = False
            self.chooser.stop()

    @property
    def starved(self) -> int:
        """The number of partitions without a candidate. Where there is one, ``poll_starved`` is due from time
        to time."""
        return len(self._starved)

    def refill(self, partition: PartitionBuffer) -> None:
        """Give the chooser the next message of a partition whose candidate has been chosen; where there is
        none the partition runs dry."""
        if partition.buffer:
            self.chooser.update(partition.buffer.popleft())
            return
        self._starved[partition] = None
        if not partition.is_polled:
            self._take_fetched(partition)
        elif partition.state is not _FINISHED:
            self._refill_count += 1
            # A look polls every partition that ran dry: as many refills as there are of these pay for it.
            if self._refill_count >= max(_REFILLS_PER_LOOK, len(self._starved)):
                self._refill_count = 0
                self.poll_starved()
            else:
                self._poll(partition.ssp.system, [partition])

    def _take_fetched(self, partition: PartitionBuffer) -> None:
        """Decode what a reader thread brought for a partition, until the chooser has its next message."""
        # The thread gets its credit back once per buffer that was emptied, not with each message.
        if partition.unreturned_credit:
            self._consumers.consumed(partition.ssp, partition.unreturned_credit)
            partition.unreturned_credit = 0
        while partition.chunks and partition.state is not _FINISHED:
            self._decode(partition, partition.chunks.popleft())
            if self._refill_chooser(partition):
                return

    def fill(self, partition: PartitionBuffer, count: int) -> None:
        """Have ``count`` messages wait in a partition that takes batches, the one inside the chooser
        included, or all that there are."""
        while partition.chunks and partition.state is not _FINISHED and len(partition.buffer) + 1 < count:
            self._decode(partition, partition.chunks.popleft())
        missing = min(count, partition.fetch_limit) - len(partition.buffer) - 1
        if missing > 0 and partition.is_polled and partition.state is not _FINISHED:
            for chunk in self._consumers.poll(partition.ssp.system, {partition.ssp: missing}):
                self._decode(partition, chunk)

    def return_credit(self, partition: PartitionBuffer) -> None:
        """Return credit to the reader of a partition that takes batches, for the messages that no longer
        wait. So it reads on while a batch is processed."""
        taken = partition.unreturned_credit - len(partition.buffer)
        if taken > 0:
            self._consumers.consumed(partition.ssp, taken)
            partition.unreturned_credit -= taken

    def poll_starved(self) -> bool:
        """Poll for the partitions that ran dry; whether the chooser got a candidate by it."""
        # One poll for all partitions of a system: most consumers fetch for all of them at once.
        before = len(self._starved)
        systems: dict[str, list[PartitionBuffer]] = {}
        for partition in self._starved:
            if partition.is_polled and partition.state is not _FINISHED:
                systems.setdefault(partition.ssp.system, []).append(partition)
        for system, partitions in systems.items():
            self._poll(system, partitions)
        self._note_heads()
        return len(self._starved) < before

    def _note_heads(self) -> None:
        """Report partitions at their head to the chooser, and note which of them have ended."""
        for partition in self._starved:
            if self.is_at_head(partition):
                self.chooser.at_head(partition.ssp)
                if partition in self._may_end and self._is_at_end(partition):
                    self._may_end.remove(partition)
                    self.ended.append(partition)

    def accept(self, fetched: FetchedRecords) -> None:
        """Take what a reader thread brought."""
        for chunk in fetched.chunks:
            partition = self.partitions[chunk.ssp]
            if partition.state is _FINISHED:
                continue  # and its reader gets no credit
            partition.chunks.append(chunk)
            if partition in self._starved:
                self.refill(partition)
        at_head, at_end = fetched.at_head, fetched.at_end
        for ssp, partition in self.partitions.items():
            if ssp.system == fetched.system and partition.state is not _FINISHED:
                partition.state = _AT_END if ssp in at_end else _AT_HEAD if ssp in at_head else _READING

    def caught_up(self) -> bool:
        """True where nothing waits, and every partition was at its head at its last poll."""
        return len(self._starved) == len(self.partitions) and all(
            self.is_at_head(partition) for partition in self._starved
        )

    def systems(self) -> set[str]:
        """Those that are still read."""
        return {ssp.system for ssp, partition in self.partitions.items() if partition.state is not _FINISHED}

    def reads_any(self, streams: Collection[SystemStream]) -> bool:
        """True where any of these is an input."""
        return any(ssp.system_stream in streams for ssp in self.partitions)

    def counts(self, partition: PartitionBuffer, chosen: PartitionBuffer | None) -> tuple[int, int]:
        """The numbers of a partition's messages that are in memory and not chosen yet, and that were chosen.
        ``chosen``: the partition whose candidate was chosen last and whose next message has not been offered
        yet."""
        ready = len(partition.buffer) + (partition not in self._starved and partition is not chosen)
        return ready + sum(map(len, partition.chunks)), partition.delivered - ready

    def explain(self, chosen: IncomingMessageEnvelope | None, without: PartitionBuffer | None) -> Explanation:
        """Why the chooser chose as it did (None: how things stand with it), with all that wait in it, whether
        it named them or not.

        ``without``: the partition whose candidate was chosen last and whose next message has not been offered
        yet."""
        try:
            own = self.chooser.explain(chosen)
        except Exception as error:
            own = unexplained(self.chooser, error, chosen)
        known = {each.ssp for each in own.waiting}
        waiting = (*own.waiting, *(Candidate(ssp) for ssp in self.candidates(without) if ssp not in known))
        return replace(
            own,
            waiting=waiting,
            held={each.ssp: own.held[each.ssp] for each in waiting if each.ssp in own.held},
        )

    def candidates(self, chosen: PartitionBuffer | None) -> list[SystemStreamPartition]:
        """The partitions that have a message inside the chooser. ``chosen``: as for ``counts``."""
        return [
            ssp
            for ssp, partition in self.partitions.items()
            if partition not in self._starved and partition is not chosen
        ]

    def is_at_head(self, partition: PartitionBuffer) -> bool:
        """True where a partition was at its head at its last poll."""
        if partition.state is _FINISHED:
            return True
        if partition.at_head is not None:
            return partition.at_head(partition.ssp)
        return partition.state is not _READING and not partition.chunks

    def _is_at_end(self, partition: PartitionBuffer) -> bool:
        """Of a partition that is dry and at its head."""
        if partition.is_bounded:
            return True
        if partition.is_polled:
            return self._consumers.at_end(partition.ssp)
        return partition.state is _AT_END

    def _poll(self, system: str, partitions: Collection[PartitionBuffer]) -> None:
        for chunk in self._consumers.poll(
            system, {partition.ssp: partition.fetch_limit for partition in partitions}
        ):
            self._decode(self.partitions[chunk.ssp], chunk)
        for partition in partitions:
            self._refill_chooser(partition)

    def _refill_chooser(self, partition: PartitionBuffer) -> bool:
        if not partition.buffer:
            return False
        del self._starved[partition]
        self.chooser.update(partition.buffer.popleft())
        return True

    def _decode(self, partition: PartitionBuffer, chunk: Messages) -> None:
        """Append the messages of a chunk to the partition's buffer, decoded, up to the partition's end."""
        if not partition.is_polled:
            partition.unreturned_credit += len(chunk)
        if partition.waiting is not None:
            self._buffer_raw(partition, partition.waiting, chunk)
            return
        assert isinstance(chunk, Chunk)
        if partition.end is not None:
            chunk = self._until_end(partition, chunk)
        partition.delivered += len(chunk)
        if partition.kept is not None:
            partition.keep(chunk)
        if type(chunk) is Unreadable:
            self._decode_one_by_one(partition, chunk)
            return
        try:
            keys = _values(partition.key_serde, chunk.keys)
            messages = _values(partition.message_serde, chunk.messages)
        except Exception:
            self._decode_one_by_one(partition, chunk)
        else:
            partition.decoded.extend(chunk.envelopes_of(keys, messages))  # ``decoded`` is ``buffer`` here

    def _buffer_raw(self, partition: PartitionBuffer, waiting: RawBuffer, messages: Messages) -> None:
        """Add messages to those that wait for a task that takes batches, up to the partition's end."""
        count = len(messages)
        if partition.end is not None and count and not self._before(partition, messages.offset(count - 1)):
            partition.state = _FINISHED
            # Offsets are compared by the system, a call each: few of a long batch are looked at.
            count = bisect_left(
                range(count), True, key=lambda at: not self._before(partition, messages.offset(at))
            )
            messages = messages.part(0, count)
        waiting.add(messages)
        partition.delivered += count

    def _decode_one_by_one(self, partition: PartitionBuffer, chunk: Chunk) -> None:
        """The messages of a chunk that holds one that cannot be decoded."""
        for raw in chunk.envelopes():
            found = decoded(raw, partition.key_serde, partition.message_serde)
            if isinstance(found, SerdeError):
                found = Undecodable(
                    raw.ssp, raw.offset, raw.key, raw.message, raw.timestamp, raw.headers, error=found
                )
                partition.undecodable += 1
            partition.decoded.append(found)
        partition.find_sole_subscription()

    def _until_end(self, partition: PartitionBuffer, chunk: Chunk) -> Chunk:
        assert partition.end is not None
        if not chunk.offsets or self._before(partition, chunk.offsets[-1]):
            return chunk
        partition.state = _FINISHED
        count = next(at for at, offset in enumerate(chunk.offsets) if not self._before(partition, offset))
        return chunk.part(0, count)

    def _before(self, partition: PartitionBuffer, offset: str) -> bool:
        order = self._compare(partition.ssp.system, offset, partition.end or "")
        return order is not None and order < 0


def _values(serde: Serde | None, values: list[Any]) -> list[Any]:
    if serde is None:
        return values
    decode = serde.from_bytes
    if None in values:
        return [None if value is None else decode(value) for value in values]
    return list(map(decode, values))
