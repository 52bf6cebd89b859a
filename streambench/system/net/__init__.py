"""Direct communication, from a producer to a consumer, over the network: the systems ``tcp`` and ``udp``.
Begin at their factories."""

from streambench.system.net.factory import TcpSystemFactory, UdpSystemFactory

__all__ = ["TcpSystemFactory", "UdpSystemFactory"]
