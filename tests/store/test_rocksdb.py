"""RocksDB: what goes wrong with its files."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest

from streambench.errors import StoreError
from streambench.store.rocksdb import RocksDbEngine


def test_files_stay_where_the_machine_has_no_file_handles_left(tmp_path: Path) -> None:
    engine = RocksDbEngine(tmp_path / "db", "store 's' of Partition 0")
    engine.put(b"a", b"1")
    engine.mark(b"first")
    engine.close()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))  # nothing more can be opened
    try:
        with pytest.raises(StoreError, match=r"store 's' of Partition 0: cannot keep files in .*Too many open files.*ulimit -n"):
            RocksDbEngine(tmp_path / "db", "store 's' of Partition 0")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    again = RocksDbEngine(tmp_path / "db")
    assert (again.marked(), again.get(b"a")) == (b"first", b"1")
    again.close()


def test_a_place_that_is_no_directory_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not ours")
    with pytest.raises(StoreError, match=r"a store: cannot keep files in .*file/db"):
        RocksDbEngine(tmp_path / "file" / "db")
    assert (tmp_path / "file").read_text() == "not ours"


def test_an_engine_may_be_used_by_another_thread_than_made_it(tmp_path: Path) -> None:
    engine = RocksDbEngine(tmp_path / "db")
    thread = threading.Thread(target=engine.put, args=(b"a", b"1"))
    thread.start()
    thread.join()
    assert engine.get(b"a") == b"1"
    engine.close()
