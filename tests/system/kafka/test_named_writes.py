"""Writes under a name to Kafka: each step once, on a real broker."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from streambench import SystemStream, SystemStreamPartition
from streambench.config import Config
from streambench.errors import FencedError
from streambench.rows import Rows
from streambench.system.capabilities import NamedWrite
from streambench.system.kafka.factory import KafkaSystemFactory
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.surroundings import SOAK
from tests.system.kafka.cluster import all_of, config, new_stream

STEPS = 6


@pytest.fixture
def stream(kafka: KafkaNodes) -> SystemStream:
    made = new_stream()
    systems = Systems(config(kafka))
    systems.admin("k").create(made, 2)
    systems.close()
    return made


def write_of(settings: Config, name: str) -> NamedWrite:
    return KafkaSystemFactory().get_named_write("k", settings, name)


def rows(stream: SystemStream, numbers: Sequence[int]) -> list[Rows]:
    """Numbers as messages: even ones for partition 0, odd ones for partition 1."""
    found = [Rows(SystemStreamPartition("k", stream.stream, number), [], []) for number in (0, 1)]
    for number in numbers:
        found[number % 2].add(b"k", b"%d" % number, 7, {"h": b"x"})
    return found


def numbers(settings: Config, stream: SystemStream) -> list[int]:
    systems = Systems(settings)
    try:
        found = all_of(systems, stream)
        return [int(each.message) for number in sorted(found) for each in found[number]]
    finally:
        systems.close()


def test_a_step_is_written_once_by_whichever_process(kafka: KafkaNodes, stream: SystemStream) -> None:
    settings = config(kafka)
    jobs = KafkaSystemFactory().get_jobs("k", settings)
    first = write_of(settings, stream.stream)
    assert first.commit(3, rows(stream, range(6)))
    assert not first.commit(3, rows(stream, range(6)))
    first.close()
    again = write_of(settings, stream.stream)
    assert not again.commit(3, rows(stream, [5, 4, 3]))
    assert again.commit(4, rows(stream, [8, 7]))
    assert not again.commit(4, ())
    again.close()
    assert numbers(settings, stream) == [0, 2, 4, 8, 1, 3, 5, 7]
    assert KafkaSystemFactory().get_jobs("k", settings) == jobs


def test_a_process_that_was_replaced_writes_no_more(kafka: KafkaNodes, stream: SystemStream) -> None:
    settings = config(kafka)
    old, new = write_of(settings, stream.stream), write_of(settings, stream.stream)
    assert old.commit(0, rows(stream, [0]))
    assert new.commit(1, rows(stream, [2]))
    with pytest.raises(FencedError):
        old.commit(2, rows(stream, [4]))
    with pytest.raises(FencedError):
        old.commit(2, rows(stream, [4]))
    assert new.commit(2, rows(stream, [6]))
    old.close()
    new.close()
    assert numbers(settings, stream) == [0, 2, 6]


def test_a_step_that_failed_is_written_when_it_is_repeated(kafka: KafkaNodes, stream: SystemStream) -> None:
    settings = config(kafka)
    write = write_of(settings, stream.stream)
    assert write.commit(0, rows(stream, [0]))
    elsewhere = Rows(SystemStreamPartition("k", stream.stream, 9), [], [])
    elsewhere.add(b"k", b"9", 7, {})
    with pytest.raises(ValueError, match="Unrecognized partition"):
        write.commit(1, [*rows(stream, [2]), elsewhere])
    assert write.commit(1, rows(stream, [2]))
    assert not write.commit(1, rows(stream, [2]))
    write.close()
    assert numbers(settings, stream) == [0, 2]


PROGRAM = """
import sys
from pathlib import Path
from streambench.config import Config
from streambench.model import SystemStream
from tests.system.kafka.test_named_writes import STEPS, rows, write_of

done, stream = Path(sys.argv[1]), SystemStream("k", sys.argv[3])
write = write_of(Config.from_text(sys.argv[2]), stream.stream)
for step in range(int(done.read_text()), STEPS):
    print("step", flush=True)
    write.commit(step, rows(stream, range(step * 1000, step * 1000 + 1000)))
    done.write_text(str(step + 1))
"""


def test_kills_at_random_moments_leave_each_step_once(
    kafka: KafkaNodes, stream: SystemStream, tmp_path: Path
) -> None:
    settings, done, chance = config(kafka), tmp_path / "done", random.Random(4)
    done.write_text("0")
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    command = [sys.executable, "-c", PROGRAM, str(done), text, stream.stream]
    for _ in range(5 if SOAK else 2):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                # Which moment of a commit that is makes no difference to the outcome.
                process.wait(chance.uniform(0, 1.5))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        done.write_text(str(max(0, int(done.read_text() or "0") - 1)))  # Spark repeats the last batch
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert sorted(numbers(settings, stream)) == list(range(STEPS * 1000))
