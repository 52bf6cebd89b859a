"""The stores of a container's tasks: made, restored from their changelogs, and drained with every commit."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streambench.checkpoint.api import Checkpoint
from streambench.config import Config
from streambench.container.handles import Owner
from streambench.container.outbox import StoreChanges
from streambench.errors import StreamSystemError, UnknownStreamError, do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.model import ContainerModel, TaskModel
from streambench.store.definitions import StoreDefinition, store_definitions
from streambench.store.restore import Restore, restore_all
from streambench.store.task_store import TaskStore
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

# What a run wrote that dies before its commit must not remove what was committed before the next start has set it right.
_CHANGELOG = {"cleanup.policy": "compact", "min.compaction.lag.ms": 86_400_000}


class State:
    """All stores of one container. Every task has its part of each store, and writes one partition of each changelog, alone."""

    def __init__(self, config: Config, job: str, systems: Systems, container: ContainerModel, partitions: int, owner: Owner) -> None:
        """``partitions``: how many partitions changelogs have."""
        self._config = config
        self._job = job
        self._systems = systems
        self._tasks = container.tasks
        self._definitions = store_definitions(config, job, systems)
        self._stores = {
            task.name: {name: self._store(each, task, owner) for name, each in self._definitions.items()} for task in self._tasks
        }
        self._create_changelogs(partitions)

    def stores(self, task: str) -> dict[str, TaskStore]:
        """The stores of a task, by name."""
        return self._stores[task]

    def changelogs(self, task: str) -> dict[str, SystemStreamPartition]:
        """The changelog partitions of a task, by the names of the stores."""
        return self._changelogs[task]

    def fenced(self) -> dict[str, list[SystemStreamPartition]]:
        """Per source of changes the partitions that it writes alone."""
        return {self._source(task.name): list(self.changelogs(task.name).values()) for task in self._tasks if self.changelogs(task.name)}

    def sources(self) -> dict[SystemStreamPartition, str]:
        """Per changelog partition the source that writes it."""
        return {ssp: source for source, partitions in self.fenced().items() for ssp in partitions}

    def restore(self, last: Mapping[str, Checkpoint], metrics: MetricsRegistry) -> list[StoreChanges]:
        """Fill the stores; what must be written to the changelogs to set right what a run left there that died before its commit."""
        restores = self._restores(last)
        for system in sorted({each.ssp.system for _, _, each in restores}):
            restore_all(self._systems.consumer(system, metrics), [each for _, _, each in restores if each.ssp.system == system])
        corrections = []
        for task, store, each in restores:
            metrics.counter("entries-restored", f"store-{store}").inc(len(self._stores[task][store].engine))
            wrong = each.corrections()
            if not wrong:
                continue
            if each.committed is None:
                log.warning("%s: no checkpoint knows of %s, which holds state; the store %s begins empty", task, each.ssp, store)
            else:
                log.info("%s: %d uncommitted changes of the store %s are undone", task, len(wrong), store)
            corrections.append(StoreChanges(store, each.ssp, wrong))
        return corrections

    def _restores(self, last: Mapping[str, Checkpoint]) -> list[tuple[str, str, Restore]]:
        """Per task and store with a changelog, its restore."""
        metadata = self._systems.metadata({ssp.system_stream for of_task in self._changelogs.values() for ssp in of_task.values()})
        restores = []
        for task, changelogs in self._changelogs.items():
            committed = last.get(task, Checkpoint({})).changelogs
            for store, ssp in changelogs.items():
                here = metadata[ssp.system_stream][ssp.partition]
                compare = self._systems.admin(ssp.system).compare
                restores.append((task, store, Restore(self._stores[task][store].engine, ssp, here, committed.get(store), compare)))
        return restores

    def drain(self, task: str) -> list[StoreChanges]:
        """What changed in the stores of a task since the last drain."""
        changes = []
        for store, ssp in self.changelogs(task).items():
            entries = self._stores[task][store].drain()
            if entries:
                changes.append(StoreChanges(store, ssp, entries))
        return changes

    def close(self) -> None:
        """Close all stores."""
        do_all([store.close for stores in self._stores.values() for store in stores.values()])

    def _store(self, definition: StoreDefinition, task: TaskModel, owner: Owner) -> TaskStore:
        engine = definition.factory.get_engine(definition.name, task.name, self._config)
        return TaskStore(
            definition.name,
            engine,
            definition.key_serde,
            definition.value_serde,
            changelog=definition.changelog is not None,
            owner=owner,
        )

    def _create_changelogs(self, partitions: int) -> None:
        self._changelogs: dict[str, dict[str, SystemStreamPartition]] = {task.name: {} for task in self._tasks}
        for name, definition in self._definitions.items():
            stream = definition.changelog
            if stream is None:
                continue
            admin = self._systems.admin(stream.system)
            try:
                present = len(admin.metadata([stream])[stream])
            except UnknownStreamError:
                admin.create(stream, partitions, **_CHANGELOG)
                present = partitions
            if present < partitions:
                self._grow(name, stream, present, partitions)
            for task in self._tasks:
                self._changelogs[task.name][name] = SystemStreamPartition(stream.system, stream.stream, task.number)

    def _grow(self, store: str, changelog: SystemStream, present: int, wanted: int) -> None:
        """Add the partitions of new tasks to a changelog; those of the others stay as they are."""
        key = f"stores.{store}.changelog"
        try:
            self._systems.admin(changelog.system).grow(changelog, wanted)
        except StreamSystemError as error:
            raise self._config.error(
                key, f"{changelog} has {present} partitions and the tasks need {wanted}, one each; add them there. {error}"
            ) from error
        log.warning(
            "%s: %s grows from %d to %d partitions; new tasks begin with empty state. If an input has got more partitions, keys that go to "
            "another one now leave their state with the task that had them before", key, changelog, present, wanted,
        )  # fmt: skip

    def _source(self, task: str) -> str:
        return f"{self._job}/{task}"
