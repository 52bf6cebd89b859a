"""Stores whose keys are lists and dicts, as JSON makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import streambench as sb
from streambench.debug import compare
from tests.debug.control.test_time_travel import session_of

KEYS: list[Any] = [["x", 1], {"k": [1, {"n": None}]}, "plain"]


class Keeping(sb.StreamTask):
    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("n")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.store.put(envelope.message, 1)


class Doubling(Keeping):
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.store.put(envelope.message, 2)


def texts(keys: Iterable[Any]) -> list[str]:
    return sorted(map(repr, keys))


def test_keys_that_are_lists_and_dicts_are_shown_as_such() -> None:
    session, _ = session_of(Keeping, {"mem.in": {0: KEYS}}, {"stores.n.key.serde": "json"})
    assert session.step(3) == 3
    ((_, stores),) = session.stores().items()
    assert texts(stores["n"]) == texts(KEYS)
    assert all(key in KEYS for key in stores["n"])
    ((_, changed),) = session.diff(0, 2).stores.items()
    assert texts(changed["n"]) == texts(KEYS[:2])
    ((_, lost),) = session.crash().state.items()
    assert texts(lost["n"]) == texts(KEYS)
    found = compare(Keeping, Doubling, session)
    ((_, differing),) = found.stores.items()
    assert list(differing["n"].values()) == [(1, 2)] * 3
    session.stop()
