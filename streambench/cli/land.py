"""``streambench land``: receive what is landed, while the job itself is stopped, or is stepped."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from streambench.cli.job import JobOption, JsonOption, complete_words, split_job, stream_named, systems_of
from streambench.cli.output import print_json
from streambench.config import Config
from streambench.counts import counted
from streambench.errors import ConfigError
from streambench.job.signals import StopSignals
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream
from streambench.planning.plan import all_inputs

if TYPE_CHECKING:
    from streambench.system.landing.receiver import Holders, Receiver

_EVERY_S = 5.0
_LOOK_S = 0.25


def land(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB.properties] [SYSTEM.STREAM...]", show_default=False, autocompletion=complete_words
        ),
    ] = None,
    config: JobOption = None,
    json: JsonOption = False,
) -> None:
    """Receive streams into the log in which they are landed (systems.<s>.samza.landing), until Ctrl-C;
    without names, the job's inputs.

    A job that runs receives by itself. This receives while it does not, or when it is stepped; a job that is
    started meanwhile reads what is landed here. Each stream has one receiver at a time: where another process
    has it, this one waits to take over.

    Examples:

        streambench land job.properties

        streambench land -c job.properties hook.orders hook.payments
    """
    settings, names = split_job(config, words)
    streams = _landed(settings, [stream_named(name) for name in names])
    lines = _Lines(as_json=json)
    from streambench.system.landing import receiver_of  # it needs the log, as few commands do

    with systems_of(settings) as systems:
        receivers = []
        for system in sorted({stream.system for stream in streams}):
            of_system = [stream for stream in streams if stream.system == system]
            made = receiver_of(systems, settings, system, MetricsRegistry(), of_system, "streambench land")
            receivers.append(made)
        systems.metadata(streams)  # that one of them is not there is to be said before anything else
        for receiver in receivers:
            receiver.on_holders(partial(lines.holders, receiver))
        try:
            _receive(receivers, lines)
        finally:
            lines.ended(receivers)


def _landed(config: Config, named: list[SystemStream]) -> list[SystemStream]:
    """The streams to receive. Raises ConfigError where there is none, or one of them is not landed."""
    streams = named or [
        each for each in all_inputs(config) if config.text(f"systems.{each.system}.samza.landing") is not None
    ]
    if not streams:
        raise ConfigError(
            "none of the inputs is landed: name a log system in systems.<s>.samza.landing of those that are "
            "to be"
        )
    return list(dict.fromkeys(streams))


def _receive(receivers: list[Receiver], lines: _Lines) -> None:
    stop = threading.Event()
    problems: list[BaseException] = []

    def receive(receiver: Receiver) -> None:
        try:
            receiver.run(stop)
        except BaseException as error:
            problems.append(error)
            stop.set()

    threads = [
        threading.Thread(target=receive, args=(each,), name=f"receiver of {each.system}")
        for each in receivers
    ]
    with StopSignals(stop.set):
        for thread in threads:
            thread.start()
        try:
            while not stop.wait(_LOOK_S):
                lines.progress(receivers)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    if problems:
        raise problems[0]


class _Lines:
    """The lines on the console meanwhile: the receivers when they change, and now and then how much was
    landed, if it was anything."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._reported: dict[str, int] = {}
        self._next = time.monotonic() + _EVERY_S
        self._lock = threading.Lock()

    def holders(self, receiver: Receiver, holders: Holders) -> None:
        for stream, holder in holders.items():
            if holder:
                text = f"{stream} is received by {holder}; this one waits to take over"
                self._say(text, "waiting", stream=stream, holder=holder)
            else:
                text = f"{stream} is received, and landed in {receiver.target}.{stream}"
                self._say(text, "receiving", stream=stream)

    def progress(self, receivers: list[Receiver]) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _EVERY_S
            for receiver in receivers:
                if receiver.landed.count != self._reported.get(receiver.system, 0):
                    self._landed(receiver)

    def ended(self, receivers: list[Receiver]) -> None:
        for receiver in receivers:
            self._landed(receiver)

    def _landed(self, receiver: Receiver) -> None:
        count = self._reported[receiver.system] = int(receiver.landed.count)
        refused = int(receiver.refused.count)
        text = f"{receiver.system}: {counted(count, 'message')} landed"
        figures = {"messages": count}
        if refused:
            text, figures = f"{text}, {refused} refused", {**figures, "refused": refused}
        self._say(text, "landed", system=receiver.system, **figures)

    def _say(self, text: str, event: str, **what: object) -> None:
        """Print a line: a text, or the event with what belongs to it, for programs."""
        with self._lock:
            if self._as_json:
                print_json({"event": event, **what})
            else:
                print(text)
            sys.stdout.flush()
