"""The embedded log: durable, partitioned, append-only, in a directory, as Arrow files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streambench.system.log.factory import LogSystemFactory, log_of

if TYPE_CHECKING:
    from streambench.system.log.admin import LogAdmin
    from streambench.system.log.consumer import LogConsumer
    from streambench.system.log.cursor import Cursor
    from streambench.system.log.partition import Partition
    from streambench.system.log.producer import LogProducer
    from streambench.system.log.settings import Settings
    from streambench.system.log.streams import Log, LogStream, open_log

_HOMES = {
    "Cursor": "cursor",
    "Log": "streams",
    "LogAdmin": "admin",
    "LogConsumer": "consumer",
    "LogProducer": "producer",
    "LogStream": "streams",
    "Partition": "partition",
    "Settings": "settings",
    "open_log": "streams",
}

__all__ = [
    "Cursor",
    "Log",
    "LogAdmin",
    "LogConsumer",
    "LogProducer",
    "LogStream",
    "LogSystemFactory",
    "Partition",
    "Settings",
    "log_of",
    "open_log",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'streambench.system.log' has no attribute '{name}'")
    # Late: they bring Arrow, for which code that only asks for settings does not wait.
    return getattr(import_module(f"streambench.system.log.{home}"), name)
