"""The parts of a container that repeats a recorded run: its chooser, its clock, its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from streambench.checkpoint.api import Checkpoint
from streambench.chooser.api import MessageChooser
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.outbox import StoreChanges, TaskCommit
from streambench.container.outputs.traced_send import sent_noter, split_by_fate
from streambench.container.trace import Callback, Sent
from streambench.debug.history.batches import Batches
from streambench.debug.history.round_robin import with_round_robin_number
from streambench.errors import StreambenchError
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.serde.streams import StreamSerdes


class ScriptedChooser(MessageChooser):
    """Chooses in a recorded order. ``position``: that of the message chosen last, which is ``last``."""

    def __init__(
        self, order: Iterator[tuple[int, SystemStreamPartition]], position: int, batches: Batches
    ) -> None:
        """``order``: the positions of the messages, each with its partition."""
        self.position = position
        self.last: IncomingMessageEnvelope | None = None
        self._order = order
        self._batches = batches
        self._inside: dict[SystemStreamPartition, IncomingMessageEnvelope] = {}

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        self._inside[envelope.ssp] = envelope

    def choose(self) -> IncomingMessageEnvelope | None:
        following = next(self._order, None)
        if following is None:
            return None
        position, ssp = following
        envelope = self._inside.pop(ssp, None)
        if envelope is None:
            raise StreambenchError(f"the history has no message of {ssp} for position {position}")
        self.position = position
        self.last = envelope
        return envelope

    def take_batch(self, offsets: Sequence[str]) -> int:
        """The rest of the batch as it was recorded."""
        count = self._batches.count(self.position)
        for position, _ in islice(self._order, count - 1):
            self.position = position
        return count


class ScriptedClock:
    """Shows the time as it was recorded; nothing becomes due by it."""

    def __init__(self, read: Callable[[], int]) -> None:
        """``read``: the time in milliseconds, as it was recorded."""
        self._read = read

    def now_ms(self) -> int:
        return self._read()

    def monotonic_ns(self) -> int:
        return 0


class HeldOutputs:
    """An outbox that keeps outputs and writes nothing. ``sent``: the outputs, each with its position.
    ``callback``: that which sends what comes from no message. ``check_output``: false for an
    output that cannot be sent and is left out, or a dead letter; None to take all."""

    commits_all_tasks = False
    can_defer = False
    failed_index = 0
    unflushed = 0
    streams: Mapping[SystemStream, int] = {}
    size_limits: Mapping[SystemStream, int] = {}

    def __init__(
        self, serdes: StreamSerdes, position: Callable[[], int], keyless: Mapping[SystemStream, int]
    ) -> None:
        """``keyless``: per stream, the messages without a key that were sent before."""
        self.keyless = dict(keyless)
        self.sent: list[tuple[int, Sent]] = []
        self.callback: Callback = "window"
        self.check_output: Callable[[str, Any], bool] | None = None
        self._serdes = serdes
        self._note = sent_noter(serdes, position)
        self._position = position

    def start(
        self,
        sources: Sequence[str],
        fenced: Mapping[str, Sequence[SystemStreamPartition]],
        generation: int,
        epoch: int,
    ) -> None:
        """Nothing to do."""

    def send(self, collected: Collected) -> None:
        position, own = self._position(), len(collected)
        # The check adds dead letters to the list.
        for index, item in enumerate(collected):
            self.failed_index = index
            can_be_sent = self.check_output is None or self.check_output(*item[:2])
            sent = self._note(item)
            if index >= own:
                sent.fate = "letter" if can_be_sent else "cut"
            elif not can_be_sent:
                sent.fate = "refused"
            if isinstance(sent.at, int):
                sent.callback = self.callback
            sent.at = position
            for each in split_by_fate(sent):
                self.sent.append((position, with_round_robin_number(each, self.keyless, self._serdes)))

    def observe(self) -> None:
        """Nothing to do: nothing observes a replica."""

    def apply_limits(self) -> None:
        """Nothing to do."""

    def flush(self) -> bool:
        return False

    def commit(self, commits: Sequence[TaskCommit], now_ms: int) -> Mapping[str, Checkpoint]:
        return {}

    def write_changes(self, changes: Sequence[StoreChanges]) -> None:
        """Nothing to do."""

    def check(self) -> None:
        """Nothing to do."""

    def close_for_writes(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""
