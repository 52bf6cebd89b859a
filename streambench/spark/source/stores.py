"""Stores as DataFrames: the state of a job as of its last checkpoints, from its changelogs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from streambench.chunk import Chunk
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.plan import job_name
from streambench.planning.store_definitions import StoreDefinition, store_definitions
from streambench.spark.source.layout import Layout, StreamFormat, column_type
from streambench.spark.source.options import StreamOptions
from streambench.spark.source.ranges import OffsetRange, check_readable, not_empty, read_range
from streambench.suggestions import suggest_or_list
from streambench.system.log.arrays import binary_column
from streambench.system.systems import Systems

_TASK, _KEY, _VALUE = "task", "key", "value"
_AT_ONCE = 10_000


class TaskState(OffsetRange):
    """The changelog entries that make up the state of one task."""

    def __init__(self, task: str, partition: int, start: str, end: str) -> None:
        super().__init__(partition, start, end)
        self.task = task


def store_schema(options: StreamOptions) -> StructType:
    """The schema of a store of which none is given: task, key and value."""
    format = _format(_definition(options.config, options.required_store()))
    kinds = (StringType(), *map(column_type, format.formats))
    return StructType([StructField(*each) for each in zip((_TASK, _KEY, _VALUE), kinds, strict=True)])


class StoreReader(DataSourceReader):
    """Reads a store: the entries of every task, as of the task's last checkpoint.

    Columns other than ``task``, ``key`` and ``value`` are fields of the values."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._config = options.config
        self._store = options.required_store()
        self._schema = schema
        self._layout(_definition(self._config, self._store))  # a wrong schema is an error on the driver

    def partitions(self) -> list[InputPartition]:
        config, name = self._config, job_name(self._config)
        definition = _definition(config, self._store)
        changelog = _changelog(definition)
        with closing(checkpoint_manager(config, name)) as manager, closing(Systems(config)) as systems:
            last, generation = manager.read_last(), manager.last_generation()
            ends = {
                task: each.changelogs[self._store]
                for task, each in last.items()
                if self._store in each.changelogs
            }
            if generation is None or not ends:
                return []
            check_readable(config, systems, changelog)
            held = systems.metadata([changelog])[changelog]
            found = []
            for task, end in sorted(ends.items()):
                here = held[generation.places[task]]
                start = here.oldest or here.upcoming or "0"
                found.append(TaskState(task, generation.places[task], start, end))
            compare = systems.admin(changelog.system).compare
            return [each for each in found if not_empty(each, compare)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, TaskState):
            return
        definition = _definition(self._config, self._store)
        changelog, layout = _changelog(definition), self._layout(definition)
        ssp = changelog.partition(partition.partition)
        with closing(Systems(self._config)) as systems:
            state = _state(systems, definition, changelog, partition)
        keys = list(state)
        for at in range(0, len(keys), _AT_ONCE):
            some = keys[at : at + _AT_ONCE]
            offsets = [state[key][0] for key in some]
            values = [state[key][1] for key in some]
            batch = layout.batch([Chunk(ssp, offsets, some, values)])
            yield self._named(batch, partition.task)

    def _layout(self, definition: StoreDefinition) -> Layout:
        """The layout of entries as messages of the changelog."""
        own = {_KEY: "key", _VALUE: "message"}
        kept = [each for each in self._schema if each.name != _TASK]
        inner = StructType([StructField(own.get(each.name, each.name), each.dataType) for each in kept])
        metadata = [own[each.name] for each in kept if each.name in own]
        return Layout(inner, metadata, _format(definition), _changelog(definition))

    def _named(self, batch: pa.RecordBatch, task: str) -> pa.RecordBatch:
        columns = iter(batch.columns)
        tasks = binary_column([task.encode()] * batch.num_rows).cast(pa.string())
        arrays = [tasks if each.name == _TASK else next(columns) for each in self._schema]
        return pa.RecordBatch.from_arrays(arrays, names=self._schema.names)


def _state(
    systems: Systems, definition: StoreDefinition, changelog: SystemStream, part: TaskState
) -> dict[bytes, tuple[str, bytes]]:
    """Per key its last value that is alive, with its offset."""
    state: dict[bytes, tuple[str, bytes]] = {}
    ttl_ms = definition.ttl_ms
    dead = None if ttl_ms is None else time.time_ns() // 1_000_000 - ttl_ms
    for pieces in read_range(systems, changelog, part):
        for piece in pieces:
            for each in piece.envelopes():
                has_died = dead is not None and each.timestamp is not None and each.timestamp <= dead
                if each.message is None or has_died:
                    state.pop(each.key, None)
                else:
                    state[each.key] = each.offset, each.message
    return state


def _definition(config: Config, store: str) -> StoreDefinition:
    definitions = store_definitions(config, job_name(config))
    if store not in definitions:
        hint = suggest_or_list(store, definitions) if definitions else "the job has none"
        raise ConfigError(f"option store: there is no store '{store}'; {hint}", key="store")
    return definitions[store]


def _changelog(definition: StoreDefinition) -> SystemStream:
    if definition.changelog is None:
        raise ConfigError(
            f"option store: '{definition.name}' has no changelog, and its state is only in the running "
            f"container: give it one (stores.{definition.name}.changelog)",
            key="store",
        )
    return definition.changelog


def _format(definition: StoreDefinition) -> StreamFormat:
    formats = tuple(each.partition(" ")[0] for each in definition.formats)
    return StreamFormat((definition.key_serde, definition.value_serde), formats)
