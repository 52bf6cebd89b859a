"""The embedded log: durable, partitioned, append-only, in a directory, as Arrow files."""

from streambench.system.log.admin import LogAdmin
from streambench.system.log.consumer import LogConsumer
from streambench.system.log.cursor import Cursor
from streambench.system.log.factory import LogSystemFactory, log_of
from streambench.system.log.partition import Partition
from streambench.system.log.producer import LogProducer
from streambench.system.log.settings import Settings
from streambench.system.log.streams import Log, LogStream, open_log

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
