"""The streams of a job that have a purpose already: nothing else may be written to them."""

from __future__ import annotations

from streambench.config import Config
from streambench.model import SystemStream
from streambench.planning.plan import all_inputs
from streambench.planning.store_definitions import changelogs
from streambench.serde.streams import dead_letter_stream
from streambench.system.capabilities import CheckpointStreams
from streambench.system.systems import Systems


def reserved_streams(config: Config, job: str, systems: Systems) -> dict[SystemStream, str]:
    """Uses of streams, in words: those of the inputs of a job, its dead-letter stream and its changelogs.

    Where an input is landed, the stream of the log that keeps it is among them.

    Raises ConfigError where a changelog is one of the others, or holds checkpoints. State among other
    messages spoils both, for this job and for all others that read the stream."""
    found = {}
    for stream in all_inputs(config):
        found[stream] = "an input of this job"
        target = config.text(f"systems.{stream.system}.samza.landing")
        if target is not None:
            found[SystemStream(target, str(stream))] = f"where {stream} is landed, an input of this job"
    letters = dead_letter_stream(config)
    if letters is not None:
        found.setdefault(letters, "the dead-letter stream")
    for store, changelog in changelogs(config, job, systems).items():
        other, key = found.get(changelog), f"stores.{store}.changelog"
        factory = systems.factory(changelog.system, key=key)
        if isinstance(factory, CheckpointStreams) and factory.holds_checkpoints(changelog.stream):
            other = other or "for the checkpoints of a job"
        if other is not None:
            what = (
                f"{changelog} is {other}, and a changelog holds nothing but the state of its store: "
                "name another stream"
            )
            raise config.error(key, what)
        found[changelog] = f"the changelog of the store '{store}'"
    return found
