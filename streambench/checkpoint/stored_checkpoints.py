"""Checkpoints as they are stored, encoded and decoded; of many, one is decoded when it is asked for.

A container of thousands needs few of them. To find these takes the names of partitions alone, which are
compared as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from streambench.checkpoint.api import Checkpoint
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
    rewound: int = 0


class _Positions(Struct):
    """The part of a stored checkpoint that says which partitions it names, and how new it is."""

    offsets: dict[str, Raw]
    starts: dict[str, Raw]
    generation: int
    sequence: int


_decode = msgspec.json.Decoder(_Positions).decode


class StoredCheckpoints(Mapping[str, Checkpoint]):
    """The last checkpoints of tasks. ``where`` is for errors, which one that cannot be read raises when it is
    asked for."""

    def __init__(self, raw: Mapping[str, Raw], where: Path) -> None:
        self._raw = raw
        self._where = where
        self._decoded: dict[str, Checkpoint] = {}

    def __getitem__(self, task: str) -> Checkpoint:
        found = self._decoded.get(task)
        if found is None:
            found = self._decoded[task] = decode_checkpoint(self._raw[task], self._where)
        return found

    def __contains__(self, task: object) -> bool:
        return task in self._raw

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    @cached_property
    def holders(self) -> Mapping[str, str]:
        """Per partition, as text, the task with the newest checkpoint that names it."""
        entries = []
        for task, raw in self._raw.items():
            try:
                entries.append((task, _decode(raw)))
            except msgspec.MsgspecError:
                decode_checkpoint(raw, self._where)  # raises with the place
        entries.sort(key=lambda entry: (entry[1].generation, entry[1].sequence))
        return {name: task for task, positions in entries for name in (*positions.offsets, *positions.starts)}


class StoredPartitions(Set[SystemStreamPartition]):
    """The partitions that stored checkpoints name; none of one that cannot be read."""

    def __init__(self, raw: Mapping[str, Raw]) -> None:
        self._raw = raw

    @cached_property
    def _names(self) -> frozenset[str]:
        names: set[str] = set()
        for raw in self._raw.values():
            try:
                positions = _decode(raw)
            except msgspec.MsgspecError:
                continue
            names.update(positions.offsets, positions.starts)
        return frozenset(names)

    def __contains__(self, ssp: object) -> bool:
        return str(ssp) in self._names

    def __iter__(self) -> Iterator[SystemStreamPartition]:
        return map(SystemStreamPartition.parse, self._names)

    def __len__(self) -> int:
        return len(self._names)


def partition_holders(last: Mapping[str, Checkpoint]) -> Mapping[str, str]:
    """Per partition, as text, the task with the newest checkpoint that names it."""
    if isinstance(last, StoredCheckpoints):
        return last.holders
    newest = sorted(last.items(), key=lambda entry: (entry[1].generation, entry[1].sequence))
    return {str(ssp): task for task, checkpoint in newest for ssp in checkpoint.partitions}


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
                rewound=checkpoint.rewound,
            )
        )
    )


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
            rewound=stored.rewound,
        )
    except (msgspec.MsgspecError, ConfigError) as error:
        raise CheckpointError(
            f"{path}: a checkpoint in it (or in what follows it) cannot be read: {error}"
        ) from error
