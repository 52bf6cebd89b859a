"""The records of the checkpoint journal: their content, encoding and decoding."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from streambench.checkpoint import validation as rules
from streambench.checkpoint.api import Generation
from streambench.checkpoint.record_log import DamagedRecordError, Record
from streambench.checkpoint.stored_checkpoints import StoredPartitions


class Start(Struct, kw_only=True):
    """A generation as it is written. ``checkpoints``: the base. ``journal``: a random name, the same in all
    generations of a job. ``rewound``: it was opened by a rewind. ``backfill``: as in ``Generation``.
    Old ones do not have these."""

    number: int
    job: str
    host: str
    process: int
    time_ms: int
    assignment: dict[str, list[str]]
    checkpoints: dict[str, Raw]
    places: dict[str, int] = {}
    journal: str = ""
    rewound: bool = False
    backfill: str = ""

    def producer(self, container: int) -> str:
        """The name under which the commits of a container are written to streams. No two journals have the
        same one. Where one was deleted, the numbers of the next begin again, and must not be taken for those
        already written."""
        return f"{self.job}/{self.journal}/c{container}"

    def plain(self) -> Generation:
        """The generation as the contract has it."""
        known = StoredPartitions(self.checkpoints)
        return Generation(self.number, self.containers(), self.places, known, self.backfill)

    def containers(self) -> dict[int, tuple[str, ...]]:
        """The tasks of each container."""
        return {
            container: tuple(self.assignment[str(container)])
            for container in sorted(map(int, self.assignment))
        }


class Entry(Struct, kw_only=True):
    """A record of a container as it is written: ``holder``, on ``host``, did it; ``epoch`` is the number of
    the holder's ``open``.

    ``witness``: the last commit up to here (else the first record), which is pruned before any that may
    follow this one.
    """

    number: int
    kind: Literal["open", "commit", "closed"]
    generation: int
    container: int
    holder: str
    epoch: int
    witness: int
    host: str
    process: int
    time_ms: int
    checkpoints: dict[str, Raw]

    def who(self) -> str:
        """The process that wrote the record, for the end of a sentence."""
        return f" ({self.host}, process {self.process}, at {rules.moment(self.time_ms)})"


T = TypeVar("T", Start, Entry)


def decoded(record: Record, kind: type[T]) -> T:
    """The content of a record. Raises DamagedRecordError where it cannot be read, or belongs to another
    place."""
    try:
        read = msgspec.json.decode(record.body(), type=kind)
    except msgspec.MsgspecError as error:
        raise DamagedRecordError(record.path, f"is damaged: {error}") from None
    if read.number != record.number:
        raise DamagedRecordError(
            record.path, f"is in the wrong place: it is the record with the number {read.number}"
        )
    return read
