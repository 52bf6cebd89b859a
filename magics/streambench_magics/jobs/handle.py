"""The value of ``%stream job NAME``: a job for the code of a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambench.debug.control.session import Session
from streambench.debug.effects.effects import Effects
from streambench.debug.effects.events import Output
from streambench.debug.history.position_metrics import Metrics
from streambench_magics.errors import MagicError
from streambench_magics.jobs.jobs import Job


class JobHandle:
    """A job of the notebook. ``session`` has everything: stepping, breakpoints, time travel.

    It follows the job of its name: through stops and starts, and where it is created again. Raises
    MagicError where the job has not started."""

    def __init__(self, name: str, jobs: Mapping[str, Job]) -> None:
        """``jobs``: those of the notebook by their names."""
        self.name = name
        self._jobs = jobs

    @property
    def _of(self) -> Job:
        return self._jobs[self.name]

    @property
    def session(self) -> Session:
        """The session over the job's container, the newest one."""
        if self._of.session is None:
            raise MagicError(f"{self.name} is new: %stream step {self.name} starts it")
        return self._of.session

    @property
    def status(self) -> str:
        """new, paused, running, stopped or failed."""
        return self._of.state

    @property
    def state(self) -> dict[str, dict[str, dict[Any, Any]]]:
        """The keys and values of each store of each task."""
        return self.session.stores()

    @property
    def outputs(self) -> list[Output]:
        """The messages that its tasks sent, as many as the history has."""
        return self.session.outputs()

    @property
    def metrics(self) -> Metrics:
        """The metrics at its position, by name."""
        return self.session.metrics()

    @property
    def last(self) -> Effects:
        """The effects of the message processed last."""
        return self.session.last

    def __repr__(self) -> str:
        session = self._of.session
        at = "" if session is None else f", at {session.position:,}"
        return f"<job {self.name}: {self.status}{at}>"
