"""The outbox of exactly-once: outputs, state and checkpoint leave in one atomic commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.config import Config
from streambench.container.outputs.outbox import BaseOutbox, StoreChanges, TaskCommit
from streambench.errors import MessageTooLargeError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.planning.store_definitions import store_definitions
from streambench.rows import Rows
from streambench.system.api import SendColumns, Sender, SystemProducer
from streambench.system.capabilities import Transactional
from streambench.system.producers_applier import ProducersApplier
from streambench.system.systems import Systems

_GUARANTEE = "task.processing.guarantee"
_LIMIT = "task.commit.max.output.mb"
_MB = 1 << 20
_OVERHEAD = 64


def is_exactly_once(config: Config) -> bool:
    """True where the job runs exactly-once."""
    return config.required(_GUARANTEE) == "exactly-once"


def check_replayable(config: Config, inputs: Collection[SystemStream], systems: Systems) -> None:
    """Raise ConfigError where an input cannot be read again after a crash: what it sends twice would be
    processed twice."""
    for stream in inputs:
        if not systems.admin(stream.system).replayable:
            raise config.error(
                _GUARANTEE,
                f"exactly-once needs inputs that can be read again from an offset, and {stream} keeps "
                "nothing. Land it in a log "
                f"(systems.{stream.system}.samza.landing=LOGSYSTEM), or set {_GUARANTEE}=at-least-once",
            )


def check_atomic(config: Config, job: str, systems: Systems, checkpoints: CheckpointManager) -> None:
    """Raise ConfigError where checkpoints and changelogs of a job cannot be written in one atomic step."""
    if checkpoints.atomic is None:
        raise config.error(
            "task.checkpoint.system",
            f"{_GUARANTEE}=exactly-once needs checkpoints in a log or a Kafka, where outputs can be "
            "committed with them: name one here",
        )
    for name, definition in store_definitions(config, job, systems).items():
        if definition.changelog is not None:
            producer = systems.producer(definition.changelog.system, MetricsRegistry())
            producer.stop()
            keys = (f"stores.{name}.changelog", "task.checkpoint.system", _GUARANTEE)
            key = next(each for each in keys if config.text(each) is not None)  # one that the user has set
            what = f", and has the changelog of the store {name}"
            _transactional(config, definition.changelog.system, producer, checkpoints, key, what)


class TransactionalOutbox(BaseOutbox):
    """Holds back, encoded and dealt to partitions, what tasks send, and commits it with the changes of state
    and the checkpoints.

    ``inputs``: all streams that containers of this job read. What is pending for one of them makes a commit
    due when there is nothing else to do. ``on_full`` is called when as much is pending as
    ``task.commit.max.output.mb`` says, to ask for a commit.
    """

    commits_all_tasks = True

    def __init__(
        self, *arguments: Any, config: Config, inputs: Collection[SystemStream], on_full: Callable[[], None]
    ) -> None:
        """``arguments``: those of ``BaseOutbox``."""
        super().__init__(*arguments)
        self._config = config
        self._inputs = frozenset(inputs)
        self._on_full = on_full
        self._limit = self._config.integer(_LIMIT) * _MB
        if self._limit <= 0:
            raise self._config.error(_LIMIT, "leaves no room for any output: give 1 or more")
        self._applier = ProducersApplier(self._producer, config.command("checkpoints --rewind oldest"))
        self._holding: list[Transactional] = []
        self._pending = 0
        self._is_awaited = False
        self._changes: dict[SystemStreamPartition, Rows] = {}
        self._ends: dict[SystemStreamPartition, str] = {}

    def flush(self) -> bool:
        return self._is_awaited

    def commit(self, commits: Sequence[TaskCommit], now_ms: int) -> Mapping[str, Checkpoint]:
        self.write_changes([changes for each in commits for changes in each.changes])
        self._ends.update(
            self._upcoming({*self._changes, *(ssp for each in commits for ssp in each.changelogs.values())})
        )
        # Nothing else writes to these changelogs: the changes will begin at their present ends.
        for ssp, rows in self._changes.items():
            rows.base = int(self._ends[ssp])
        effects = [
            *self._changes.values(),
            *(rows for producer in self._holding for rows in producer.take()),
        ]
        ends: Mapping[SystemStreamPartition, str] = {}

        # Called when it is known where the changelogs end with this commit.
        def checkpoints(new_ends: Mapping[SystemStreamPartition, str]) -> Mapping[str, Checkpoint]:
            nonlocal ends
            ends = new_ends
            return self._checkpoints_of(commits, {**self._ends, **ends}, now_ms)

        written: Mapping[str, Checkpoint] = {}
        self._require_open()
        if commits or effects:
            try:
                written = self._checkpoints.commit(checkpoints, effects, self._applier)
            except MessageTooLargeError as error:
                # Of a store, the error names the key and the remedy.
                for changes in (changes for each in commits for changes in each.changes):
                    if str(error).startswith(f"{changes.changelog}: "):
                        raise changes.too_large(error) from error
                raise
        self._ends.update(ends)
        self._changes = {}
        self._pending = 0
        self._is_awaited = False
        self.apply_limits()
        self._sent.inc(self._unflushed)
        self._unflushed = 0
        return written

    def drop_outputs(self) -> None:
        """Drop the outputs that wait for the commit."""
        self.apply_limits()  # counts those that were not counted yet
        for producer in self._holding:
            self._unflushed -= sum(map(len, producer.take()))
        self._pending, self._is_awaited = 0, False
        self.apply_limits()

    def write_changes(self, changes: Sequence[StoreChanges]) -> None:
        for each in changes:
            keys = [key for key, _ in each.entries]
            values = [value for _, value in each.entries]
            timestamps = None if each.written is None else list(each.written)
            rows = Rows(each.changelog, keys, values, timestamps)
            try:
                self._producer(each.changelog.system).check_sizes(rows)
            except MessageTooLargeError as error:
                raise each.too_large(error) from error
            self._unflushed += len(rows)
            self._changes.setdefault(each.changelog, Rows(each.changelog, [], [])).extend(rows)

    def _upcoming(self, changelogs: Collection[SystemStreamPartition]) -> dict[SystemStreamPartition, str]:
        """No other process writes to these partitions: they are read once."""
        unknown = {ssp for ssp in changelogs if ssp not in self._ends}
        return super()._upcoming(unknown) if unknown else {}

    def _made(self, system: str) -> SystemProducer:
        producer = super()._made(system)
        holding = _transactional(
            self._config, system, producer, self._checkpoints, f"systems.{system}.samza.factory"
        )
        holding.hold()
        self._holding.append(holding)
        return producer

    def _sender_of_columns(self, stream: SystemStream) -> SendColumns | None:
        return None

    def _sender(self, stream: SystemStream) -> Sender:
        hold = super()._sender(stream)
        is_input = stream in self._inputs

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            hold(source, envelope, key, message, partition)
            size = _OVERHEAD
            if type(key) is bytes:
                size += len(key)
            if type(message) is bytes:
                size += len(message)
            if envelope.headers:
                size += sum(len(name) + len(value) for name, value in envelope.headers.items())
            self._pending += size
            # A container of this job may wait for it: an idle loop then commits (``flush``).
            if is_input:
                self._is_awaited = True
            if self._pending >= self._limit:
                self._on_full()

        return send


def _transactional(
    config: Config, system: str, producer: SystemProducer, checkpoints: CheckpointManager, key: str,
    what: str = "",
) -> Transactional:  # fmt: skip
    """The producer, which can be committed together with the checkpoints. Raises ConfigError where not.
    ``what``: the use of its system."""
    kind = producer.atomic if isinstance(producer, Transactional) else None
    if isinstance(producer, Transactional) and kind is not None and kind == checkpoints.atomic:
        return producer
    raise config.error(
        key,
        f"{_GUARANTEE}=exactly-once writes outputs, changelogs and checkpoints in one atomic step, and the "
        f"checkpoints are in {'a log' if checkpoints.atomic == 'log' else checkpoints.atomic}: '{system}' is "
        f"another kind of system{f' ({kind})' if kind else ''}{what}. Use log systems, or one "
        f"Kafka, for all of them (task.checkpoint.system, too), or set {_GUARANTEE}=at-least-once",
    )
