"""Bytes that mean nothing: each serde refuses them, or reads something, and never anything worse."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import SerdeError
from streambench.serde.arrow import ArrowSerde
from streambench.serde.avro import AvroSerde
from streambench.serde.json_text import json_bytes
from streambench.testing import run_job
from tests.container.jobs import ignore
from tests.serde.test_avro import CHAIN, FLIGHT, LOGICAL
from tests.surroundings import SOAK

TABLE = pa.table(
    {
        "n": pa.array([1, 2, None]), "s": pa.array(["x", "yy", None]), "l": pa.array([[1], [], None]),
        "d": pa.array(["a", "b", "a"]).dictionary_encode(), "st": pa.array([{"q": 1}, None, {"q": 2}]),
    }
)  # fmt: skip


def compressed() -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, TABLE.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(TABLE)
    data: bytes = out.getvalue().to_pybytes()
    return data


FLIGHT_BYTES = AvroSerde(FLIGHT).to_bytes(
    {"id": 300, "carrier": "AA", "delay": 1.5, "stops": [1, 2], "raw": b"abc"}
)
RIGHT: dict[str, list[bytes]] = {
    "string": ["zürich".encode()],
    "json": [b'{"a":[1,2,{"b":null}],"c":"\\u00fc"}'],
    "integer": [b"\0\0\0\1"],
    "long": [b"\0" * 8],
    "double": [b"\0" * 8],
    "msgpack": [msgspec.msgpack.encode({"a": [1, 2, {"b": None}], "c": b"x", "d": 1.5})],
    "arrow": [ArrowSerde().to_bytes(TABLE), compressed()],
    "flight": [FLIGHT_BYTES],
    "logical": [b"\2\2\2\2\x48" + b"00000000-0000-0000-0000-000000000005"],
    "chain": [b"\2" * 20 + b"\0"],
}
SCHEMAS = {"flight": FLIGHT, "logical": LOGICAL, "chain": CHAIN}
REGISTRY = {
    f"serializers.registry.{name}.{setting}": value
    for name, schema in SCHEMAS.items()
    for setting, value in (("class", "avro"), ("schema", json.dumps(schema)))
}


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Bytes with a few of them changed, taken away, or put in."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 5)):
        at = dice.randrange(len(changed) + 1)
        kind = dice.randrange(4)
        if kind == 0:
            del changed[at : at + dice.randint(1, 8)]
        elif kind == 1:
            changed[at:at] = dice.randbytes(dice.randint(1, 8))
        else:
            changed[at : at + 1] = bytes([dice.choice([0, 1, 127, 128, 255, dice.randrange(256)])])
    return bytes(changed)


def run(name: str, messages: list[bytes]) -> None:
    """A job that gets them: each is processed or a dead letter, as it is; without dead letters the first that
    is wrong ends it."""
    config = REGISTRY | {"systems.mem.samza.msg.serde": name}
    result = run_job(ignore, config | {"task.dead.letter.stream": "mem.dead"}, {"mem.a": {0: messages}})
    read = {int(offset) for _, offset, *_ in result.processed}
    dead = [message for _, message in result.outputs.get("mem.dead", {0: []})[0]]
    assert dead == [message for at, message in enumerate(messages) if at not in read]
    if dead:
        with pytest.raises(SerdeError, match=rf"^mem\.a\.0@{messages.index(dead[0])}, "):
            run_job(ignore, config, {"mem.a": {0: messages}})


@pytest.mark.parametrize("name", sorted(RIGHT))
@given(messages=st.lists(st.binary(max_size=40), min_size=1, max_size=10))
def test_any_bytes_are_read_or_refused(name: str, messages: list[bytes]) -> None:
    run(name, messages)


@pytest.mark.parametrize("name", sorted(RIGHT))
@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_messages_that_were_damaged_are_read_or_refused(name: str, seed: int) -> None:
    dice = random.Random(seed)
    run(name, [mutated(dice.choice(RIGHT[name]), dice) for _ in range(300)])


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_the_messages_are_right_before_they_are_damaged(name: str) -> None:
    result = run_job(ignore, REGISTRY | {"systems.mem.samza.msg.serde": name}, {"mem.a": {0: RIGHT[name]}})
    assert len(result.processed) == len(RIGHT[name])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json", b"[" * 1_000_000), ("json", b'{"a":' * 1_000_000), ("msgpack", b"\x91" * 1_000_000),
        ("msgpack", b"\x81\x00" * 1_000_000),
        ("msgpack", b"\xdd\xff\xff\xff\xff"), ("msgpack", b"\xc6\xff\xff\xff\xff"),
        ("chain", b"\2" * 1_000_000),
        ("flight", b"\2\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"), ("flight", b"\xff" * 1_000),
        ("flight", b"\0\0\0\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("logical", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0\0\0"),
        ("arrow", b"\xff\xff\xff\xff\xff\xff\xff\x7f"), ("arrow", b"\xff\xff\xff\xff\0\0\0\0"),
    ],
)  # fmt: skip
def test_messages_that_promise_much_or_nest_deeply_are_refused(name: str, message: bytes) -> None:
    run(name, [RIGHT[name][0], message, RIGHT[name][0]])


def unending() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize("name", sorted(RIGHT))
@pytest.mark.parametrize(
    "value",
    [unending(), object(), {"a": object()}, 2**70, "\ud800", float("nan"), {b"k": 1}, partial(print)],
    ids=[
        "endless list",
        "object",
        "object inside",
        "beyond 64 bits",
        "half a surrogate",
        "nan",
        "bytes as a name",
        "partial",
    ],
)
def test_any_object_is_written_or_refused(name: str, value: Any) -> None:
    from streambench.model import OutgoingMessageEnvelope, SystemStream

    def process(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send(OutgoingMessageEnvelope(SystemStream("mem", "out"), value))

    config = REGISTRY | {
        "systems.mem.streams.out.samza.msg.serde": name,
        "task.dead.letter.stream": "mem.dead",
    }
    result = run_job(process, config, {"mem.a": {0: [b"x"]}})
    outputs = {stream: len(partitions[0]) for stream, partitions in result.outputs.items() if partitions[0]}
    assert list(outputs.values()) == [1]


def test_json_that_may_be_read_but_not_written_is_refused() -> None:
    """orjson reads deeper than it writes."""
    deep = orjson.loads(b"[" * 900 + b"]" * 900)
    with pytest.raises(TypeError, match="Recursion limit"):
        orjson.dumps(deep)
    with pytest.raises(TypeError, match="nests more than 254 levels deep"):
        json_bytes(deep)
