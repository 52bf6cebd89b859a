"""The simple plug-in: a system that reads one partition with one method and writes with one method. Begin at
``PullSystemFactory``."""

from streambench.system.pull.api import StreamConsumer, StreamMessage, StreamProducer
from streambench.system.pull.factory import PullSystemFactory

__all__ = ["PullSystemFactory", "StreamConsumer", "StreamMessage", "StreamProducer"]
