"""The view of a log that shows the streams of one landed system, under their names in that system."""

from __future__ import annotations

from streambench.errors import UnknownStreamError
from streambench.system.log.streams import Log, LogStream


class LandedLog(Log):
    """A log of which only the streams of one landed system are seen: its ``orders`` is the stream
    ``x.orders`` of the log."""

    def __init__(self, log: Log, system: str) -> None:
        super().__init__(log.path, log.name, log.settings, log.streams_settings)
        self.system = system

    def landed_name(self, name: str) -> str:
        """The name in the log of a stream of the system."""
        return f"{self.system}.{name}"

    def stream(self, name: str) -> LogStream:
        """A stream of which something was landed. Raises UnknownStreamError."""
        try:
            return super().stream(self.landed_name(name))
        except UnknownStreamError:
            raise UnknownStreamError(
                f"nothing of {self.system}.{name} has been landed yet in the log '{self.name}' "
                f"({self.path}): a job that reads it, or "
                "'streambench land', receives it"
            ) from None

    def streams(self) -> list[str]:
        """The names in the system of what was landed, sorted."""
        prefix = self.landed_name("")
        return [name.removeprefix(prefix) for name in super().streams() if name.startswith(prefix)]
