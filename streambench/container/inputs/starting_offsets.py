"""Starting offsets: from checkpoints, the configuration and the bounds of the partitions.

The order of precedence is that of Samza's OffsetManager, with its silent cases made loud:

1. what the task sets in ``init``;
2. a start point that was asked for (``streambench checkpoints --rewind``);
3. the checkpoint, unless ``samza.reset.offset``;
4. ``samza.offset.default`` of the stream, then of its system;
5. upcoming.

A partition that a stream has got since the job was last started is read from its beginning. What arrived
there before the job noticed was meant for it. A partition that another task had before (another grouper makes
other tasks) goes on where that one has left it. But a task that has had it itself, before that, goes on where
its own state stands. Where another partition has replaced one under its name, the old checkpoint is treated
like an offset out of range. It is reported, and the default applies.

An input that a run leaves out loses its position with the next commit, as in Samza; that is reported, too.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Set
from contextlib import closing
from datetime import UTC, datetime
from functools import cached_property

from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.stored_checkpoints import partition_holders
from streambench.config import Config
from streambench.container.inputs.partition_identity import PartitionIdentities, replaced
from streambench.counts import first_named
from streambench.errors import OffsetError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OLDEST, PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.planning.plan import Metadata, broadcast_partitions
from streambench.system import reader
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

_MOST_TASKS = 3


class StartingOffsets:
    """Decides where tasks begin. ``metadata``: what the inputs held when the container started. ``last``: the
    last checkpoints of all tasks of the job. ``known``: the partitions that had one before this start of the
    job, of which other containers may have recorded some of their own by now."""

    def __init__(
        self,
        config: Config,
        systems: Systems,
        metadata: Metadata,
        last: Mapping[str, Checkpoint],
        known: Set[SystemStreamPartition],
    ) -> None:
        self._config = config
        self._systems = systems
        self._metadata = metadata
        self._identities = PartitionIdentities(systems)
        self._warned: set[str] = set()
        self._known = known
        self._last = last
        self._shared = set(broadcast_partitions(config))

    def resolve(
        self, task: str, ssp: SystemStreamPartition, checkpoint: Checkpoint | None
    ) -> tuple[str, str | None]:
        """The starting offset of a task in a partition, and the last offset it had processed there (None:
        none, or it starts over)."""
        admin = self._systems.admin(ssp.system)
        here = self._metadata[ssp.system_stream][ssp.partition]
        if not admin.replayable:
            return here.upcoming or self._beginning(here), None
        if checkpoint is None or not (ssp in checkpoint.offsets or ssp in checkpoint.starts):
            checkpoint = self._inherited(task, ssp) or checkpoint
        elif checkpoint.generation:
            self._report_holder(task, ssp)
        if checkpoint is None or (checkpoint.start_point(ssp) is None and self._is_reset(ssp)):
            return self._first(ssp, here), None
        processed = checkpoint.offsets.get(ssp)
        try:
            if not self._identities.is_same(checkpoint, ssp):
                return self._fall_back(ssp, here, replaced(self._config, task, ssp, checkpoint)), None
            position = admin.after(processed) if processed is not None else checkpoint.starts.get(ssp)
            if position == OLDEST:
                return self._beginning(here), None
            is_outside = position is not None and self._is_outside(ssp, position, here)
        except OffsetError as error:
            raise OffsetError(f"{ssp}: the checkpoint of {task} cannot be used: {error}") from None
        if position is None:
            return self._first(ssp, here), None
        if is_outside:
            holds = f"{here.oldest or here.upcoming} to {here.upcoming}"
            why = f"{ssp}: the checkpoint of {task} goes on at {position}, but the partition holds {holds}"
            return self._fall_back(ssp, here, why), None
        return position, processed

    def validate(self, task: str, ssp: SystemStreamPartition, offset: str) -> str:
        """The starting offset of a task that set this offset in its ``init``. Raises OffsetError for an
        offset that the partition does not have: were it recorded, later starts would fail as well."""
        admin = self._systems.admin(ssp.system)
        if not admin.replayable:
            return offset  # which is looked at when it is known what all tasks want
        here = self._metadata[ssp.system_stream][ssp.partition]
        if offset == OLDEST:
            return self._beginning(here)
        try:
            if admin.compare(offset, offset) is None:
                admin.after(offset)  # raises for what is no offset at all
            if self._is_outside(ssp, offset, here):
                # Perhaps messages have come, or gone, since.
                here = self._systems.inputs([ssp.system_stream])[ssp.system_stream][ssp.partition]
        except OffsetError as error:
            raise OffsetError(
                f"{ssp}: {task} cannot begin at '{offset}', which it asks for in init(): {error}"
            ) from None
        if self._is_outside(ssp, offset, here):
            raise OffsetError(
                f"{ssp}: {task} cannot begin at '{offset}', which it asks for in init(): the partition holds "
                f"{here.oldest or here.upcoming} to {here.upcoming} (the next)"
            )
        return offset

    def report_left_out(self, job: str, tasks: Iterable[str], inputs: Container[SystemStream]) -> None:
        """Warn of streams of which these tasks have positions, and which are no inputs any more.

        Their next checkpoints are without these positions, and a default of ``upcoming`` would skip messages
        should the input come back."""
        left_out: dict[SystemStream, list[str]] = defaultdict(list)
        for task in tasks:
            checkpoint = self._last.get(task)
            streams = set() if checkpoint is None else {ssp.system_stream for ssp in checkpoint.partitions}
            for stream in streams:
                if stream not in inputs:
                    left_out[stream].append(task)
        for stream in sorted(left_out):
            log.warning(
                "%s: %s was an input of earlier runs, and is none now; the next commit of %s drops its "
                "position. Should it come back, reading begins at samza.offset.default; earlier commits have "
                "the position: %s",
                job,
                stream,
                first_named(left_out[stream], _MOST_TASKS),
                self._config.command("checkpoints --history"),
            )

    def _report_holder(self, task: str, ssp: SystemStreamPartition) -> None:
        """Warn where another task has had a partition since this one left it."""
        holder = self._holder(ssp)
        if holder not in (None, task) and not self._is_reset(ssp):
            log.warning(
                "%s continues %s behind its own last message, because its state ends there; messages that %s "
                "has processed since are processed again",
                task,
                ssp,
                holder,
            )

    def _inherited(self, task: str, ssp: SystemStreamPartition) -> Checkpoint | None:
        """The checkpoint of the task that had a partition before it came to this one, as by another
        grouper."""
        former = self._holder(ssp)
        if former is None or self._is_reset(ssp):
            return None
        log.warning(
            "%s continues %s where %s stopped, without the state of %s", task, ssp, former, former
        )
        return self._last[former]

    def _holder(self, ssp: SystemStreamPartition) -> str | None:
        """The task with the newest checkpoint of a partition that only one task reads."""
        return None if ssp in self._shared else self._holders.get(str(ssp))

    @cached_property
    def _holders(self) -> Mapping[str, str]:
        return partition_holders(self._last)

    @cached_property
    def _streams(self) -> Set[SystemStream]:
        return {ssp.system_stream for ssp in self._known}

    def _fall_back(self, ssp: SystemStreamPartition, here: PartitionMetadata, why: str) -> str:
        """The starting offset where a checkpoint cannot be used."""
        default = self._default(ssp, here)
        log.warning("%s; reading begins at %s (samza.offset.default=%s)", why, default, self._setting(ssp))
        return default

    def _is_outside(self, ssp: SystemStreamPartition, position: str, here: PartitionMetadata) -> bool:
        admin = self._systems.admin(ssp.system)
        compare = admin.compare
        oldest = here.oldest if here.oldest is not None else here.upcoming
        # Where identities grow, nothing is ever removed before a position: one before the oldest message's
        # offset is within that message.
        before = oldest is not None and not admin.identity_grows and (compare(position, oldest) or 0) < 0
        after = here.upcoming is not None and (compare(position, here.upcoming) or 0) > 0
        return before or after

    def _is_reset(self, ssp: SystemStreamPartition) -> bool:
        return (
            self._config.required(f"systems.{ssp.system}.streams.{ssp.stream}.samza.reset.offset").lower()
            == "true"
        )

    def _setting(self, ssp: SystemStreamPartition) -> str:
        key = self._config.stream_key(ssp.system, ssp.stream, "samza.offset.default")
        return (
            self._config.required(key)
            if self._config.get(key, "").strip()
            else self._systems.admin(ssp.system).offset_default
        )

    def _first(self, ssp: SystemStreamPartition, here: PartitionMetadata) -> str:
        """The starting offset where there is no checkpoint."""
        default = self._default(ssp, here)
        if ssp in self._known or ssp.system_stream not in self._streams or self._is_reset(ssp):
            return default
        oldest = here.oldest or default
        if oldest != default:
            log.warning(
                "%s is new since the job was last started; it is read from its beginning, %s", ssp, oldest
            )
        return oldest

    def _default(self, ssp: SystemStreamPartition, here: PartitionMetadata) -> str:
        setting = self._setting(ssp)
        wanted: Mapping[str, str | None] = {
            "oldest": here.oldest,
            "newest": here.newest,
            "upcoming": here.upcoming,
        }
        found = wanted[setting] or here.upcoming
        if found is None and here.oldest is not None:
            stream = str(ssp.system_stream)
            if setting != "oldest" and stream not in self._warned:
                self._warned.add(stream)
                log.warning(
                    "%s does not know where it ends; it is read from its beginning (samza.offset.default=%s)",
                    stream,
                    setting,
                )
        return found or self._beginning(here)

    @staticmethod
    def _beginning(here: PartitionMetadata) -> str:
        return here.oldest or here.upcoming or "0"


def earlier(config: Config, systems: Systems, ssp: SystemStreamPartition, one: str, other: str) -> str:
    """The first of two starting offsets in a partition that tasks share. Raises OffsetError where they cannot
    be compared."""
    order = systems.admin(ssp.system).compare(one, other)
    if order is None:
        rewind = config.command(f"checkpoints --rewind {ssp}@OFFSET")
        raise OffsetError(
            f"{ssp}: its tasks begin at {one} and at {other}, and this kind of system does not know which "
            f"comes first; have them go on at the same place: {rewind}"
        )
    return one if order <= 0 else other


def start_point(systems: Systems, ssp: SystemStreamPartition, here: PartitionMetadata, where: str) -> str:
    """The offset that a start point means now.

    A start point is ``oldest``, ``upcoming``, an offset, or ``timestamp:`` with milliseconds since 1970 or a
    date, for the first message that is not older. ``here``: what the partition holds. Raises OffsetError."""
    oldest = here.oldest or here.upcoming or "0"
    if not systems.admin(ssp.system).replayable:
        raise OffsetError(
            f"{ssp} cannot be rewound: this kind of system does not store messages. "
            "Land it in a log "
            f"(systems.{ssp.system}.samza.landing)"
        )
    if where == "oldest":
        return oldest
    if where == "upcoming":
        return here.upcoming or oldest
    if where.startswith("timestamp:"):
        return (
            _at_time(systems, ssp, here, _milliseconds(ssp, where.removeprefix("timestamp:")))
            or here.upcoming
            or oldest
        )
    compare = systems.admin(ssp.system).compare
    early, late = compare(where, oldest), 0 if here.upcoming is None else compare(where, here.upcoming)
    if early is None or late is None:
        raise OffsetError(
            f"{ssp}: '{where}' is no offset of it; it holds {oldest} to {here.upcoming} (the next). Write "
            "such an offset, oldest, "
            "upcoming, or timestamp: with a date or milliseconds since 1970"
        )
    if early < 0 or late > 0:
        raise OffsetError(
            f"{ssp}: {where} is outside of what it holds: {oldest} to {here.upcoming} (the next)"
        )
    return where


def _milliseconds(ssp: SystemStreamPartition, text: str) -> int:
    if text.isdecimal():
        return int(text)
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise OffsetError(
            f"{ssp}: '{text}' is no time: give milliseconds since 1970, or a date such as 2026-03-01T12:00Z"
        ) from None
    return round((date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp() * 1000)


def _at_time(
    systems: Systems, ssp: SystemStreamPartition, here: PartitionMetadata, time_ms: int
) -> str | None:
    """The first message of that time or later, of those that are there; messages without a timestamp are
    passed over. Raises OffsetError where none has one."""
    if here.oldest is None:
        return None
    count = timed = 0
    consumer = systems.consumer(ssp.system, MetricsRegistry())
    with closing(reader.follow(consumer, {ssp: here.oldest})) as lists:
        for arrived in lists:
            for envelope in arrived:
                count += 1
                if envelope.timestamp is not None:
                    timed += 1
                    if envelope.timestamp >= time_ms:
                        return envelope.offset
            if consumer.at_head(ssp):
                break
    if count and not timed:
        raise OffsetError(
            f"{ssp}: none of its {count:,} messages has a timestamp, so a time says nothing of it. Give an "
            "offset, oldest or upcoming"
        )
    return None
