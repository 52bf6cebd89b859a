"""Landing: streams of systems that keep nothing are received into a log, made durable, acknowledged, and read
from there.

With ``systems.x.samza.landing=log`` the inputs ``x.orders`` of a job keep their names. What its tasks read is
the stream ``x.orders`` of the log, with offsets, checkpoints, replay and exactly-once. A *receiver* drives
the ordinary consumer of ``x``, appends what it delivers, forces it to the disk, and acknowledges it then.
Each stream has one at a time, in one of the containers of the job or in a process of its own (``streambench
land``). Another one takes over where it ends.
"""

from streambench.system.landing.factory import LandedSystemFactory, landed, landing_key, receiver_of
from streambench.system.landing.receiver import Receiver

__all__ = ["LandedSystemFactory", "Receiver", "landed", "landing_key", "receiver_of"]
