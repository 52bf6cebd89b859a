"""From the configuration to the chooser of a container.

The stack from the inside out: priorities, batches, bootstrap gate; of these only what the configuration asks
for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from streambench import imports as load
from streambench.chooser.api import MessageChooser, MessageChooserFactory
from streambench.chooser.batching import BatchingChooser
from streambench.chooser.bootstrapping import BootstrappingChooser, Compare
from streambench.chooser.checked import CheckedChooser
from streambench.chooser.tiered import TieredPriorityChooser
from streambench.clock import Clock, SystemClock
from streambench.config import Config
from streambench.errors import described
from streambench.metrics.registry import MetricsRegistry
from streambench.model import PartitionMetadata, SystemStream

GROUP = "streambench.choosers"
"""The group of entry points by which a package adds choosers."""

_CLASS = "task.chooser.class"
_OURS = "streambench."
_BUILTIN = {"round-robin": "streambench.chooser.round_robin:RoundRobinChooser"}


def wire_chooser(
    config: Config,
    inputs: Collection[SystemStream],
    bootstrap_metadata: Mapping[SystemStream, Mapping[int, PartitionMetadata]],
    metrics: MetricsRegistry,
    compare: Compare | Mapping[str, Compare] | None,
    clock: Clock | None = None,
) -> MessageChooser:
    """The chooser for these inputs, broadcast ones included.

    ``bootstrap_metadata``: what the partitions of the bootstrap streams (at least) held when the container
    started. ``compare`` compares two offsets of one partition, or has such a function by the name of each
    system (None: as numbers). A chooser that is not ours is checked with every message, the others cost
    nothing for it. Raises ConfigError.
    """
    priorities = {
        stream: number
        for stream in inputs
        if (number := config.integer(_stream_key(stream, "priority"))) >= 0
    }
    bootstrap = {
        stream: bootstrap_metadata[stream]
        for stream in inputs
        if config.boolean(_stream_key(stream, "bootstrap"))
    }
    batch_size = config.integer("task.consumer.batch.size")
    chooser = _tiers(_maker(config, metrics, clock or SystemClock()), inputs, priorities)
    if batch_size > 1:
        chooser = BatchingChooser(chooser, batch_size)
    if bootstrap:
        chooser = BootstrappingChooser(chooser, bootstrap, priorities=priorities, compare=compare)
    return chooser


def _tiers(
    make: Callable[[], MessageChooser],
    inputs: Collection[SystemStream],
    priorities: Mapping[SystemStream, int],
) -> MessageChooser:
    """One chooser for each priority; where all inputs have the same there is nothing to put in order."""
    levels = sorted({priorities.get(stream, -1) for stream in inputs}, reverse=True)
    if len(levels) <= 1:
        return make()
    choosers = {level: make() for level in levels}
    default = choosers.pop(-1, None)
    return TieredPriorityChooser(priorities, choosers, default)


def _maker(config: Config, metrics: MetricsRegistry, clock: Clock) -> Callable[[], MessageChooser]:
    """Return a function that makes choosers of the configured kind; each call gives another one."""
    kind = load.resolve(config, _CLASS, group=GROUP, builtin=_BUILTIN)
    made: list[Any] = []

    def make() -> MessageChooser:
        chooser = create()
        if not isinstance(chooser, MessageChooser):
            raise config.error(
                _CLASS, f"{kind.__name__}.get_chooser gave a {type(chooser).__name__}, not a MessageChooser"
            )
        if any(chooser is other for other in made):
            raise config.error(
                _CLASS,
                f"{kind.__name__}.get_chooser gave the same chooser twice; each priority needs one of its "
                "own",
            )
        made.append(chooser)
        # A builtin chooser from a foreign factory may have a foreign one inside.
        is_ours = all(each.__module__.startswith(_OURS) for each in (kind, type(chooser)))
        return chooser if is_ours else CheckedChooser(chooser, clock)

    create: Callable[[], Any]
    if isinstance(kind, type) and issubclass(kind, MessageChooser):
        create = partial(_called, config, kind)
    elif isinstance(kind, type) and issubclass(kind, MessageChooserFactory):
        create = partial(
            _called, config, load.call_promised, _called(config, kind).get_chooser, 0, config, metrics
        )
    else:
        raise config.error(
            _CLASS,
            f"{config.text(_CLASS)} is neither a MessageChooser class nor a MessageChooserFactory class",
        )
    return make


def _called(config: Config, what: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return what(*arguments)
    except Exception as error:
        raise config.error(
            _CLASS, f"{config.text(_CLASS)} cannot make a chooser: {described(error)}"
        ) from error


def _stream_key(stream: SystemStream, name: str) -> str:
    return f"systems.{stream.system}.streams.{stream.stream}.samza.{name}"
