"""Recordings of random jobs: each position of an opened one shows what the live session showed there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambench import debug
from streambench.debug.control.session import Session
from tests.debug.control.test_time_travel import shown
from tests.debug.test_random_walks import WINDOW_MS, Walk
from tests.surroundings import SOAK

JOBS = 600 if SOAK else 12
EXPIRING = (434, 499)
"""Jobs whose stores remove what has expired."""


def seen_by(session: Session, begin: int) -> tuple[Any, ...]:
    """Stores, attributes, offsets, and the outputs behind the begin of the recording."""
    stores, attributes, offsets, outputs = shown(session)
    for of_task in attributes.values():
        del of_task["number"]  # a metric, which counts from the start
    return (
        stores, attributes, offsets,
        [(at - begin, *what) for at, *what in outputs if at > begin],
        None if session.message is None or session.position == begin else session.message.offset,
    )  # fmt: skip


@pytest.mark.parametrize("seed", sorted({*range(JOBS), *EXPIRING}))
def test_a_recording_of_a_random_job_shows_each_position_as_it_was(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    walk = Walk(seed, tmp_path)
    session, chance = walk.session, walk.chance
    path = tmp_path / "run.recording"
    if chance.random() < 0.5:
        session.step(chance.randrange(1, 8))
    if session.position and chance.random() < 0.5:
        session.record(path)  # begins with the commit
        session.step(chance.randrange(1, 4))
        session.commit()
    else:
        session.commit()
        session.record(path)
    begin = session.position
    assert session.recorded_to == path
    seen = {0: seen_by(session, begin)}
    while session.position < walk.count:
        kind = chance.choice(["step", "step", "run", "tick", "commit"])
        if kind == "step":
            session.step(chance.randrange(1, 6))
        elif kind == "run":
            session.run(chance.randrange(1, 1 + walk.count - session.position))
            session.wait()
        elif kind == "tick":
            walk.bench.clock.advance(WINDOW_MS)
            session.step()
        else:
            session.commit()
        seen[session.position - begin] = seen_by(session, begin)
    session.stop()
    opened = debug.open(path)
    assert opened.position == max(seen)
    for position in [*reversed(seen), *chance.choices(list(seen), k=5)]:
        assert opened.goto(position) == position
        assert seen_by(opened, 0) == seen[position], position
    assert "not deterministic" not in caplog.text
