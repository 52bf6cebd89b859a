"""The first entries of the stores at a session's position, cheap to look at however many there are."""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from streambench.debug.control.session import Session

_MOST_READ = 20_000


class Entry(Struct, frozen=True):
    """An entry of a store of a task."""

    task: str
    store: str
    key: Any
    value: Any


class Entries(Struct, frozen=True):
    """The ``shown`` entries. ``is_all``: there are no others that fit the search."""

    shown: tuple[Entry, ...] = ()
    is_all: bool = True


def first_entries(session: Session, most: int = 100, search: str = "") -> Entries:
    """At most so many entries of all stores at a session's position. ``search``: only those with this text in
    the name of the store or in the key. Of a large store only its first 20,000 entries are searched. Raises
    ContainerStateError where it is not started."""
    return session.read_tasks(lambda tasks: _first(list(tasks), session, most, search.lower()))


def _first(tasks: list[Any], session: Session, most: int, search: str) -> Entries:
    definitions = session.container.runtime.task_stores.definitions
    found: list[Entry] = []
    is_all = True
    for task in tasks:
        for name, store in sorted(task.stores.items()):
            definition = definitions[name]
            entries = store.engine.range(None, None)
            with contextlib.closing(entries) if hasattr(entries, "close") else contextlib.nullcontext():
                read = 0
                for raw_key, raw_value in islice(entries, _MOST_READ):
                    read += 1
                    key = definition.shown_key(raw_key)
                    if search and search not in f"{name} {key}".lower():
                        continue
                    if len(found) == most:
                        return Entries(tuple(found), False)
                    found.append(Entry(task.name, name, key, definition.shown_value(raw_value)))
                is_all = is_all and read < _MOST_READ
    return Entries(tuple(found), is_all)
