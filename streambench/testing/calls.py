"""The calls of a container as events: what the user's code was given, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streambench.batch import MessageBatch
from streambench.checkpoint.api import Checkpoint
from streambench.container.observer import ContainerObserver, Given, SentOutput
from streambench.model import IncomingMessageEnvelope


class CallObserver(ContainerObserver):
    """Calls ``note(event, task, detail)`` for each event that ``streambench.testing.Call`` describes, and
    with the event ``ignored`` for each message at which an exception was ignored."""

    def __init__(self, note: Callable[[str, str, str | None], object]) -> None:
        self._note = note

    def hook_called(self, task: str, hook: str, envelope: IncomingMessageEnvelope | None) -> None:
        self._note(hook, task, None if envelope is None else f"{envelope.ssp}@{envelope.offset}")

    def callback_begun(self, task: str, callback: str, given: Given) -> None:
        if given is None:
            self._note(callback, task, None)
        for place in _places(given):
            self._note("process", task, place)

    def failure_ignored(self, task: str, callback: str, given: Given, error: Exception) -> None:
        for place in _places(given):
            self._note("ignored", task, place)

    def output_sent(self, output: SentOutput) -> None:
        self._note("send", output.task, str(output.envelope.system_stream))

    def commit_made(self, tasks: Sequence[str], checkpoints: Mapping[str, Checkpoint]) -> None:
        for task in tasks:
            self._note("commit", task, None)


def _places(given: Given) -> list[str]:
    """The messages of a callback, as ``ssp@offset``."""
    if isinstance(given, MessageBatch):
        return [f"{given.ssp}@{given.offset(at)}" for at in range(len(given))]
    return [] if given is None else [f"{given.ssp}@{given.offset}"]
