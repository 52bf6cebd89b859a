"""The store as a task sees it: objects in, objects out, and a note of what changed for the changelog."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, NoReturn, Protocol

from streambench.errors import SerdeError, StoreError, WrongThreadError, described, shortened
from streambench.metrics.registry import MetricsRegistry
from streambench.serde.api import Serde
from streambench.serde.builtin import key_encoder
from streambench.store.engine import Batches, StoreEngine, close_entries
from streambench.store.expiry import ExpiringEngine, raw_engine
from streambench.store.undo import InputOwner, Undo
from streambench.task import KeyValueStore

log = logging.getLogger(__name__)

_get_ident = threading.get_ident

Entries = Generator[tuple[Any, Any], None, None]
"""Entries that are read one after the other; ``close()`` frees them before the end."""


class ThreadOwner(Protocol):
    """Knows which thread may use a store at present: one object may stand for all stores of a container."""

    ident: int


class _Thread:
    __slots__ = ("ident",)

    def __init__(self, ident: int) -> None:
        self.ident = ident


class StoreCounts:
    """The use of a store by one container, all tasks together: the counters that Samza has, in the group
    ``stores``."""

    __slots__ = ("alls", "deletes", "dropped", "flushes", "gets", "puts", "ranges")

    def __init__(self, store: str, metrics: MetricsRegistry) -> None:
        self.gets, self.puts, self.deletes, self.ranges, self.alls, self.flushes, self.dropped = (
            metrics.counter(f"{store}-{what}", "stores")
            for what in ("gets", "puts", "deletes", "ranges", "alls", "flushes", "large-values-dropped")
        )


class ValueLimit(NamedTuple):
    """The size above which a value is not put. ``drops``: it is counted and logged, instead of an error."""

    bytes: int
    drops: bool


class TaskStore(KeyValueStore):
    """One store of one task, the same object for the life of the task: what is beneath it is restored in
    place.

    Values are serialised when they are put and deserialised when they are got, so that changing an object
    changes no state. With ``changelog``, the keys that were put or deleted are remembered until ``drain``.
    """

    __slots__ = (
        "_changed",
        "_counts",
        "_decode_key",
        "_decode_value",
        "_delete",
        "_drops_large",
        "_encode_key",
        "_encode_value",
        "_expiring",
        "_get",
        "_gets",
        "_max_value",
        "_owner",
        "_put",
        "_puts",
        "_undo",
        "_written",
        "engine",
        "has_changelog",
        "name",
    )

    def __init__(
        self,
        name: str,
        engine: StoreEngine,
        key_serde: Serde,
        value_serde: Serde,
        *,
        changelog: bool,
        owner: ThreadOwner | None = None,
        counts: StoreCounts | None = None,
        limit: ValueLimit | None = None,
    ) -> None:
        """``owner``: knows the thread that may use the store; without it, the current one may.

        ``counts``: where the calls are counted. ``limit``: without it a value may have any size."""
        self.name = name
        self.engine = engine
        self.has_changelog = changelog
        self._counts = counts = counts or StoreCounts(name, MetricsRegistry())
        self._gets, self._puts = counts.gets, counts.puts
        self._max_value = sys.maxsize if limit is None else limit.bytes
        self._drops_large = limit is not None and limit.drops
        self._expiring = engine if isinstance(engine, ExpiringEngine) else None
        self._encode_key = key_encoder(key_serde)
        self._decode_key = key_serde.from_bytes
        self._encode_value = value_serde.to_bytes
        self._decode_value = value_serde.from_bytes
        self._get = engine.get
        self._put = engine.put
        self._delete = engine.delete
        self._undo: Undo | None = None
        self._written: Callable[[bytes, bytes | None, bytes | None], object] | None = None
        self._owner: ThreadOwner = owner or _Thread(_get_ident())
        self._changed: dict[bytes, None] = {}

    def undo_by(self, owner: InputOwner) -> None:
        """Note from now on what each write overwrites, for ``take_back``. ``owner``: knows which message is
        being processed."""
        self._undo = Undo(self.engine, owner, lambda: self._changed)
        self._put, self._delete = self._undo.put, self._undo.delete

    def observe(self, written: Callable[[bytes, bytes | None, bytes | None], object] | None) -> None:
        """Call ``written(key, before, after)`` after each write from now on; None: write without it."""
        direct: StoreEngine | Undo = self.engine if self._undo is None else self._undo
        put, delete, get = direct.put, direct.delete, self.engine.get
        self._put, self._delete, self._written = put, delete, written
        if written is None:
            return

        def observed_put(key: bytes, value: bytes) -> None:
            before = get(key)
            put(key, value)
            written(key, before, value)

        def observed_delete(key: bytes) -> None:
            key = b"%b" % key
            before = get(key)
            delete(key)
            written(key, before, None)

        self._put, self._delete = observed_put, observed_delete

    def begin(self) -> None:
        """Another callback of the task begins, without a message of its own. Nothing happens without
        ``undo_by``."""
        if self._undo is not None:
            self._undo.begin()

    def take_back(self) -> None:
        """Bring back what the callback at work has overwritten, and forget its changes. Nothing happens
        without ``undo_by``."""
        if self._undo is None:
            return
        get, written = self.engine.get, self._written
        lost = {} if written is None else {key: get(key) for key in self._undo.overwritten()}
        self._undo.take_back()
        if written is not None:
            for key, value in lost.items():
                written(key, value, get(key))

    def get(self, key: Any, default: Any = None) -> Any:
        if _get_ident() != self._owner.ident:
            self._refuse()
        if key is None:
            raise self._none_key()
        self._gets.count += 1
        try:
            encoded = self._encode_key(key)
        except Exception as error:
            raise self._unencodable(key, "key", error) from error
        data = self._get(encoded)
        if data is None:
            return default
        try:
            return self._decode_value(data)
        except Exception as error:
            raise self._undecodable(key, error) from error

    def put(self, key: Any, value: Any) -> None:
        if _get_ident() != self._owner.ident:
            self._refuse()
        if key is None:
            raise self._none_key()
        if value is None:
            raise StoreError(
                f"store '{self.name}': None is not a valid value (of the key {shortened(key)}); to remove a "
                "key use delete(key)"
            )
        try:
            encoded = self._encode_key(key)
        except Exception as error:
            raise self._unencodable(key, "key", error) from error
        try:
            data = self._encode_value(value)
        except Exception as error:
            raise self._unencodable(key, "value of the key", error) from error
        if len(data) > self._max_value and self._is_dropped(key, len(data)):
            return
        self._puts.count += 1
        # Copies of the right size: what orjson returns holds 4 KiB for as long as it lives, and here it lives
        # long.
        encoded = b"%b" % encoded
        self._put(encoded, b"%b" % data)
        if self.has_changelog:
            self._changed[encoded] = None

    def delete(self, key: Any) -> None:
        encoded = self._key(key)
        self._counts.deletes.count += 1
        if self._get(encoded) is None:
            return
        self._delete(encoded)
        if self.has_changelog:
            self._changed[b"%b" % encoded] = None

    def __contains__(self, key: Any) -> bool:
        encoded = self._key(key)
        self._gets.count += 1
        return self._get(encoded) is not None

    def range(self, from_: Any, to: Any) -> Entries:
        self._counts.ranges.count += 1
        return self._decoded(self.engine.range(self._key(from_), self._key(to)))

    def all(self) -> Entries:
        self._check()
        self._counts.alls.count += 1
        return self._decoded(self.engine.range(None, None))

    def flush(self) -> None:
        self._check()
        self._counts.flushes.count += 1
        self.engine.flush()

    def batches(self) -> Batches:
        """All entries as the engine holds them, with their times where they expire, many at a time. Raises
        StoreError at their end where the store was closed meanwhile: some may be missing."""
        yield from raw_engine(self.engine).batches()
        if self._owner.ident == 0:
            self._refuse()

    def load(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Put entries as ``batches`` gave them. The changelog does not learn of them."""
        raw_engine(self.engine).load(keys, values)

    def close(self) -> None:
        """Close the store. Using it afterwards is a StoreError, closing it again is not."""
        self._owner = _Thread(0)
        self._changed = {}
        self.engine.close()

    def drain(self) -> list[tuple[bytes, bytes | None]]:
        """The changes since the last call: each key with its present value (None: deleted), in the order of
        their first change."""
        expired = self._expiring.sweep() if self._expiring is not None else ()
        changed, self._changed = self._changed, {}
        if self.has_changelog:
            changed.update(dict.fromkeys(expired))
        get = self._get
        return [(key, get(key)) for key in changed]

    @property
    def changes(self) -> int:
        """The number of keys changed since the last ``drain``; 0 where there is no changelog."""
        return len(self._changed)

    @property
    def written_at(self) -> Callable[[bytes], int | None] | None:
        """A function that returns when a key (as bytes) was written, in milliseconds; None for a store that
        does not know, because no entry expires."""
        return None if self._expiring is None else self._expiring.written

    def written(self, entries: Sequence[tuple[bytes, bytes | None]]) -> list[int | None] | None:
        """When each of these entries, as ``drain`` gave them, was written; None for a store that does not
        know. One that has expired since then has its time all the same: without it, a restore would take it
        for new."""
        if self._expiring is None:
            return None
        stamp = self._expiring.stamp
        return [None if value is None else stamp(key) for key, value in entries]

    def encoded_key(self, key: Any) -> bytes:
        """The bytes of a key. Raises SerdeError."""
        try:
            return self._encode_key(key)
        except Exception as error:
            raise self._unencodable(key, "key", error) from error

    def decoded_key(self, key: bytes) -> Any:
        """The key of encoded ``key``. Raises SerdeError."""
        try:
            return self._decode_key(key)
        except Exception as error:
            raise self._undecodable(key, error) from error

    def decoded_value(self, key: bytes, value: bytes | None) -> Any:
        """The value of an encoded one, None for None. Raises SerdeError."""
        try:
            return None if value is None else self._decode_value(value)
        except Exception as error:
            raise self._undecodable(key, error) from error

    def snapshot(self) -> tuple[Any, ...]:
        """The current state, and what of it is not in the changelog yet. Costs next to nothing; see
        ``StoreEngine``."""
        return self.engine.snapshot(), self._changed, len(self._changed)

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """Come back to a snapshot of this store. What the changelog holds is not touched."""
        moment, changed, count = snapshot
        self.engine.restore(moment)
        # Until it is drained a dict of changes only grows, at its end.
        self._changed = dict.fromkeys(islice(changed, count))
        self.begin()

    def overwrite(self, entries: Mapping[bytes, bytes | None]) -> None:
        """Set entries as the engine holds them, with their times where they expire; None removes one."""
        engine = raw_engine(self.engine)
        for key, value in entries.items():
            if value is None:
                engine.delete(key)
            else:
                engine.put(key, value)
            if self.has_changelog:
                self._changed[key] = None

    def _key(self, key: Any) -> bytes:
        self._check()
        if key is None:
            raise self._none_key()
        try:
            return self._encode_key(key)
        except Exception as error:
            raise self._unencodable(key, "key", error) from error

    def _decoded(self, entries: Iterator[tuple[bytes, bytes]]) -> Entries:
        decode_key, decode_value = self._decode_key, self._decode_value
        try:
            for key, data in entries:
                self._check()
                try:
                    entry = decode_key(key), decode_value(data)
                except Exception as error:
                    raise self._undecodable(key, error) from error
                yield entry
            self._check()  # that it was their end, and not that of the store
        finally:
            close_entries(entries)

    def _is_dropped(self, key: Any, size: int) -> bool:
        """Handle a value that is too large. Raises StoreError unless such values are dropped."""
        setting = f"stores.{self.name}.changelog.max.message.size.bytes"
        what = (
            f"store '{self.name}': the value of the key {shortened(key)} has {size} bytes, more than "
            f"{setting}={self._max_value}"
        )
        if not self._drops_large:
            raise StoreError(f"{what}; put less, or raise that limit")
        if self._counts.dropped.count == 0:
            log.warning(
                "%s: it was not put (stores.%s.drop.large.messages); such values are counted from now on",
                what,
                self.name,
            )
        self._counts.dropped.inc()
        return True

    def _check(self) -> None:
        if _get_ident() != self._owner.ident:
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self._owner.ident == 0:
            raise StoreError(f"store '{self.name}' is closed")
        raise WrongThreadError(
            f"store '{self.name}' was used from the thread '{threading.current_thread().name}'; it belongs "
            "to the thread of the event loop. Do the work in process() or window(), or hand the result over "
            "through a queue that they read"
        )

    def _none_key(self) -> StoreError:
        return StoreError(f"store '{self.name}': None is not a valid key")

    def _unencodable(self, key: Any, what: str, error: Exception) -> SerdeError:
        setting = "key" if what == "key" else "msg"
        return SerdeError(
            f"store '{self.name}': cannot encode the {what} {shortened(key)}: {described(error)}; "
            f"stores.{self.name}.{setting}.serde=... chooses another serde"
        )

    def _undecodable(self, key: Any, error: Exception) -> SerdeError:
        return SerdeError(
            f"store '{self.name}': cannot decode the entry with the key {shortened(key)}: "
            f"{described(error)}; was it written with other serdes?"
        )
