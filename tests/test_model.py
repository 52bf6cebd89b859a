"""Names of streams and partitions, and the messages between them."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import ConfigError
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)

SYSTEMS = st.text("abcXYZ019_-", min_size=1, max_size=8)
STREAMS = st.text("abcXYZ019_-.", min_size=1, max_size=12).filter(lambda name: not name.startswith("."))


@given(SYSTEMS, STREAMS)
def test_a_stream_parses_as_it_prints(system: str, stream: str) -> None:
    assert SystemStream.parse(str(SystemStream(system, stream))) == SystemStream(system, stream)


@given(SYSTEMS, STREAMS, st.integers(0, 2**31 - 1))
def test_a_partition_parses_as_it_prints(system: str, stream: str, partition: int) -> None:
    ssp = SystemStreamPartition(system, stream, partition)
    assert SystemStreamPartition.parse(str(ssp)) == ssp


def test_only_the_first_dot_ends_the_name_of_the_system() -> None:
    assert SystemStream.parse("kafka.eu.clicks.v2") == SystemStream("kafka", "eu.clicks.v2")
    assert SystemStreamPartition.parse("kafka.eu.clicks.2.7") == SystemStreamPartition(
        "kafka", "eu.clicks.2", 7
    )


def test_blanks_around_a_name_are_not_part_of_it() -> None:
    assert SystemStream.parse("  log.clicks ") == SystemStream("log", "clicks")
    assert SystemStreamPartition.parse(" log.clicks.1\n") == SystemStreamPartition("log", "clicks", 1)


@pytest.mark.parametrize("text", ["", "clicks", ".clicks", "log.", "."])
def test_what_is_no_stream_is_reported_with_the_form_to_write(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a stream: write it as system\.stream"):
        SystemStream.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "log", "log.clicks", "log.clicks.", "log.clicks.x", "log.clicks.-1", ".clicks.0", "log..0", "log.0"],
)
def test_what_is_no_partition_is_reported_with_the_form_to_write(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a partition: write it as system\.stream\.partition"):
        SystemStreamPartition.parse(text)


def test_partitions_are_ordered_by_system_stream_and_number() -> None:
    names = ["b.a.0", "a.b.10", "a.b.2", "a.a.3"]
    assert [str(ssp) for ssp in sorted(map(SystemStreamPartition.parse, names))] == [
        "a.a.3",
        "a.b.2",
        "a.b.10",
        "b.a.0",
    ]


def test_a_partition_knows_its_stream() -> None:
    assert SystemStreamPartition("log", "clicks", 3).system_stream == SystemStream("log", "clicks")


def test_names_and_envelopes_are_immutable() -> None:
    ssp = SystemStreamPartition("log", "clicks", 0)
    with pytest.raises(AttributeError):
        ssp.partition = 1  # type: ignore[misc]
    with pytest.raises(AttributeError):
        IncomingMessageEnvelope(ssp, "0", None, "x").message = "y"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        OutgoingMessageEnvelope(ssp.system_stream, "x").message = "y"  # type: ignore[misc]


def test_what_need_not_be_said_of_an_envelope_is_none() -> None:
    came = IncomingMessageEnvelope(SystemStreamPartition("log", "clicks", 0), "7", b"k", b"m")
    assert (came.timestamp, came.headers) == (None, None)
    goes = OutgoingMessageEnvelope(SystemStream("log", "clicks"), "m")
    assert (goes.key, goes.partition_key, goes.partition, goes.timestamp, goes.headers) == (
        None,
        None,
        None,
        None,
        None,
    )


def test_the_hash_of_a_partition_does_not_travel_to_another_process() -> None:
    """It is remembered in the object, but text hashes differently in every process: a pickle must not carry
    it."""
    ssp = SystemStreamPartition("log", "clicks", 3)
    hash(ssp)
    look_up = (
        "import pickle, sys; from streambench.model import SystemStreamPartition as P\n"
        "sent = pickle.loads(bytes.fromhex(sys.argv[1])); assert {P('log', 'clicks', 3): 1}[sent] == 1"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", look_up, pickle.dumps(ssp).hex()],
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        )


def test_envelopes_and_metadata_survive_pickling() -> None:
    ssp = SystemStreamPartition("log", "clicks", 0)
    for value in (
        IncomingMessageEnvelope(ssp, "0", "k", {"n": 1}, 5, {"h": b"1"}),
        OutgoingMessageEnvelope(ssp.system_stream, {"n": 1}, "k", "p", 2, 5, {"h": b"1"}),
        PartitionMetadata("0", "9", "10"),
    ):
        assert pickle.loads(pickle.dumps(value)) == value
