"""Stores that a checkpoint knows: those that a run leaves out, and the serdes of the others."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.config import Config
from streambench.errors import ConfigError, StoreError, UnknownStreamError
from streambench.model import PartitionMetadata, SystemStreamPartition
from streambench.planning.model import JobModel
from streambench.planning.store_definitions import StoreDefinition, changelogs, store_definitions
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

_SHOWN = 3


class KnownStores(Struct, frozen=True):
    """For the next checkpoints of one task, their fields of these names.

    ``kept``: the changelogs' offsets of the absent stores."""

    kept: Mapping[str, str] = {}
    formats: Mapping[str, Sequence[str]] = {}
    absent: Mapping[str, str] = {}


def known_stores(definitions: Mapping[str, StoreDefinition], last: Checkpoint) -> KnownStores:
    """The memory of stores that the checkpoints of a task carry over from the last one."""
    logged = {name: each.formats for name, each in definitions.items() if each.changelog is not None}
    kept = {store: offset for store, offset in last.changelogs.items() if store not in logged}
    formats = {store: formats for store, formats in last.formats.items() if store in kept}
    commit = f"{last.generation}.{last.sequence}"
    return KnownStores(kept, {**formats, **logged}, {store: last.absent.get(store, commit) for store in kept})


def warn_of_stores(
    config: Config,
    job: str,
    definitions: Mapping[str, StoreDefinition],
    last: Mapping[str, Checkpoint],
) -> None:
    """Warn of state that does not go together with the offsets: of stores that are left out, are back, or are
    never kept.

    ``last``: the last checkpoints of this container's tasks."""
    gone: dict[str, list[str]] = defaultdict(list)
    back: dict[tuple[str, str], list[str]] = defaultdict(list)
    going_on = [task for task, checkpoint in last.items() if checkpoint.offsets]
    for task, checkpoint in last.items():
        for store in checkpoint.changelogs:
            is_kept = store in definitions and definitions[store].changelog is not None
            if not is_kept and store not in checkpoint.absent:
                gone[store].append(task)
            elif is_kept and store in checkpoint.absent:
                back[store, checkpoint.absent[store]].append(task)
    for name, definition in definitions.items():
        if definition.changelog is None and going_on and name not in gone:
            log.warning(
                "stores.%s.changelog=none: the store '%s' begins empty at every start, while the offsets go "
                "on (%s); leave "
                "that key out to have the state kept",
                name,
                name,
                _named(going_on),
            )
    for store, tasks in gone.items():
        log.warning(
            "%s: the store '%s' of earlier runs has no changelog in this configuration (stores.%s.*). Its "
            "state stays in its changelog, without what %s will process now",
            job,
            store,
            store,
            _named(tasks),
        )
    for (store, commit), tasks in back.items():
        rewind = "oldest" if commit.startswith("0.") else commit
        log.warning(
            "%s: the store '%s' is back, with its state as of commit %s, which is older than the offsets of "
            "%s: what was processed without it is not in it. To process that again: %s",
            job,
            store,
            commit,
            _named(tasks),
            config.command(f"checkpoints --rewind {rewind}"),
        )


def check_formats(config: Config, definition: StoreDefinition, task: str, last: Checkpoint) -> None:
    """Raise ConfigError where the last checkpoint says that the state of a store was written with other
    serdes."""
    name = definition.name
    written = last.formats.get(name)
    if written is None or not definition.checks_formats:
        return
    for key, former, now in zip(("key.serde", "msg.serde"), written, definition.formats, strict=False):
        if former != now:
            raise config.error(
                f"stores.{name}.{key}",
                f"the state of the store '{name}' ({task}) was written with the serde {former}, and would "
                f"be read with {now}. Set the former one again; or begin with empty stores: "
                f"{config.command('checkpoints --rewind oldest')}; or "
                "give the store another name, and fill it from this one. Where the new serde reads what "
                "the former one "
                f"wrote, set stores.{name}.serde.check=false",
            )


def check_stores(
    config: Config, job: str, systems: Systems, model: JobModel, manager: CheckpointManager
) -> None:
    """Raise ConfigError where the state of a job was written with other serdes than the configuration names.

    Called before a generation is opened, which stops what runs: a start that is refused should stop nothing.
    Nothing is read for jobs without changelogs."""
    streams = changelogs(config, job, systems)
    last = manager.read_committed() if streams else {}
    tasks = [task for task in model.tasks if task.name in last and last[task.name].formats]
    definitions = store_definitions(config, job, systems) if tasks else {}
    for task in tasks:
        checkpoint = last[task.name]
        for store, stream in streams.items():
            try:
                check_formats(config, definitions[store], task.name, checkpoint)
            except ConfigError:
                ssp = SystemStreamPartition(stream.system, stream.stream, task.number)
                try:
                    here = systems.metadata([stream])[stream].get(task.number)
                except UnknownStreamError:
                    continue  # which the start itself reports
                if here is not None and holds_state(systems, ssp, here, checkpoint.changelogs.get(store)):
                    raise


def holds_state(
    systems: Systems, ssp: SystemStreamPartition, here: PartitionMetadata, committed: str | None
) -> bool:
    """True where a changelog holds anything before the offset at which a restore stops."""
    if committed is None or here.oldest is None:
        return False
    order = systems.admin(ssp.system).compare(here.oldest, committed)
    return order is None or order < 0


def goes_back_before(store: str, last: Checkpoint, history: Iterable[Checkpoint]) -> bool:
    """True where a task was rewound to before it had anything in a store.

    ``history``: all its checkpoints that are kept."""
    commit = last.generation, last.sequence
    later = (each for each in history if (each.generation, each.sequence) > commit)
    return last.generation == 0 or any(store in each.changelogs for each in later)


def unknown_state(config: Config, task: str, store: str, ssp: SystemStreamPartition) -> StoreError:
    """The error for a changelog that holds state which the checkpoints of its task, though there are some, do
    not know."""
    return StoreError(
        f"{ssp} holds state, but no checkpoint of {task} knows of the store '{store}': a run without it (of "
        "an earlier "
        "version) came between, or the changelog is that of another store. Nothing was changed. Go back to "
        "a commit that "
        f"knows it ({config.command('checkpoints --rewind COMMIT')}), begin with empty stores (a rewind to "
        "oldest), or delete the "
        f"stream or name another in stores.{store}.changelog, to begin with this store empty"
    )


def _named(tasks: Collection[str]) -> str:
    first = sorted(tasks)[:_SHOWN]
    return ", ".join(first) + (f" and {len(tasks) - len(first)} more" if len(tasks) > len(first) else "")
