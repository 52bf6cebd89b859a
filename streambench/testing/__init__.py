"""For the tests of stream tasks.

Run a job in this process, on streams in memory, with a clock in hand, and look at everything it did."""

from streambench.testing.clock import ManualClock
from streambench.testing.run import Call, JobRun, run_job

__all__ = ["Call", "JobRun", "ManualClock", "run_job"]
