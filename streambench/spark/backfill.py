"""Backfills: a range of a job's inputs processed again, beside the job.

A backfill is a job of its own. It has other checkpoints, changelogs and outputs. So the job itself is neither
stopped nor changed, and continues from its checkpoints when its deployment is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint
from streambench.clock import SystemClock
from streambench.config import Config
from streambench.container.inputs.partition_identity import PartitionIdentities
from streambench.container.inputs.starting_offsets import start_point
from streambench.errors import ConfigError, UnknownStreamError
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.model import JobModel
from streambench.planning.plan import Metadata, all_inputs, job_name, name_and_id
from streambench.planning.store_definitions import changelogs
from streambench.system.listing import listing
from streambench.system.systems import Systems, abilities_of, settings_of_streams

_PATIENCE_S = 5.0


class Backfill(Struct, frozen=True):
    """A range of the inputs. ``name`` is put behind the names of the job, of its changelogs and of the
    streams that it sends to. ``start`` and ``end``: WHERE for all partitions, or PARTITION@WHERE or
    STREAM@WHERE, of which a later one overrides earlier ones. WHERE is ``oldest``, ``upcoming``, an offset or
    ``timestamp:TIME``. The message at an end is not read."""

    name: str
    start: Sequence[str] = ()
    end: Sequence[str] = ()

    def config(self, config: Config, task: object) -> Config:
        """The configuration of the backfill of a job. Raises ConfigError."""
        if not re.fullmatch(r"[A-Za-z0-9._-]+", self.name):
            raise ConfigError(
                f"'{self.name}' cannot be the name of a backfill: use letters, digits, dots, dashes and "
                "underscores"
            )
        suffix = f"-{self.name}"
        values: dict[str, str | None] = {
            "job.name": f"{name_and_id(config, task)[0]}{suffix}",
            "task.output.suffix": f"{config.text('task.output.suffix') or ''}{suffix}",
            "metrics.reporters": None,
        }
        for store in config.names_below("stores."):
            key = f"stores.{store}.changelog"
            if (changelog := config.text(key)) is not None and changelog != "none":
                values[key] = f"{changelog}{suffix}"
        for stream in all_inputs(config):
            values[f"systems.{stream.system}.streams.{stream.stream}.samza.reset.offset"] = "false"
        return config.with_values({**_like_outputs(config, suffix), **values})

    def mark(self, name: str, job_id: str) -> str:
        """The name of the backfill and its job, as its checkpoints have it. ``name``: the job that it is."""
        return f"{self.name} of {name.removesuffix(f'-{self.name}-{job_id}')}-{job_id}"

    def outputs(self, config: Config, task: object = None) -> list[SystemStream]:
        """The streams that the backfill of a job has sent to, as its systems list them. There are none of a
        system that does not list its streams. Raises ConfigError."""
        own = self.config(config, task)
        with closing(Systems(own)) as systems:
            reserved = set(changelogs(own, job_name(own, task), systems).values())
        suffix = own.required("task.output.suffix")
        found = listing(own, patience_s=_PATIENCE_S).streams
        return [each for each in found if each.stream.endswith(suffix) and each not in reserved]

    def begins(self, systems: Systems, metadata: Metadata, model: JobModel) -> dict[str, Checkpoint]:
        """Per task the checkpoint with which the backfill begins: its offsets, and no state. Raises
        ConfigError, UnknownStreamError, OffsetError."""
        starts = _bounds(systems, metadata, ("oldest", *self.start))
        if self.end:
            self._check_order(systems, starts, self.ends(systems, metadata))
        identities, now_ms = PartitionIdentities(systems), SystemClock().now_ms()
        found = {}
        for task in model.tasks:
            of_task = {ssp: starts[ssp] for ssp in task.partitions}
            found[task.name] = Checkpoint({}, of_task, time_ms=now_ms, identities=identities.at({}, of_task))
        return found

    def _check_order(
        self,
        systems: Systems,
        starts: Mapping[SystemStreamPartition, str],
        ends: Mapping[SystemStreamPartition, str],
    ) -> None:
        """Raise ConfigError where a partition would end before its begin."""
        for ssp, end in ends.items():
            order = systems.admin(ssp.system).compare(end, starts[ssp])
            if order is not None and order < 0:
                raise ConfigError(
                    f"{ssp}: the backfill would end at {end}, before its begin at {starts[ssp]}: give an "
                    "end behind the begin"
                )

    def ends(self, systems: Systems, metadata: Metadata) -> dict[SystemStreamPartition, str]:
        """Per partition the first offset that is not read. Raises as ``begins``."""
        return _bounds(systems, metadata, ("upcoming", *self.end))


def _bounds(systems: Systems, metadata: Metadata, wishes: Sequence[str]) -> dict[SystemStreamPartition, str]:
    """The offsets that wishes name, of all input partitions."""
    found = {}
    there = {
        stream.partition(number): here
        for stream, partitions in metadata.items()
        for number, here in partitions.items()
    }
    for wish in wishes:
        place, _, where = wish.rpartition("@")
        chosen = [ssp for ssp in there if place in ("", str(ssp), str(ssp.system_stream))]
        if not chosen and place.isdecimal():
            named = ", ".join(f"{each}.{place}@{where}" for each in sorted(map(str, metadata)))
            raise ConfigError(f"{wish}: name the stream of partition {place} as well: {named}")
        if not chosen:
            raise UnknownStreamError(
                f"{place} is no input of the job, and no partition of one; its inputs are "
                f"{', '.join(sorted(map(str, metadata)))}, its first partition is {min(there)}"
            )
        if not place and where.isdecimal() and len(there) > 1:
            example = f"{min(there)}@{where}"
            raise ConfigError(f"{where}: an offset is one of a partition: give {example}, for example")
        found.update({ssp: start_point(systems, ssp, there[ssp], where) for ssp in chosen})
    return found


def _like_outputs(config: Config, suffix: str) -> dict[str, str]:
    """The settings of streams for those of the same name with a suffix, which are created like them."""
    found = {}
    inputs = set(all_inputs(config))
    for system in config.names_below("systems."):
        if not abilities_of(config, system).portable_settings:
            continue
        for name, settings in settings_of_streams(config, system).items():
            if SystemStream(system, name) not in inputs:
                for setting, value in settings.items():
                    found[f"systems.{system}.streams.{name}{suffix}.{setting}"] = value
    return found
