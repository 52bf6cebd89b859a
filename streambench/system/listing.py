"""Listings of streams that do not wait for systems which do not answer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from streambench.config import Config
from streambench.errors import ConfigError, StreambenchError, StreamSystemError, described
from streambench.model import SystemStream
from streambench.system.systems import Systems


class Listing(NamedTuple):
    """The streams of several systems, sorted, and why those of some are not known."""

    streams: list[SystemStream]
    problems: list[StreambenchError]


def listing(config: Config, systems: Sequence[str] | None = None, *, patience_s: float) -> Listing:
    """The streams of these systems, else of all that the configuration defines.

    Of a system that cannot list its streams, these are those that the configuration names as inputs, whether
    they exist or not. All systems together are given so many seconds."""
    asked = systems if systems is not None else config.names_below("systems.")
    named = named_inputs(config)
    streams: set[SystemStream] = set()
    problems = []
    for system, answer in zip(
        asked, streams_of([(config, system) for system in asked], patience_s=patience_s), strict=True
    ):
        if isinstance(answer, StreambenchError):
            problems.append(answer)
        else:
            streams.update(answer or (stream for stream in named if stream.system == system))
    return Listing(sorted(streams), problems)


def named_inputs(config: Config) -> list[SystemStream]:
    """The streams that the configuration names as inputs, where they are well-formed."""
    found = []
    for name in (
        *config.names("task.inputs"),
        *(each.split("#")[0] for each in config.names("task.broadcast.inputs")),
    ):
        try:
            found.append(SystemStream.parse(name))
        except ConfigError:
            continue
    return found


def streams_of(
    wanted: Iterable[tuple[Config, str]], *, patience_s: float
) -> list[list[SystemStream] | StreambenchError]:
    """Ask all systems for their streams at once: the answer of each, an error where it comes too late.

    To import what a system needs does not count: on a busy machine that takes longer than to answer."""
    asked = [_Question(config, system) for config, system in wanted]
    until = time.monotonic() + patience_s
    for question in asked:
        question.join(max(0.0, until - time.monotonic()))
    late = "the system '{}' did not list its streams within {:g} seconds"
    return [
        each.answer if each.answer is not None else StreamSystemError(late.format(each.system, patience_s))
        for each in asked
    ]


class _Question(threading.Thread):
    """Asks one system; ``answer`` is None as long as there is none."""

    def __init__(self, config: Config, system: str) -> None:
        super().__init__(name=f"streams of {system}", daemon=True)
        self.system = system
        self.answer: list[SystemStream] | StreambenchError | None = None
        self._systems = Systems(config)
        with contextlib.suppress(Exception):  # it comes again, as the answer
            self._systems.factory(system)
        self.start()

    def run(self) -> None:
        systems = self._systems
        try:
            self.answer = systems.admin(self.system).streams()
        except StreambenchError as error:
            self.answer = error
        except Exception as error:
            self.answer = StreamSystemError(
                f"the system '{self.system}' cannot list its streams: {described(error)}"
            )
        finally:
            systems.close()
