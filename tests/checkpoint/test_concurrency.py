"""Several processes at one journal: each record has one winner, and no commit that was reported is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import orjson

from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.errors import CheckpointError, FencedError
from tests.checkpoint.samples import CLICKS
from tests.surroundings import figure

TASKS = ("a", "b", "c")
PROCESSES = 4
STARTS = figure(8, soak=100, check=4)
ALL = 100_000


Commit = tuple[str, int, int, bool]


def start(directory: Path, chance: random.Random, keep: int) -> list[Commit]:
    """One start of the job, with one to three containers of which this process claims some, one after the
    other.

    Each commit adds one to the offset of a task: a lost one, or one that two holders made at once, makes the
    sum wrong. What comes back are its commits: task, offset, generation, and whether they succeeded. The
    others are those that no process knows of, because so many starts went by during one commit that its
    generation was forgotten.
    """
    done: list[Commit] = []
    manager = JournalCheckpointManager(directory, "job-1", keep=keep)
    containers = chance.randint(1, len(TASKS))
    assignment = {container: TASKS[container::containers] for container in range(containers)}
    last = manager.last_generation()
    if last is None or chance.random() < 0.5:
        last = manager.open_generation(assignment, now_ms=0)
    try:
        for container in chance.sample(sorted(last.assignment), len(last.assignment)):
            manager.claim(last.number, container, now_ms=0)
            present = manager.read_last()
            counts = {
                task: int(present[task].offsets[CLICKS]) if task in present else 0
                for task in last.assignment[container]
            }
            for _ in range(chance.randint(1, 12)):
                task = chance.choice(last.assignment[container])
                counts[task] += 1
                checkpoint = Checkpoint({CLICKS: str(counts[task])}, generation=last.number)
                try:
                    manager.write({task: checkpoint})
                except CheckpointError as error:
                    if "not known" not in str(error):
                        raise
                    done.append((task, counts[task], last.number, False))
                    return done
                done.append((task, counts[task], last.number, True))
    except FencedError:
        pass
    finally:
        manager.close()
    return done


def main(directory: str, seed: str, keep: str) -> None:
    # Nobody loses power here, and without waiting for the disk there are more races in less time.
    os.fsync = lambda handle: None
    chance = random.Random(int(seed))
    commits = [commit for _ in range(STARTS) for commit in start(Path(directory), chance, int(keep))]
    sys.stdout.buffer.write(orjson.dumps(commits))


def raced(directory: Path, keep: int) -> list[Commit]:
    """What all the processes together have committed."""
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.checkpoint.test_concurrency", str(directory), str(seed), str(keep)],
            cwd=Path(__file__).resolve().parents[2],
            stdout=subprocess.PIPE,
        )
        for seed in range(PROCESSES)
    ]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES
    return [
        (task, offset, generation, sure)
        for output in outputs
        for task, offset, generation, sure in orjson.loads(output)
    ]


def check(directory: Path, commits: list[Commit], last: dict[str, Checkpoint]) -> None:
    assert any(sure for *_, sure in commits), "somebody committed"
    for task in TASKS:
        sure = sorted(offset for of, offset, _, known in commits if of == task and known)
        unsure = {offset for of, offset, _, known in commits if of == task and not known}
        counted = sorted({*sure, *(offset for offset in unsure if offset <= int(last[task].offsets[CLICKS]))})
        assert len(set(sure)) == len(sure), f"no commit of {task} was made twice"
        assert counted == list(range(1, len(counted) + 1)), (
            f"every commit of {task} went on from the one before it"
        )
        assert last[task].offsets[CLICKS] == str(len(counted))
    assert not [path for path in directory.rglob("*") if path.name.endswith(".tmp")]


def test_no_commit_is_lost_or_made_twice_when_starts_and_holders_race(tmp_path: Path) -> None:
    directory = tmp_path / "job-1"
    commits = raced(directory, ALL)
    manager = JournalCheckpointManager(directory, "job-1", keep=ALL)
    # The last holders are gone, and what they left half done with them.
    manager.open_generation({}, now_ms=0)
    check(directory, commits, manager.read_last())
    written = {
        (task, int(each.offsets[CLICKS]), each.generation, True)
        for task, kept in manager.history().items()
        for each in kept
    }
    assert written == set(commits)


def test_nor_when_old_records_are_pruned_all_the_time(tmp_path: Path) -> None:
    directory = tmp_path / "job-1"
    commits = raced(directory, 1)
    manager = JournalCheckpointManager(directory, "job-1", keep=1)
    manager.open_generation({}, now_ms=0)
    check(directory, commits, manager.read_last())


if __name__ == "__main__":
    main(*sys.argv[1:])
