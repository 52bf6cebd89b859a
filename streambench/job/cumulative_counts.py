"""Counts of a container over all of its starts; each start begins at 0."""

from __future__ import annotations

from msgspec import structs

from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.job.result import ContainerRun


class CumulativeCounts:
    """Adds up what was counted in starts that have ended: ``messages`` that were processed, and
    ``error_counts``."""

    def __init__(self) -> None:
        self.messages = 0
        self.passed_over = ErrorCounts()

    def add(self, messages: int, passed_over: ErrorCounts) -> None:
        """Count a start that has ended."""
        self.messages += messages
        self.passed_over += passed_over

    def over(self, snapshot: ContainerSnapshot) -> ContainerSnapshot:
        """A snapshot of the present start, with what was done before it."""
        passed_over = self.passed_over + snapshot.error_counts
        return structs.replace(
            snapshot, processed=self.messages + snapshot.processed, error_counts=passed_over
        )

    def of(self, run: ContainerRun) -> ContainerRun:
        """Counts of the last start and of those before it."""
        return structs.replace(
            run, messages=self.messages + run.messages, passed_over=self.passed_over + run.passed_over
        )
