"""RocksDB: what goes wrong with its files."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.errors import StoreError
from streambench.store import rocksdb
from streambench.store.rocksdb import RocksDbEngine, RocksDbEngineFactory


def test_files_stay_where_the_machine_has_no_file_handles_left(tmp_path: Path) -> None:
    engine = RocksDbEngine(tmp_path / "db", "store 's' of Partition 0")
    engine.put(b"a", b"1")
    engine.mark(b"first")
    engine.close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # nothing more can be opened
    try:
        with pytest.raises(
            StoreError,
            match=r"store 's' of Partition 0: cannot keep files in .*Too many open files.*ulimit -n",
        ):
            RocksDbEngine(tmp_path / "db", "store 's' of Partition 0")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    again = RocksDbEngine(tmp_path / "db")
    assert (again.marked(), again.get(b"a")) == (b"first", b"1")
    again.close()


def test_a_place_that_is_no_directory_is_an_error_that_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not ours")
    with pytest.raises(StoreError, match=r"a store: cannot keep files in .*file/db"):
        RocksDbEngine(tmp_path / "file" / "db")
    assert (tmp_path / "file").read_text() == "not ours"
    assert not caplog.records, "no files are made again where there were none"


def test_an_engine_may_be_used_by_another_thread_than_made_it(tmp_path: Path) -> None:
    engine = RocksDbEngine(tmp_path / "db")
    thread = threading.Thread(target=engine.put, args=(b"a", b"1"))
    thread.start()
    thread.join()
    assert engine.get(b"a") == b"1"
    engine.close()


_HOLDER = """
import sys
from pathlib import Path
from streambench.store.rocksdb import RocksDbEngine

engine = RocksDbEngine(Path(sys.argv[1]))
engine.put(b"a", b"1")
engine.mark(b"first")
print("held", flush=True)
sys.stdin.read()
engine.close()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the files, until its input ends."""
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def test_files_of_a_process_that_is_about_to_let_go_of_them_are_waited_for(
    holder: subprocess.Popen[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(rocksdb.time, "sleep", lambda seconds: holder.communicate())
    monkeypatch.setattr(rocksdb, "_SILENT_S", 0.0)
    engine = RocksDbEngine(tmp_path / "db")
    assert [each.getMessage() for each in caplog.records] == [
        f"a store: {tmp_path / 'db'} is in use by another process, which has not released it in 0 s: waiting "
        "for it, 30 s at most. It may be frozen, in the middle of a message, or in a branch; to stop the job "
        "there ends the wait"
    ]
    assert (engine.marked(), engine.get(b"a")) == (b"first", b"1")
    engine.close()


def test_beside_files_in_use_new_ones_are_made_until_they_are_free(
    holder: subprocess.Popen[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config({"task.shutdown.ms": 1})
    os.kill(holder.pid, signal.SIGSTOP)
    engine = RocksDbEngineFactory().get_engine("s", "Partition 0", config, tmp_path / "db")
    assert re.fullmatch(
        r"store 's' of Partition 0: another process has not released .*/db within 0.001 s "
        r"\(task.shutdown.ms\); the state is restored into .*/db~1",
        caplog.records[-1].getMessage(),
    )
    assert (engine.marked(), engine.get(b"a")) == (None, None)
    engine.put(b"a", b"2")
    engine.mark(b"second")
    engine.clear()
    engine.put(b"a", b"3")
    engine.mark(b"third")
    engine.close()
    again = RocksDbEngineFactory().get_engine("s", "Partition 0", config, tmp_path / "db")
    assert (again.marked(), again.get(b"a")) == (b"third", b"3")
    os.kill(holder.pid, signal.SIGCONT)
    holder.communicate()
    free = RocksDbEngineFactory().get_engine("s", "Partition 0", config, tmp_path / "db")
    assert (free.marked(), free.get(b"a")) == (b"first", b"1")
    assert {each.name for each in tmp_path.iterdir()} == {"db", "db~1"}, "it is in use"
    for each in (free, again):
        each.close()
    RocksDbEngine(tmp_path / "db").close()
    assert {each.name for each in tmp_path.iterdir()} == {"db"}


def test_the_stores_of_a_container_wait_together_instead_of_in_turn(
    holder: subprocess.Popen[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rocksdb, "_SILENT_S", 0.0)
    factory, config = RocksDbEngineFactory(), Config({"task.shutdown.ms": 1})
    for _ in range(3):
        factory.get_engine("s", "Partition 0", config, tmp_path / "db").close()
    assert sum("waiting for it" in each.getMessage() for each in caplog.records) == 1


def test_damaged_files_are_made_anew_wherever_they_are(tmp_path: Path) -> None:
    """Neither a block that is damaged nor the place of a job named clock is the lock of somebody who uses the
    files."""
    directory = tmp_path / "clock-1" / "db"
    engine = RocksDbEngine(directory)
    engine.put(b"a", b"1")
    engine.mark(b"first")
    engine.close()
    (directory / "CURRENT").write_text("MANIFEST-000999\n")
    engine = RocksDbEngine(directory)
    assert (engine.marked(), engine.get(b"a")) == (None, None)
    engine.close()
