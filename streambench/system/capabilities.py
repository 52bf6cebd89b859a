"""Abilities that only some systems have: a consumer, producer or admin with the methods of the protocol.

The container looks once, at its start, with ``isinstance``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.process_identity import ProcessIdentity
from streambench.rows import Rows
from streambench.system.api import SendColumns, Sender, SystemConsumer

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class Acknowledging(Protocol):
    """A consumer whose senders, or whose broker, learn which messages are safe."""

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        """Everything up to and including these offsets is safe. It was processed by all tasks that read it
        and is in a durable checkpoint, or it has landed in a log, durably. Its sender may forget it now, and
        only now. What was delivered and not acknowledged when the consumer stops, or dies, is the sender's or
        the broker's to send again.

        Called after commits, from another thread than the one that polls; must be quick, and may be called
        until ``stop``. An offset may come more than once."""


@runtime_checkable
class Ending(Protocol):
    """A consumer of partitions that end, as files do that are not followed."""

    def at_end(self, ssp: SystemStreamPartition) -> bool:
        """True where nothing will ever follow the messages that were returned. Asked where ``at_head`` is
        true; what was once at its end stays there."""


@runtime_checkable
class Columnar(Protocol):
    """A producer that writes messages as columns."""

    def sender_of_columns(self, stream: SystemStream) -> SendColumns:
        """The call that takes columns of encoded messages for one stream from now on, in order with what
        ``sender`` takes. Where one of the messages is too large, it raises MessageTooLargeError and takes
        none of them."""


@runtime_checkable
class Fencing(Protocol):
    """A producer that shuts out earlier writers of a partition. Used for changelogs."""

    def fence(
        self, source: str, partitions: Collection[SystemStreamPartition], generation: int, epoch: int
    ) -> None:
        """Take what ``source`` writes to these partitions only from this holder on.

        Writes with a lower generation (or, in the same generation, a lower epoch) fail with FencedError."""


@runtime_checkable
class KnowingEnds(Protocol):
    """A producer that knows where the partitions end that it alone writes."""

    def ends(self, partitions: Collection[SystemStreamPartition]) -> Mapping[SystemStreamPartition, str]:
        """The upcoming offsets of partitions that were fenced, behind what was sent and flushed here, and
        behind nothing else. For systems that cannot fence: raises StreamSystemError where another producer
        has written since. What is left out is asked of the admin."""


@runtime_checkable
class SizeLimited(Protocol):
    """A producer to streams whose limit for the size of a message a broker knows."""

    def largest_message(self, stream: SystemStream) -> int | None:
        """The limit in bytes, as the broker gave it to ``sender``; None where it did not."""


@runtime_checkable
class Transactional(Protocol):
    """A producer that can be part of a container's atomic commit, with checkpoints of the same kind
    (``CheckpointManager.atomic``).

    It holds what is sent to it. At a commit the container takes that, and the checkpoint manager writes it to
    a commit journal. A ``Journaled`` producer appends it from there, again after a crash. Where a system has
    transactions, one of these takes the place of the journal.
    """

    @property
    def atomic(self) -> str | None:
        """The kind of checkpoints that can be committed together with what is sent here."""

    def hold(self) -> None:
        """Check what is sent from now on, as without this call, but keep it back until it is taken. Called
        before ``start``."""

    def take(self) -> list[Rows]:
        """Hand over what is held, in order of sending within each partition; each partition once."""


@runtime_checkable
class Journaled(Protocol):
    """A producer that appends the records of a commit journal, each once."""

    def append_once(self, rows: Rows, producer: str, generation: int, sequence: int) -> None:
        """Append rows, unless ``producer`` has appended this (generation, sequence) or a later one to the
        partition already.

        All of them become visible together. ``flush`` makes them durable. Raises StreamSystemError."""

    def last_once(self, ssp: SystemStreamPartition, producer: str) -> tuple[int, int] | None:
        """The last (generation, sequence) that ``producer`` appended to a partition; None for none."""


class StagingFiles(Protocol):
    """The files that one attempt stages, which no reader looks at."""

    def write(self, partition: int, columns: pa.RecordBatch) -> None:
        """Stage messages for a partition, with the columns of ``SendColumns``.

        Raises MessageTooLargeError."""

    def close(self) -> list[Any]:
        """Make the files durable, and return them for the ``commit``. They can be pickled."""


class StagedWrite(Protocol):
    """A write in steps: many processes stage their part, and one appends all of it, or nothing."""

    def begin(self, owner: ProcessIdentity | None = None) -> None:
        """Make what a write needs that ends with its owner."""

    def stage(self, step: int) -> StagingFiles:
        """The files of one attempt at a part of a step."""

    def commit(self, step: int, files: Sequence[Any]) -> bool:
        """Append what these files hold, in their order; False where the step was done before."""

    def discard(self, step: int, files: Sequence[Any]) -> None:
        """Remove what these attempts staged for a step, unless it is decided that it will be appended. What
        others staged for it under the same name stays."""


@runtime_checkable
class StagedWrites(Protocol):
    """A factory of a system to whose streams many processes write in one step."""

    def staged_write(
        self, system: str, config: Config, stream: str, name: str, *, once: bool
    ) -> AbstractContextManager[StagedWrite]:
        """The write of this name to a stream. ``once``: the name is used again after a crash, to go on."""


class NamedWrite(Protocol):
    """A write that goes on under its name after a crash."""

    def commit(self, step: int, rows: Sequence[Rows]) -> bool:
        """Write rows as a step, all of them or none; False where that step, or a later one, was written
        before. Steps are numbered upwards, not necessarily one by one."""

    def close(self) -> None:
        """Close connections; may be called more than once."""


@runtime_checkable
class NamedWrites(Protocol):
    """A factory of a system whose streams can be written to step by step, each step once."""

    def get_named_write(self, system: str, config: Config, name: str) -> NamedWrite:
        """A new write under this name; what was written under it before counts. It shuts out the processes
        that had it before."""


@runtime_checkable
class ListsJobs(Protocol):
    """A factory of a system that knows which jobs keep their checkpoints in it."""

    def get_jobs(self, system: str, config: Config) -> list[str]:
        """The names of the jobs, sorted. Raises StreamSystemError."""


@runtime_checkable
class CheckpointStreams(Protocol):
    """A factory of a system that keeps checkpoints in streams of its own."""

    def holds_checkpoints(self, stream: str) -> bool:
        """True for the name of a stream in which the checkpoints of a job are kept."""


@runtime_checkable
class Compacting(Protocol):
    """An admin of streams that are compacted here."""

    def keep_from(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        """From these offsets on compaction must leave everything as it is, until it gets later ones. Used for
        changelogs: a checkpoint that is kept may want any state from there on."""


class SnapshotName(NamedTuple):
    """The name of a snapshot of state: it is that of a changelog that ends before ``offset``, at a commit
    (generation and number)."""

    offset: int
    commit: tuple[int, int]


class StateSnapshots(Protocol):
    """The snapshots of state beside one partition of a changelog: what its messages before an offset lead to.

    A process that was replaced may still write some. They hold what it had committed, so that they are as
    good as others; the committed offset alone decides which of them is used."""

    def names(self, upto: int) -> list[SnapshotName]:
        """The snapshots that hold nothing from the offset ``upto`` on, newest first, by their names alone."""

    def entries(self, name: SnapshotName, *, stamped: bool) -> int | None:
        """The number of entries of a snapshot; None where it does not lead to what the changelog holds.
        ``stamped``: see ``write``. Raises CorruptDataError where it is damaged, and OSError."""

    def is_valid(self, name: SnapshotName) -> bool:
        """False where compaction may have removed changes behind a snapshot since ``entries``."""

    def read(self, name: SnapshotName) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
        """The entries of a snapshot, as keys and values, many at a time. Raises CorruptDataError, OSError."""

    def write(
        self,
        name: SnapshotName,
        batches: Iterable[tuple[Sequence[bytes], Sequence[bytes]]],
        *,
        stamped: bool,
    ) -> int | None:
        """Write a snapshot; the number of its entries. None: nothing was written, because the changelog does
        not reach that offset, or has lost its begin.

        ``stamped``: each value begins with the time it was written. Raises UnknownStreamError where the
        stream was deleted since; and OSError."""

    def remove_older(self, name: SnapshotName) -> None:
        """Remove the snapshots before this one, but for one. Those of later commits stay: this writer may
        have been replaced. Raises OSError."""

    def remove(self, name: SnapshotName) -> None:
        """Remove a snapshot. Raises OSError."""

    def path(self, name: SnapshotName) -> Path:
        """The file of a snapshot."""


@runtime_checkable
class KeepingSnapshots(Protocol):
    """An admin of streams beside which snapshots of state can be kept, in files. Their offsets are whole
    numbers."""

    def snapshots(self, ssp: SystemStreamPartition) -> StateSnapshots | None:
        """Those of a partition of a changelog; None where it has no identity. Raises UnknownStreamError."""


@runtime_checkable
class Sized(Protocol):
    """An admin that knows how large messages are."""

    def bytes_between(self, ssp: SystemStreamPartition, first: str, end: str) -> int:
        """About how many bytes the messages from ``first`` up to, but not, ``end`` take."""


@runtime_checkable
class Checking(Protocol):
    """A factory of a system whose producers refuse some messages themselves."""

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        """A sender that sends nothing, and refuses what that of a producer refuses: it raises the same
        SerdeError or MessageTooLargeError. Replays and simulated crashes call it.

        It opens no connection and no file. ``config`` is perhaps one of another machine, without its secrets:
        read only what limits messages. ``largest``: that of ``SizeLimited``, None where it is not known.
        Raises ConfigError."""


@runtime_checkable
class Receiving(Protocol):
    """A factory of a system whose messages are only there while something receives them."""

    def get_input(
        self,
        system: str,
        config: Config,
        metrics: MetricsRegistry,
        streams: Collection[SystemStream],
        who: str,
    ) -> SystemConsumer:
        """A new consumer of a container, which receives ``streams`` as well, unless the configuration leaves
        that to another process. ``who``: the job."""
