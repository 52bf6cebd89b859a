"""What a container has done in all of its starts together: each of them counts from 0 on."""

from __future__ import annotations

from msgspec import structs

from streambench.container.rejects import PassedOver
from streambench.container.snapshot import ContainerSnapshot
from streambench.job.result import ContainerRun


class Tally:
    """Adds up what was counted in starts that have ended: ``messages`` that were processed, and ``passed_over``."""

    def __init__(self) -> None:
        self.messages = 0
        self.passed_over = PassedOver()

    def add(self, messages: int, passed_over: PassedOver) -> None:
        """Count a start that has ended."""
        self.messages += messages
        self.passed_over += passed_over

    def over(self, snapshot: ContainerSnapshot) -> ContainerSnapshot:
        """A snapshot of the present start, with what was done before it."""
        passed_over = self.passed_over + snapshot.passed_over
        return structs.replace(snapshot, processed=self.messages + snapshot.processed, passed_over=passed_over)

    def of(self, run: ContainerRun) -> ContainerRun:
        """What the last start did, with what was done before it."""
        return structs.replace(run, messages=self.messages + run.messages, passed_over=self.passed_over + run.passed_over)
