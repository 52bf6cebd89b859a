"""From the configuration to the chooser of a container, with only the layers that it needs.

The stack from the inside out: one chooser per level of priority, batches, the bootstrap gate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from streambench import load
from streambench.chooser.api import MessageChooser, MessageChooserFactory
from streambench.chooser.batching import BatchingChooser
from streambench.chooser.bootstrapping import BootstrappingChooser, Compare
from streambench.chooser.tiered import TieredPriorityChooser
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import PartitionMetadata, SystemStream

GROUP = "streambench.choosers"
"""The entry-point group by which a package adds a chooser."""

_KEY = "task.chooser.class"
_BUILTIN = {"round-robin": "streambench.chooser.round_robin:RoundRobinChooser"}


def wire_chooser(
    config: Config,
    inputs: Collection[SystemStream],
    metadata: Mapping[SystemStream, Mapping[int, PartitionMetadata]],
    metrics: MetricsRegistry,
    compare: Compare,
) -> MessageChooser:
    """The chooser for these inputs. ``metadata``: what they held when the container started. Raises ConfigError."""
    make = _maker(config, metrics)
    priorities = _priorities(config, inputs)
    chooser = make()
    if priorities:
        chooser = TieredPriorityChooser(priorities, {level: make() for level in sorted(set(priorities.values()))}, chooser)
    size = config.integer("task.consumer.batch.size")
    if size != 1:
        chooser = BatchingChooser(chooser, size)
    bootstrap = {stream: metadata[stream] for stream in inputs if config.boolean(_stream_key(stream, "bootstrap"))}
    if bootstrap:
        chooser = BootstrappingChooser(chooser, bootstrap, priorities=priorities, compare=compare)
    return chooser


def _maker(config: Config, metrics: MetricsRegistry) -> Callable[[], MessageChooser]:
    named = load.named(config, _KEY, group=GROUP, builtin=_BUILTIN)

    def make() -> MessageChooser:
        made = named() if isinstance(named, type) else named
        if isinstance(made, MessageChooserFactory):
            made = made.get_chooser(config, metrics)
        if not (callable(getattr(made, "update", None)) and callable(getattr(made, "choose", None))):
            raise config.error(_KEY, f"{config.text(_KEY)} is neither a MessageChooser nor a MessageChooserFactory")
        chooser: MessageChooser = made
        return chooser

    return make


def _priorities(config: Config, inputs: Collection[SystemStream]) -> dict[SystemStream, int]:
    """The explicit priorities; a negative one is none."""
    found = {stream: config.integer(_stream_key(stream, "priority")) for stream in inputs}
    return {stream: priority for stream, priority in found.items() if priority >= 0}


def _stream_key(stream: SystemStream, name: str) -> str:
    return f"systems.{stream.system}.streams.{stream.stream}.samza.{name}"
