"""A Ctrl-C that no system call notices."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambench.cli.pipes import interruptible, opened_pipe


@pytest.fixture(autouse=True)
def _python_handles_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_elsewhere() -> threading.Thread:
    """A thread that is given a SIGINT once the main thread waits: the call in which that waits is not
    interrupted by it."""
    main = Path(f"/proc/self/task/{threading.main_thread().native_id}/syscall")

    def interrupt() -> None:
        while main.read_text().startswith("running"):
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    return threading.Thread(target=interrupt)


def test_a_ctrl_c_ends_the_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in")
    thread = interrupt_elsewhere()
    with pytest.raises(KeyboardInterrupt), opened_pipe(tmp_path / "in") as pipe:
        thread.start()
        pipe.readline()
    thread.join()


def test_a_ctrl_c_ends_the_wait_for_more() -> None:
    end, begin = os.pipe()
    thread = interrupt_elsewhere()
    with (
        os.fdopen(end, "rb") as file,
        os.fdopen(begin, "wb", buffering=0) as writer,
        interruptible(file) as pipe,
    ):
        writer.write(b"one\n")
        assert pipe.readline() == b"one\n"
        with pytest.raises(KeyboardInterrupt):
            thread.start()
            pipe.readline()
    thread.join()


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "in")
    text = b"".join(b"%d\n" % n for n in range(100_000))
    writer = threading.Thread(target=(tmp_path / "in").write_bytes, args=(text,))
    writer.start()
    with opened_pipe(tmp_path / "in") as pipe:
        assert pipe.read() == text
    writer.join()
