"""The records of the checkpoint journal: their content, encoding and decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from streambench.checkpoint import validation as rules
from streambench.checkpoint.api import Checkpoint, Generation
from streambench.checkpoint.record_log import DamagedRecordError, Record
from streambench.errors import CheckpointError, ConfigError
from streambench.model import SystemStreamPartition

encode = msgspec.json.Encoder(order="deterministic").encode


class StoredCheckpoint(Struct, omit_defaults=True):
    """A checkpoint as it is written: partitions as text. Old ones have neither ``identities`` nor what
    follows them."""

    offsets: dict[str, str]
    starts: dict[str, str]
    changelogs: dict[str, str]
    generation: int
    sequence: int
    time_ms: int
    identities: dict[str, str] = {}
    window_ms: int | None = None
    formats: dict[str, list[str]] = {}
    absent: dict[str, str] = {}


class Start(Struct, kw_only=True):
    """A generation as it is written. ``checkpoints``: the base. ``journal``: a random name, the same in all
    generations of a job. ``rewound``: it was opened by a rewind. Old ones do not have it."""

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

    def producer(self, container: int) -> str:
        """The name under which the commits of a container are written to streams. Never the same for two
        journals: where one was deleted, the numbers of the next begin again, and must not be taken for those
        that were written already."""
        return f"{self.job}/{self.journal}/c{container}"

    def plain(self) -> Generation:
        """As the contract has it."""
        known = {ssp for raw in self.checkpoints.values() for ssp in partitions_of(raw)}
        return Generation(self.number, self.containers(), self.places, frozenset(known))

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
        """For the end of a sentence."""
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


def encode_checkpoint(checkpoint: Checkpoint) -> Raw:
    """A checkpoint as it is written."""
    return Raw(
        encode(
            StoredCheckpoint(
                {str(ssp): offset for ssp, offset in checkpoint.offsets.items()},
                {str(ssp): offset for ssp, offset in checkpoint.starts.items()},
                dict(checkpoint.changelogs),
                checkpoint.generation,
                checkpoint.sequence,
                checkpoint.time_ms,
                {str(ssp): identity for ssp, identity in checkpoint.identities.items()},
                window_ms=checkpoint.window_ms,
                formats={store: list(formats) for store, formats in checkpoint.formats.items()},
                absent=dict(checkpoint.absent),
            )
        )
    )


def partitions_of(raw: Raw) -> set[SystemStreamPartition]:
    """The partitions that a checkpoint names; none where it cannot be read, which ``decode_checkpoint``
    reports."""
    try:
        stored = msgspec.json.decode(raw, type=StoredCheckpoint)
        return {SystemStreamPartition.parse(ssp) for ssp in (*stored.offsets, *stored.starts)}
    except (msgspec.MsgspecError, ConfigError):
        return set()


def decode_checkpoint(raw: Raw, path: Path) -> Checkpoint:
    """A checkpoint from the record at ``path``. Raises CheckpointError."""
    try:
        stored = msgspec.json.decode(raw, type=StoredCheckpoint)
        return Checkpoint(
            {SystemStreamPartition.parse(ssp): offset for ssp, offset in stored.offsets.items()},
            {SystemStreamPartition.parse(ssp): offset for ssp, offset in stored.starts.items()},
            stored.changelogs,
            stored.generation,
            stored.sequence,
            stored.time_ms,
            {SystemStreamPartition.parse(ssp): identity for ssp, identity in stored.identities.items()},
            window_ms=stored.window_ms,
            formats={store: tuple(formats) for store, formats in stored.formats.items()},
            absent=stored.absent,
        )
    except (msgspec.MsgspecError, ConfigError) as error:
        raise CheckpointError(
            f"{path}: a checkpoint in it (or in what follows it) cannot be read: {error}"
        ) from error
