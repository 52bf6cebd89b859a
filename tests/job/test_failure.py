"""Failures on their way from one process to another."""

from __future__ import annotations

import pytest

from streambench import redaction
from streambench.errors import StreambenchError, TaskError
from streambench.job.failure import Failure


class Torn:
    def __repr__(self) -> str:
        raise RuntimeError("torn")


def test_whatever_an_exception_or_a_key_says_can_be_written() -> None:
    assert Failure.of(ValueError("\udc80"), 3).text == "ValueError: \\udc80"
    key = Failure.of(TaskError("no good", task="Partition 0", key=Torn()), 0).key
    assert key is not None and "Torn" in key


def test_notes_and_lines_of_code_show_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", set())
    monkeypatch.setattr(redaction, "_pattern", None)
    redaction.remember("tok-abcdef123")
    noted = ValueError("no answer of https://x/tok-abcdef123")
    noted.add_note("the address was https://x/tok-abcdef123 \udc80")
    failure = Failure.of(noted, 0)
    assert failure.text == "ValueError: no answer of https://x/***"
    assert failure.frames == "the address was https://x/*** \\udc80"
    assert "tok-abcdef123" not in Failure.of(StreambenchError("https://x/tok-abcdef123"), 0).text
