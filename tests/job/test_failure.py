"""Failures on their way from one process to another."""

from __future__ import annotations

from streambench.errors import TaskError
from streambench.job.failure import Failure


class Torn:
    def __repr__(self) -> str:
        raise RuntimeError("torn")


def test_whatever_an_exception_or_a_key_says_can_be_written() -> None:
    assert Failure.of(ValueError("\udc80"), 3).text == "ValueError: \\udc80"
    key = Failure.of(TaskError("no good", task="Partition 0", key=Torn()), 0).key
    assert key is not None and "Torn" in key
