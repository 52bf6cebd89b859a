"""Repair: what is damaged in a partition, and how to go on without it.

``survey`` says what is lost and changes nothing. ``repair`` moves damaged bytes aside, to files that it
names, and rewrites the segments they stood in with all that is whole. Lost offsets are never given to other
messages: the header of a segment says which were given up, and a new segment begins behind them. Where it
cannot be known how many messages there were, as many are reckoned as the bytes could hold.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, field

from streambench.errors import CorruptDataError
from streambench.fsync import (
    create_durably,
    fsync_directory,
    write_durably,
)
from streambench.system.log.frame import (
    EndOfStream,
    Frame,
    Torn,
    batch_beyond,
    checksum_matches,
    parse,
    unverified,
)
from streambench.system.log.header import read_header, schema_bytes
from streambench.system.log.location import PartitionLocation
from streambench.system.log.notes import (
    COMPACTED,
    START,
    read_note,
    recovery_point,
    was_compacted,
    write_note,
)
from streambench.system.log.segment import (
    Segment,
    read_state,
    segment_of,
    segments,
    state_check,
    write_sealed,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

# Each message has at least its offset in a batch.
_LEAST_MESSAGE = 8


class Loss(Struct, frozen=True, kw_only=True):
    """Something that cannot be read any more: ``bytes`` of them at ``position`` of ``file``, or a file that
    is missing (0 bytes).

    ``first`` to ``last``: the offsets that go with it, None where none do; ``messages``: how many these were
    at most. ``aside``: the file that the bytes are moved to."""

    file: Path
    position: int
    bytes: int
    why: str
    first: int | None = None
    last: int | None = None
    aside: Path | None = None

    @property
    def messages(self) -> int:
        return 0 if self.first is None or self.last is None else self.last - self.first + 1


class _Part(Struct):
    """A segment as it is.

    ``frames``: those that are whole. ``inner``: what is damaged before one of them. ``tail``: what is damaged
    behind all of them. ``beside``: what is wrong with the file that belongs to it. ``end``: the offset behind
    the last whole frame, ``claimed`` the one behind the tail. ``sealed``: it has its end mark; ``torn``: the
    tail is only an append that was not finished.
    """

    segment: Segment
    values: Mapping[str, str] = {}
    sparse: bool = False
    frames: list[tuple[Frame, bytes]] = field(default_factory=list)
    inner: list[Loss] = field(default_factory=list)
    tail: Loss | None = None
    beside: list[Loss] = field(default_factory=list)
    end: int = 0
    claimed: int = 0
    sealed: bool = False
    torn: bool = False

    @property
    def losses(self) -> list[Loss]:
        return [*self.inner, *([self.tail] if self.tail is not None else []), *self.beside]


class Salvage(Struct, frozen=True):
    """The readable part of a segment. ``frames``: the whole batches with their bytes. ``losses``: the damage
    among and behind them. ``end``: the offset behind the last whole batch. ``lost_end``: the offset behind
    the damage at the end. ``ends_damaged``: the damage reaches to the end of the segment."""

    frames: list[tuple[Frame, bytes]]
    losses: list[Loss]
    end: int
    lost_end: int
    ends_damaged: bool


class _Plan(Struct):
    """The steps of a repair. ``parts``: segments to be rewritten, with their new ends. ``gaps``: from where
    to where nothing is left. ``begin``: where a new last segment begins, None where the present one stays.
    ``notes``: small files to be moved aside."""

    losses: list[Loss] = field(default_factory=list)
    parts: list[tuple[_Part, int]] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    notes: list[Path] = field(default_factory=list)
    start: int | None = None
    begin: int | None = None
    producers: dict[str, tuple[int, int]] = field(default_factory=dict)


def survey(location: PartitionLocation) -> list[Loss]:
    """Damage of a partition, in the order of its offsets. Nothing is changed. Called with the lock of its
    writers held."""
    return _planned(location).losses


def repair(location: PartitionLocation, check: Callable[[], object]) -> list[Loss]:
    """Repair a partition; the losses by that. Where the process dies, the next repair goes on.

    Called with the lock of its writers held; ``check`` raises LockLostError where one of them has taken it
    over."""
    plan = _planned(location)
    for part, end in plan.parts:
        if end > part.segment.base:
            _rewrite(location, part, end, check)
        else:  # nothing was ever in it
            check()
            os.replace(part.segment.path, _aside(part.segment.path))
            _put_aside(part)
    for path in plan.notes:
        check()
        os.replace(path, _aside(path))
    if plan.start is not None:
        write_note(location.directory / START, plan.start, check)
    for first, end in plan.gaps:
        values = {
            "stream": location.stream,
            "partition": str(location.partition),
            "created.ms": str(time.time_ns() // 1_000_000),
        }
        lost = {"end.offset": str(end), "lost": f"{first}-{end - 1}"}
        write_sealed(segment_of(location.directory, first), [], {**values, **lost}, check)
    if plan.begin is not None:
        _begin(location, plan.begin, plan.producers, check)
    fsync_directory(location.directory)
    return plan.losses


def salvage(location: PartitionLocation, segment: Segment, following: int | None, committed: int) -> Salvage:
    """Read a segment to its end, past everything that is damaged; nothing is changed and no lock is taken.

    ``following``: the base offset of the next segment, None for the last one. ``committed``: the partition's
    recovery point. Raises FileNotFoundError where the file is gone."""
    part = _examine(location, segment)
    end = _end_of(part, following, committed)
    losses = [*part.inner, *([part.tail] if part.tail is not None else [])]
    return Salvage(part.frames, losses, part.end, end, part.tail is not None)


def _planned(location: PartitionLocation) -> _Plan:
    directory, plan = location.directory, _Plan()
    present = segments(directory)
    start = _start(location, plan, present)
    committed, at = recovery_point(directory).upcoming, start
    last: _Part | None = None
    for number, segment in enumerate(present):
        if segment.base < at and number:
            continue  # what a compaction was about to remove
        if segment.base > at:
            _missing(location, plan, at, segment.base)
        part = last = _examine(location, segment)
        following = next(
            (each.base for each in present[number + 1 :] if each.base >= max(part.end, segment.base + 1)),
            None,
        )
        at = _end_of(part, following, committed)
        if part.losses:
            plan.losses += part.losses
            plan.parts.append((part, at))
            if following is None:
                plan.begin, plan.producers = at, _producers(part)
    if last is None:
        if committed > at:
            _missing(location, plan, at, committed)
            plan.begin = committed
    elif at < committed and last.sealed:
        _missing(location, plan, at, committed)
        plan.begin, plan.producers = committed, _producers(last)
    for name, kind in (("fence.json", dict[str, tuple[int, int]]), (COMPACTED, int), ("keep.json", int)):
        _checked_note(plan, directory / name, kind)
    return plan


def _start(location: PartitionLocation, plan: _Plan, present: list[Segment]) -> int:
    """The offset from which retention has left the partition."""
    path = location.directory / START
    start: int | None = _checked_note(plan, path, int)
    if path in plan.notes:
        plan.start = start = present[0].base if present else 0
    if not present:
        return start or 0
    if start is None and present[0].base:
        try:
            with open(present[0].path, "rb") as file:
                if not read_header(present[0].path, file.fileno()).is_strict:
                    return present[0].base
        except CorruptDataError:
            return present[0].base
    return min(start or 0, present[0].base)


def _missing(location: PartitionLocation, plan: _Plan, first: int, end: int) -> None:
    plan.losses.append(missing(location, first, end))
    plan.gaps.append((first, end))


def missing(location: PartitionLocation, first: int, end: int) -> Loss:
    """The loss of a segment that is not there, with the messages from ``first`` to before ``end``."""
    path = segment_of(location.directory, first).path
    return Loss(file=path, position=0, bytes=0, why="the file is missing", first=first, last=end - 1)


def _end_of(part: _Part, following: int | None, committed: int) -> int:
    """The offset behind a segment; the damage at its end is completed, or dropped where it is none."""
    declared = int(part.values.get("end.offset", "0"))
    end = max(part.end, declared) if part.sealed else part.end
    if following is None:
        if part.torn and part.end >= committed:
            part.tail = None  # the next writer cuts it off
        elif part.tail is not None:
            end = max(part.claimed, committed, declared)
        elif not part.sealed and part.end < committed:
            part.tail, end = _early(part), committed
    elif not part.sealed and not part.sparse and part.end == following:
        part.tail = None  # at most the end mark is damaged, which is not needed
    elif not part.sealed:
        part.tail, end = part.tail or _early(part), following
    elif part.sparse and not declared:
        end = following
    if part.tail is not None and end > part.end:
        part.tail = msgspec.structs.replace(part.tail, first=part.end, last=end - 1)
    return end


def _early(part: _Part) -> Loss:
    path = part.segment.path
    return Loss(file=path, position=path.stat().st_size, bytes=0, why="the file ends too early")


def _examine(location: PartitionLocation, segment: Segment) -> _Part:
    """Read a segment to its end, past everything that is damaged."""
    data = memoryview(segment.path.read_bytes())
    part, position = _Part(segment, end=segment.base), 0
    try:
        with open(segment.path, "rb") as file:
            header = read_header(segment.path, file.fileno())
    except CorruptDataError as error:
        position = _pass_over(part, data, 0, _reason(segment.path, error))
    else:
        part.values, position = header.values, header.size
        part.sparse = header.end is not None or (not header.is_strict and _compacted(location, segment))
    while position < len(data):
        found = parse(data, position, position)
        if isinstance(found, EndOfStream):
            part.sealed = True
            break
        if isinstance(found, Frame) and _fits(part, data, found):
            if part.tail is not None:
                part.inner.append(msgspec.structs.replace(part.tail, first=part.end, last=found.base - 1))
                part.tail = None
            part.frames.append((found, bytes(data[position : found.end])))
            part.end, position = found.last + 1, found.end
        else:
            reason = found.reason if isinstance(found, Torn) else "the file ends within the batch"
            if isinstance(found, Frame) and found.end <= len(data):
                reason = "the batch does not match its checksum, or not the offset that was expected"
            start, position = position, _pass_over(part, data, position, reason)
            if position == len(data):
                part.torn = not isinstance(found, Torn) and not (
                    isinstance(found, Frame) and found.end <= len(data)
                )
                said = unverified(data, start, start)
                is_one = said is not None and said.base == part.end and said.end == len(data)
                part.claimed = (
                    said.last + 1
                    if said is not None and is_one
                    else part.end + (position - start) // _LEAST_MESSAGE + 1
                )
    _check_state(part)
    return part


def _fits(part: _Part, data: memoryview, frame: Frame) -> bool:
    """Return True for a whole frame that may come next."""
    may_skip = part.sparse or part.tail is not None
    in_order = frame.base == part.end or (frame.base > part.end and may_skip)
    return in_order and frame.end <= len(data) and checksum_matches(data[frame.position : frame.end], frame)


def _pass_over(part: _Part, data: memoryview, start: int, why: str) -> int:
    """Note that what begins there is damaged; where the next whole frame begins, else the end of the file."""
    beyond = batch_beyond(data[start:], part.end)
    end = start + beyond if beyond >= 0 else len(data)
    path = part.segment.path
    part.tail = Loss(
        file=path, position=start, bytes=end - start, why=why, aside=_aside(path.with_suffix(f".{start}"))
    )
    return end


def _check_state(part: _Part) -> None:
    """Note where the file is damaged that says what was known of the producers."""
    path = part.segment.state_path
    wanted = part.values.get("producers")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if wanted is not None:
            part.beside.append(Loss(file=path, position=0, bytes=0, why="the file is missing"))
        return
    try:
        msgspec.json.decode(data, type=dict[str, tuple[int, int]])
        if wanted in (None, state_check(data)):
            return
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    part.beside.append(
        Loss(file=path, position=0, bytes=len(data), why="its contents are damaged", aside=_aside(path))
    )


def _producers(part: _Part) -> dict[str, tuple[int, int]]:
    """Per producer the last (generation, sequence) of what is left of a segment, and of what was known before
    it."""
    found: dict[str, tuple[int, int]] = {}
    try:
        with open(part.segment.path, "rb") as file:
            found = read_state(part.segment, read_header(part.segment.path, file.fileno()), "")
    except CorruptDataError:
        log.warning("%s: what was known of its producers is lost", part.segment.state_path)
    for frame, _ in part.frames:
        if frame.producer is not None and frame.sequence is not None:
            found[frame.producer] = (frame.generation, frame.sequence)
    return found


def _rewrite(location: PartitionLocation, part: _Part, end: int, check: Callable[[], object]) -> None:
    """Move what is damaged aside, and put the segment in place with what is whole, sealed."""
    data = part.segment.path.read_bytes()
    lost = [part.values["lost"]] if part.values.get("lost") else []
    values = {
        "stream": location.stream,
        "partition": str(location.partition),
        "created.ms": "0",
        **part.values,
        "end.offset": str(end),
    }
    for loss in part.losses:
        if loss.aside is not None and loss.file == part.segment.path:
            create_durably(loss.aside, data[loss.position : loss.position + loss.bytes])
        if loss.first is not None:
            lost.append(f"{loss.first}-{loss.last}")
        if loss.file == part.segment.state_path:
            values.pop("producers", None)
    write_sealed(part.segment, [data for _, data in part.frames], {**values, "lost": ", ".join(lost)}, check)
    _put_aside(part)


def _put_aside(part: _Part) -> None:
    for loss in part.beside:
        if loss.aside is not None:
            os.replace(loss.file, loss.aside)


def _begin(
    location: PartitionLocation,
    base: int,
    producers: Mapping[str, tuple[int, int]],
    check: Callable[[], object],
) -> None:
    segment = segment_of(location.directory, base)
    more = {}
    if producers:
        data = msgspec.json.encode(producers)
        write_durably(segment.state_path, data, check)
        more["producers"] = state_check(data)
    header = schema_bytes(location.stream, location.partition, time.time_ns() // 1_000_000, **more)
    create_durably(segment.path, header, check=check)


def _checked_note(plan: _Plan, path: Path, kind: type[T]) -> T | None:
    """The value of a note; None where there is none, or it is damaged, which is noted in the plan."""
    try:
        return read_note(path, kind, "")
    except CorruptDataError as error:
        plan.losses.append(
            Loss(
                file=path, position=0, bytes=path.stat().st_size, why=_reason(path, error), aside=_aside(path)
            )
        )
        plan.notes.append(path)
        return None


def _compacted(location: PartitionLocation, segment: Segment) -> bool:
    try:
        return was_compacted(location.directory, segment.base)
    except CorruptDataError:
        return True


def _aside(path: Path) -> Path:
    """A name beside a file that is not taken."""
    number = 0
    while True:
        name = path.with_name(f"{path.name}.damaged" + (f".{number}" if number else ""))
        if not name.exists():
            return name
        number += 1


def _reason(path: Path, error: CorruptDataError) -> str:
    return str(error).removeprefix(str(path)).lstrip(":, ").removesuffix("; ")
