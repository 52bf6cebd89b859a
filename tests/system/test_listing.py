"""Who is asked for streams, and who does not answer."""

from __future__ import annotations

import threading

import pytest

from streambench.config import Config
from streambench.errors import StreamSystemError
from streambench.model import SystemStream
from streambench.system.listing import listing, streams_of
from tests.system.listed import Numbered, streams

ended = threading.Event()


class Slow(Numbered):
    def streams(self, system: str, config: Config) -> list[str]:
        ended.wait()
        return []


class Broken(Numbered):
    def streams(self, system: str, config: Config) -> list[str]:
        raise ValueError("no such luck")


@pytest.fixture(autouse=True)
def few_streams() -> object:
    streams["there"] = [[]]
    ended.clear()
    yield
    ended.set()
    streams.clear()


def config(**kinds: str) -> Config:
    return Config(
        {f"systems.{name}.samza.factory": f"tests.system.{kind}" for name, kind in kinds.items()}
        | {"task.inputs": "o.named"}
    )


def test_one_that_does_not_answer_is_left_behind_and_named() -> None:
    found = listing(config(slow="test_listing.Slow", well="listed.Numbered"), patience_s=0.3)
    assert SystemStream("well", "there") in found.streams
    assert [str(problem) for problem in found.problems] == [
        "the system 'slow' did not list its streams within 0.3 seconds"
    ]


def test_what_a_plug_in_raises_is_told_with_its_system() -> None:
    (problem,) = streams_of([(config(bad="test_listing.Broken"), "bad")], patience_s=30)
    assert isinstance(problem, StreamSystemError)
    assert "'bad' cannot list its streams" in str(problem) and "no such luck" in str(problem)


def test_of_a_system_that_tells_none_the_inputs_are_known() -> None:
    assert listing(config(o="listed.Opaque"), patience_s=30).streams == [SystemStream("o", "named")]
