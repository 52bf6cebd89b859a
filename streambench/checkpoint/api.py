"""Checkpoints, and the contract of their managers.

**Generations.** Every start of a job opens a new generation. Opening it closes the older ones: from that
moment no container of an older start can commit any more, however many there were. The assignment of tasks to
containers is stored with it.

**Holders.** Within a generation each container has one holder at a time, the process that *claimed* it last.
A restarted process or a re-executed Spark task claims its container again. The former holder, should it still
be alive, is fenced.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from streambench.errors import CheckpointError
from streambench.model import SystemStream, SystemStreamPartition
from streambench.rows import Rows

if TYPE_CHECKING:
    from streambench.checkpoint.pending_writes import PendingWritesApplier


class Checkpoint(Struct, frozen=True):
    """The progress of one task.

    ``offsets``: of each input partition the last message that was processed. ``starts``: where the task began
    to read the partitions of which it has processed nothing yet (the first offset to be read).
    ``changelogs``: per store, the changelog's upcoming offset when this checkpoint was made: a restore stops
    there. ``generation`` and ``sequence`` say which commit it belongs to, ``time_ms`` when that was; they are
    the writer's, a manager keeps them as they are. Generation 0 is a rewind, whose ``starts`` were asked for.
    ``identities``: which partitions they were (``SystemAdmin.identity``), of those of which that is known.
    ``window_ms``: when the task's last ``window()`` was, in milliseconds since 1970. Before the first one,
    when its interval began; None where it has none. ``formats``: per store, the names of the bytes of its
    keys and values; older checkpoints lack it. ``absent``: the stores that the configuration has not named
    since, with the last commit that knew them (``3.17``). Their changelogs and formats stay in here.
    ``rewound``: the generation in which a rewind has put it in place again; 0 where the task committed it.
    """

    offsets: Mapping[SystemStreamPartition, str]
    starts: Mapping[SystemStreamPartition, str] = {}
    changelogs: Mapping[str, str] = {}
    generation: int = 0
    sequence: int = 0
    time_ms: int = 0
    identities: Mapping[SystemStreamPartition, str] = {}
    window_ms: int | None = None
    formats: Mapping[str, Sequence[str]] = {}
    absent: Mapping[str, str] = {}
    rewound: int = 0

    @property
    def since(self) -> tuple[int, int]:
        """The commit from which on it is its task's last one: generation and sequence.

        A rewind comes before all commits of its generation. Zeros: that is not known."""
        return (self.rewound, 0) if self.rewound else (self.generation, self.sequence)

    @property
    def partitions(self) -> set[SystemStreamPartition]:
        """The input partitions that it knows."""
        return {*self.offsets, *self.starts}

    def start_point(self, ssp: SystemStreamPartition) -> str | None:
        """The start point of a rewind in a partition, whatever the configuration says; None where there is
        none. The task's first commit removes it."""
        return self.starts.get(ssp) if self.generation == 0 and ssp not in self.offsets else None


class Generation(Struct, frozen=True):
    """One start of a job: its number, and which container has which tasks.

    ``places``: of every task that the job has ever had, its partition in the changelogs. It is given once and
    never to another task, so that state stays with its task whatever becomes of the inputs. ``known``: the
    input partitions that had a checkpoint when it was opened; what its own containers have recorded since
    does not count. ``backfill``: the backfill that has these checkpoints, and its job (``fixed of job-1``).
    Empty for the job of that name, and in what older versions have written.
    """

    number: int
    assignment: Mapping[int, Sequence[str]]
    places: Mapping[str, int] = {}
    known: Set[SystemStreamPartition] = frozenset()
    backfill: str = ""


class Inherited(Struct, frozen=True):
    """The past of a container that was claimed. ``last``: the last checkpoints of its own tasks, and those of
    all other tasks at least as they were when the generation was opened. ``known``: as in ``Generation``."""

    last: Mapping[str, Checkpoint]
    known: Set[SystemStreamPartition]


Work = Literal["deploy", "run"]


class LeaseHolder(Struct, frozen=True):
    """A process that holds a lease of a job, under a unique name, to deploy or to run it. ``container``: the
    number of the one that it runs; None where that is not one alone."""

    name: str
    work: Work
    process: int
    host: str
    since_ms: int
    container: int | None = None

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since_ms / 1000))
        return f"process {self.process} on {self.host} since {since}"


Checkpoints = Callable[[Mapping[SystemStreamPartition, str]], Mapping[str, Checkpoint]]
"""Makes the checkpoints of a commit, by task, from the offsets behind the last messages that it appends to
changelogs."""


class CheckpointManager(ABC):
    """Remembers the checkpoints of one job, durably.

    A job's planner calls ``open_generation``; each container then calls ``claim`` once, ``inherited`` and,
    with every commit, ``write``. Reading needs no claim. Raises CheckpointError where what is stored cannot
    be read; nothing is ever guessed in its place.

    ``atomic``: the kind of systems (``SystemProducer.atomic``) to which messages can be written in one atomic
    step with checkpoints, by ``commit``. None: none, so that the guarantee is at-least-once.

    ``lease_s``: the seconds for which the lease of a process outlives it; twice as many where it was killed
    while it took another one.

    ``directory``: the job's own directory, where the checkpoints are files in one: what else the job keeps
    lies there by default. ``deployments``: the stream for the history of deployments, where the checkpoints
    are in another kind of system that stores messages.
    """

    atomic: str | None = None
    lease_s: float = 0.0
    directory: Path | None = None
    deployments: SystemStream | None = None

    @abstractmethod
    def open_generation(
        self,
        assignment: Mapping[int, Sequence[str]],
        *,
        now_ms: int,
        places: Mapping[str, int] | None = None,
        backfill: str = "",
    ) -> Generation:
        """Open the next generation and close all older ones; they carry their last checkpoints and their
        places over to it.

        ``places``: those of the assigned tasks; new ones are added to what the job has. Raises FencedError,
        and stops nothing, where they contradict it: another start has given places to tasks since these were
        planned. ``backfill``: as in ``Generation``; it is given only to backfills. Raises ConfigError, and
        stops nothing, where the checkpoints are those of another one, or of one and none is given."""

    @abstractmethod
    def last_generation(self) -> Generation | None:
        """The generation that was opened last, None before the first."""

    @abstractmethod
    def claim(self, generation: int, container: int, *, now_ms: int) -> int:
        """Become the holder of a container, and fence the one before. Returns the epoch: a number that grows
        with each claim.

        Raises FencedError where the generation is no longer the last one."""

    def inherited(self) -> Inherited:
        """The past of the claimed container. A manager overrides it where that takes less than to read the
        last checkpoints of all others."""
        last = self.last_generation()
        return Inherited(self.read_last(), last.known if last is not None else frozenset())

    @abstractmethod
    def read_last(self) -> Mapping[str, Checkpoint]:
        """The last checkpoint of every task of the job that has one, whichever container or generation wrote
        it."""

    def read_committed(self) -> Mapping[str, Checkpoint]:
        """As ``read_last``, without the commits that are being made now. A manager overrides it where
        ``read_last`` waits for them: the process that makes one may have died."""
        return self.read_last()

    @abstractmethod
    def write(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Write checkpoints of tasks of the claimed container, all of them in one durable, atomic step.

        Tasks that are not named keep theirs. Raises FencedError where another holder or a newer generation
        has taken over; nothing is written then. After an error of any other kind the claim is lost, since
        it is unknown what has become of the write.
        """

    def commit(
        self, checkpoints: Checkpoints, rows: Sequence[Rows], applier: PendingWritesApplier
    ) -> Mapping[str, Checkpoint]:
        """As ``write``, and in the same atomic step write rows to their partitions, through ``applier``: all
        of it happens, once, or nothing. Where the process dies when that is decided but not done, the
        next to claim the container, or to open a generation, does it.

        ``checkpoints`` makes them, as soon as it is known where the rows that have a ``base`` end; returns
        those that were written."""
        raise CheckpointError(f"{type(self).__name__} cannot commit anything but checkpoints")

    def check(self) -> None:  # noqa: B027 - most learn of it when they write
        """Raise FencedError where it is known already that another process has taken over. Costs next to
        nothing."""

    def is_replaced(self) -> bool:
        """True where another process seems to have taken over; ``check`` confirms it. May be called on any
        thread. A manager overrides it where that takes no network."""
        return False

    def take_lease(self, work: Work, container: int | None = None) -> str:
        """Have other processes see, from now on until ``close``, that this one works for the job. Returns the
        name of the lease; empty where there are none, as where claims are locks, which show the same.
        ``container``: the only one that it runs."""
        return ""

    @property
    def is_lease_refused(self) -> bool:
        """True where it is known that others cannot see the lease of this process."""
        return False

    def lease_holders(self) -> list[LeaseHolder]:
        """The processes that hold leases of the job, this one included, the first ones in front. One that was
        killed is among them until its lease has ended (``lease_s``). Raises StreamSystemError."""
        return []

    @abstractmethod
    def history(self) -> dict[str, list[Checkpoint]]:
        """Per task, the checkpoints that are still kept, oldest first, equal neighbours once; the last one is
        that of ``read_last``."""

    @abstractmethod
    def rewind(self, checkpoints: Mapping[str, Checkpoint], *, now_ms: int) -> Generation:
        """Make these the last checkpoints of their tasks, in a generation of its own (which stops what still
        runs).

        The assignment stays as it was. Raises CheckpointError, and stops nothing, where the job has no such
        task."""

    def finish_pending(self) -> None:  # noqa: B027
        """Return when all readers can read what was committed here, or after a while. Called before
        ``close``, if there is time."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; may be called more than once. Commits nothing, and does
        not wait."""
