"""A job whose checkpoints are in a journal, as tests of the journal use it."""

from __future__ import annotations

from pathlib import Path

from streambench.checkpoint.journal import JournalCheckpointManager


class Job:
    """A job's directory, and managers of it."""

    def __init__(self, directory: Path, keep: int = 10) -> None:
        self.directory = directory
        self.keep = keep
        self.managers: list[JournalCheckpointManager] = []

    def manager(self) -> JournalCheckpointManager:
        manager = JournalCheckpointManager(self.directory, "job-1", keep=self.keep)
        self.managers.append(manager)
        return manager

    def started(self, *tasks: str) -> JournalCheckpointManager:
        manager = self.manager()
        manager.claim(manager.open_generation({0: tasks or ("a", "b")}, now_ms=0).number, 0, now_ms=0)
        return manager

    def records(self, generation: int = 1) -> list[Path]:
        """The records of the container, oldest first."""
        return sorted((self.directory / f"g{generation}" / "c0").glob("*.json"))

    def files(self) -> set[str]:
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.is_file()}
