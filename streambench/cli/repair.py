"""``streambench streams repair``: give up what is lost of a stream, so that all else can be read and written
again."""

from __future__ import annotations

from typing import Any

from streambench.cli.job import systems_of
from streambench.cli.output import confirm, show_rows
from streambench.config import Config
from streambench.errors import StreamSystemError, no_partition
from streambench.model import SystemStream, SystemStreamPartition

_COLUMNS = ("partition", "file", "position", "bytes", "first", "last", "messages", "why", "aside")


def repair(
    config: Config, stream: SystemStream, partition: int | None, *, ask: bool, dry_run: bool, as_json: bool
) -> None:
    """Say what is lost of a stream, or of one partition; and repair it, once that is confirmed. Raises
    StreamSystemError."""
    from streambench.system.log import LogAdmin

    with systems_of(config) as systems:
        admin = systems.admin(stream.system)
        if not isinstance(admin, LogAdmin):
            raise StreamSystemError(
                f"{stream}: only a log is repaired here; this kind of system keeps its streams by itself"
            )
        count = admin.log.stream(stream.stream).partitions
        if partition is not None and partition >= count:
            raise no_partition(stream, partition, count)
        ssps = [stream.partition(each) for each in range(count) if partition in (None, each)]
        rows = [_row(ssp, loss) for ssp in ssps for loss in admin.damage(ssp)]
        empty = f"{stream} is whole: nothing to repair"
        show_rows(rows, _COLUMNS, as_json=as_json, empty=empty, right=("position", "bytes", "messages"))
        if not rows or dry_run:
            return
        messages, size = (sum(row[name] for row in rows) for name in ("messages", "bytes"))
        what = f"at most {messages} messages ({size} bytes) of {stream}"
        if ask:
            question = (
                f"Stop all jobs that use it. Give up {what}? Damaged bytes are moved to the files above"
            )
            confirm(question, f"{what} would be given up")
        for ssp in ssps:
            admin.repair(ssp)
    if not as_json:
        print(f"{stream} has been repaired: {what} were given up; no other messages get their offsets")


def _row(ssp: SystemStreamPartition, loss: Any) -> dict[str, Any]:
    return {
        "stream": str(ssp.system_stream),
        "partition": ssp.partition,
        "file": str(loss.file),
        "position": loss.position,
        "bytes": loss.bytes,
        "first": loss.first,
        "last": loss.last,
        "messages": loss.messages,
        "why": loss.why,
        "aside": None if loss.aside is None else str(loss.aside),
    }
