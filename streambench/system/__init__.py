"""Systems of streams: the plug-in contract and the systems that come with streambench."""

from streambench.system.api import Chunk, SystemAdmin, SystemConsumer, SystemFactory, SystemProducer

__all__ = ["Chunk", "SystemAdmin", "SystemConsumer", "SystemFactory", "SystemProducer"]
