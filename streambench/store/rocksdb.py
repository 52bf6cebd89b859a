"""State in RocksDB: on this machine's disk, for more of it than fits into memory.

The files of a store hold its state as of its last commit, with the marker of that commit. They also hold what
was written since, together with what that has overwritten. The next to open them after a crash undoes the
latter, and finds the state of that commit."""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import logging
import os
import shutil
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteBufferManager, WriteOptions

from streambench.config import Config
from streambench.errors import StoreError
from streambench.store.engine import Entries, Keys, StoreEngine, StoreEngineFactory, Times, Values
from streambench.store.moments import RewindableEngine

log = logging.getLogger(__name__)

_NOTES = "streambench"
_MARKER = b"m"
_UNDO = b"u"
_OPEN_FILES = 256
_PATIENCE_S = 30.0
#: A container of this process that another thread drives, or a session watches, has noticed by then.
_OWN_PATIENCE_S = 5.0
#: A former holder that notices at once needs no warning.
_SILENT_S = 2.0
_LOOK_EVERY_S = 0.05
_OURS = "current process"
#: Errors that are no fault of the files, which must not be thrown away for them.
_OF_THE_MACHINE = tuple(
    map(
        os.strerror,
        (
            errno.EMFILE,
            errno.ENFILE,
            errno.ENOSPC,
            errno.EDQUOT,
            errno.EACCES,
            errno.EPERM,
            errno.EROFS,
            errno.ENOMEM,
        ),
    )
)


class _Patience:
    """The time for which all engines of a container wait, together, for a process that holds their files."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began: float | None = None

    def is_over(self) -> bool:
        """True once the time since the first call is up."""
        return self.has_passed(self.seconds)

    def has_passed(self, seconds: float) -> bool:
        """True once so many seconds have passed since the first call."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        return now - self._began >= seconds


class RocksDbEngine(RewindableEngine):
    """A RocksDB in a directory, which belongs to one engine at a time.

    Where a frozen process keeps the directory, the engine makes one beside it (``DIRECTORY~1``). Its marker
    says that nothing is in it, and its state is restored. Such directories go when the first is free again.

    As long as nothing is marked, nothing has to outlive the process, and RocksDB's write-ahead log is left
    out.
    """

    locks_files = True

    def __init__(
        self,
        directory: Path,
        what: str = "a store",
        options: Options | None = None,
        *,
        patience: _Patience | None = None,
    ) -> None:
        """``what``: the store and the task, for errors. ``patience``: how long another process may take to
        release the directory."""
        super().__init__()
        self._patience = patience or _Patience(_PATIENCE_S)
        self._directory = directory
        self._what = what
        self._options = options or _options(WriteBufferManager(32 << 20, False), Cache(8 << 20))
        self._overwritten: set[bytes] = set()
        self._reading: weakref.WeakSet[_Entries] = weakref.WeakSet()
        self._unlogged = WriteOptions()
        # It is an attribute, whatever its stub says.
        self._unlogged.disable_wal = True  # type: ignore[method-assign, assignment]
        self._has_unlogged = False
        self._marker: bytes | None = None
        self._db: Any = None
        self._notes_handle: Any = None
        self._open()

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._db.get(key)
        return found

    def put(self, key: bytes, value: bytes) -> None:
        if self._newest() is not None or (self._marker is not None and key not in self._overwritten):
            self.load((key,), (value,))
            return
        try:
            if self._marker is None:
                self._has_unlogged = True
                self._db.put(key, value, self._unlogged)
            else:
                self._db.put(key, value)
        except Exception as error:
            raise self._unwritable(error) from error

    def delete(self, key: bytes) -> None:
        self.load((key,), (None,))

    def load(self, keys: Keys, values: Values, written: Times = None) -> None:
        batch = WriteBatch(raw_mode=True)
        fresh = self._note_former(keys, batch)
        for key, value in zip(keys, values, strict=True):
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        if self._marker is None:
            self._has_unlogged = True
            self._write(batch, self._unlogged)
        else:
            self._write(batch)
            self._overwritten.update(fresh)

    def range(self, from_: bytes | None, to: bytes | None) -> Entries:
        entries = _Entries(self._db, from_, to)
        self._reading.add(entries)
        return entries

    def __len__(self) -> int:
        """Counts them, which takes as long as reading them all."""
        return sum(1 for _ in self._db.keys())  # noqa: SIM118 - it is no mapping

    def estimate(self) -> int | None:
        estimate: int | None = self._db.property_int_value("rocksdb.estimate-num-keys")
        return estimate

    def flush(self) -> None:
        """Nothing is kept back here: what was written outlives this process, and the mark shows what of it is
        committed."""

    def clear(self) -> None:
        self._release()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._open()

    def close(self) -> None:
        self._release()

    def mark(self, marker: bytes) -> None:
        if self._has_unlogged:
            # Data that no log holds must be in files before anything says that it is there.
            self._db.flush()
            self._has_unlogged = False
        batch = WriteBatch(raw_mode=True)
        for key in self._overwritten:
            batch.delete(_UNDO + key, self._notes_handle)
        batch.put(_MARKER, marker, self._notes_handle)
        self._write(batch)
        self._overwritten.clear()
        self._marker = marker

    def marked(self) -> bytes | None:
        return self._marker

    def _note_former(self, keys: Sequence[bytes], batch: WriteBatch) -> list[bytes]:
        """Note the values of what is about to be overwritten, for a way back; the keys that
        are new to the undo notes."""
        moment = self._newest()
        overwritten = self._overwritten
        fresh = [] if self._marker is None else [key for key in dict.fromkeys(keys) if key not in overwritten]
        of_moment = [] if moment is None else [key for key in dict.fromkeys(keys) if key not in moment.former]
        wanted = list(dict.fromkeys([*fresh, *of_moment])) if of_moment else fresh
        if not wanted:
            return fresh
        former = dict(zip(wanted, self._db.get(wanted), strict=True))
        if moment is not None:
            moment.former.update((key, former[key]) for key in of_moment)
        handle = self._notes_handle
        for key in fresh:
            value = former[key]
            batch.put(_UNDO + key, b"" if value is None else b"=" + value, handle)
        return fresh

    def _write(self, batch: WriteBatch, options: WriteOptions | None = None) -> None:
        try:
            self._db.write(batch, options)
        except Exception as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: Exception) -> StoreError:
        return StoreError(f"{self._what}: cannot write to {self._directory}: {error}")

    def _open(self) -> None:
        try:
            self._db = self._opened_when_free()
        except Exception as error:
            if _is_locked(error):
                raise StoreError(
                    f"{self._what}: {self._directory} is in use by another container of this process: "
                    "stop it first"
                ) from None
            # Only RocksDB itself says what is wrong with its files.
            if isinstance(error, OSError) or any(reason in str(error) for reason in _OF_THE_MACHINE):
                raise self._unusable(error) from error
            log.warning(
                "%s: the files in %s cannot be used (%s); they are made again",
                self._what,
                self._directory,
                error,
            )
            shutil.rmtree(self._directory, ignore_errors=True)
            try:
                self._db = self._opened()
            except Exception as again:
                raise self._unusable(again) from again
        self._notes_handle = self._db.get_column_family_handle(_NOTES)
        self._marker = self._db.get_column_family(_NOTES).get(_MARKER)
        self._undo()
        if self._marker is None and next(iter(self._db.keys()), None) is not None:
            self.clear()

    def _opened_when_free(self) -> Rdict:
        """Open the files as soon as no other container holds them.

        The other one may be the container's former holder. It releases them as soon as it notices that it was
        replaced: after its message, or never, if its process is frozen. One of this process that nothing
        drives never notices either: its error is raised."""
        is_reported, own = False, _Patience(min(self._patience.seconds, _OWN_PATIENCE_S))
        while True:
            try:
                db = self._opened()
                self._remove_others()
                return db
            except Exception as error:
                if not _is_locked(error) or (_OURS in str(error) and own.is_over()):
                    raise
                is_ours = _OURS in str(error)
            if not is_ours and self._patience.is_over():
                return self._opened_beside()
            if not (is_ours or is_reported) and self._patience.has_passed(_SILENT_S):
                is_reported = True
                log.warning(
                    "%s: %s is in use by another process, which has not released it in %g s: waiting for it, "
                    "%g s at most. It may be frozen, in the middle of a message, or in a branch; to stop the "
                    "job there ends the wait",
                    self._what,
                    self._directory,
                    _SILENT_S,
                    self._patience.seconds,
                )
            time.sleep(_LOOK_EVERY_S)

    def _opened_beside(self) -> Rdict:
        """Open the first directory beside this one that no process holds, and use that."""
        held = self._directory
        for number in itertools.count(1):
            self._directory = held.with_name(f"{held.name}~{number}")
            try:
                db = self._opened()
            except Exception as error:
                if not _is_locked(error):
                    raise
                continue
            log.warning(
                "%s: another process has not released %s within %g s (task.shutdown.ms); the state is "
                "restored into %s",
                self._what,
                held,
                self._patience.seconds,
                self._directory,
            )
            return db
        raise AssertionError("numbers do not end")

    def _remove_others(self) -> None:
        """Remove what ``_opened_beside`` made, where no process holds it any more."""
        for other in self._directory.parent.glob(f"{glob.escape(self._directory.name)}~*"):
            with contextlib.suppress(Exception):
                Rdict.destroy(str(other), self._options)  # which fails where it is held
                shutil.rmtree(other, ignore_errors=True)

    def _unusable(self, error: Exception) -> StoreError:
        hint = (
            "; each store of each task has files open: allow more (ulimit -n), or spread the tasks "
            "over more containers"
        )
        too_many = os.strerror(errno.EMFILE) in str(error)
        return StoreError(
            f"{self._what}: cannot keep files in {self._directory}: {error}{hint if too_many else ''}"
        )

    def _opened(self) -> Rdict:
        self._directory.mkdir(parents=True, exist_ok=True)
        return Rdict(
            str(self._directory),
            self._options,
            column_families={"default": self._options, _NOTES: self._options},
        )

    def _undo(self) -> None:
        """Bring back what was overwritten since the last mark."""
        batch = WriteBatch(raw_mode=True)
        for noted, former in self._db.get_column_family(_NOTES).items(from_key=_UNDO):
            if former:
                batch.put(noted[1:], former[1:])
            else:
                batch.delete(noted[1:])
            batch.delete(noted, self._notes_handle)
        if len(batch):
            self._write(batch)

    def _release(self) -> None:
        for entries in list(self._reading):
            entries.close()
        self._overwritten.clear()
        self._has_unlogged = False
        # Whatever refers to the database keeps its lock.
        self._notes_handle = None
        if self._db is not None:
            self._db.close()
            self._db = None


class _Entries:
    """An iterator over entries as they were when it was made."""

    __slots__ = ("__weakref__", "_items", "_to")

    def __init__(self, db: Any, from_: bytes | None, to: bytes | None) -> None:
        self._items: Entries = db.items(from_key=from_)
        self._to = to

    def __iter__(self) -> _Entries:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        entry = next(self._items)
        if self._to is not None and entry[0] >= self._to:
            self.close()
            raise StopIteration
        return entry

    def close(self) -> None:
        """Close the database."""
        self._items = iter(())


class RocksDbEngineFactory(StoreEngineFactory):
    """``stores.<n>.factory=rocksdb``. All engines of one factory share their caches and write buffers."""

    def __init__(self) -> None:
        self._shared: Options | None = None
        self._patience: _Patience | None = None

    def get_engine(self, store: str, task: str, config: Config, directory: Path) -> StoreEngine:
        if self._shared is None:
            cache = Cache(_size(config, f"stores.{store}.container.cache.size.bytes"))
            buffers = WriteBufferManager(
                _size(config, f"stores.{store}.container.write.buffer.size.bytes"), False
            )
            self._shared = _options(buffers, cache)
        if self._patience is None:
            self._patience = _Patience(config.integer("task.shutdown.ms") / 1000)
        return RocksDbEngine(directory, f"store '{store}' of {task}", self._shared, patience=self._patience)


def _is_locked(error: Exception) -> bool:
    text = str(error)
    return "/LOCK:" in text and (_OURS in text or os.strerror(errno.EAGAIN) in text)


def _size(config: Config, key: str) -> int:
    size = config.integer(key)
    if size < 1 << 20:
        raise config.error(key, f"{size} bytes are too few: give 1048576 (1 MiB) or more")
    return size


def _options(buffers: WriteBufferManager, cache: Cache) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_manager(buffers)
    options.set_max_open_files(_OPEN_FILES)
    options.set_keep_log_file_num(2)
    options.set_stats_dump_period_sec(0)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    return options
