"""Contract tests of every system: for the systems of this package, and for those of
plug-ins."""

from streambench.testing.systems.deliveries import Deliveries
from streambench.testing.systems.harness import SystemUnderTest
from streambench.testing.systems.lives import Lives
from streambench.testing.systems.messages import Messages
from streambench.testing.systems.offsets import Offsets
from streambench.testing.systems.polling import Polling
from streambench.testing.systems.refusals import Refusals
from streambench.testing.systems.streams import Streams

__all__ = ["SystemContract", "SystemUnderTest"]


class SystemContract(Messages, Offsets, Polling, Lives, Streams, Deliveries, Refusals):
    """The contract of a system. Derive a test class from it that says how it is configured, and pytest runs
    its tests::

        class TestMySystem(SystemContract):
            headers = False

            def settings(self, directory):
                return {"samza.factory": "my_package.MySystemFactory", "path": directory / "data"}

    The class attributes say what the system has; tests of what it does not have are left out. Streams are
    made with ``create``: override it where the system's admin cannot.
    """
