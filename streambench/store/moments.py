"""Past states, for engines that can return to them in place."""

from __future__ import annotations

import weakref
from typing import Any

from streambench.errors import StoreError
from streambench.store.engine import StoreEngine


class Moment:
    """A state in the past, kept backwards: what keys had as values that were changed since, up to the next
    moment.

    Moments are linked from older to newer ones, so that a write has to be noted in the newest only. Only the
    holder of a snapshot keeps a moment alive, so that nothing is noted without a use.
    """

    __slots__ = ("__weakref__", "engine", "former", "next")

    def __init__(self, engine: StoreEngine | None = None) -> None:
        self.engine = engine
        self.former: dict[bytes, bytes | None] = {}
        self.next: Moment | None = None

    def value(self, key: bytes, now: bytes | None) -> bytes | None:
        """The value of a key at this moment, ``now`` being the present one."""
        moment: Moment | None = self
        while moment is not None:
            if key in moment.former:
                return moment.former[key]
            moment = moment.next
        return now

    def changes(self) -> dict[bytes, bytes | None]:
        """The values at this moment of all keys that were changed since."""
        changes: dict[bytes, bytes | None] = {}
        moment: Moment | None = self
        while moment is not None:
            for key, value in moment.former.items():
                changes.setdefault(key, value)
            moment = moment.next
        return changes


NO_MOMENT = weakref.ref(Moment())


class RewindableEngine(StoreEngine):
    """An engine that notes what it overwrites, as long as a snapshot is held.

    Whatever changes a key first asks ``self._newest()`` for a moment. Where there is one, it notes in its
    ``former`` what the key had, unless that is there already.
    """

    def __init__(self) -> None:
        self._newest = NO_MOMENT

    def snapshot(self) -> Any:
        return self._moment()

    def restore(self, snapshot: Any) -> None:
        if not isinstance(snapshot, Moment) or snapshot.engine is not self:
            raise StoreError("this is no snapshot of this store")
        changes = snapshot.changes()
        self.load(list(changes), list(changes.values()))

    def _moment(self) -> Moment:
        newest = self._newest()
        if newest is not None and not newest.former:
            return newest
        moment = Moment(self)
        if newest is not None:
            newest.next = moment
        self._newest = weakref.ref(moment)
        return moment
