"""Keys of stores that can be looked up: a serde may make lists and dicts of them."""

from __future__ import annotations

from typing import Any

from streambench.errors import represented


class ListKey(list[Any]):
    """A list as a key of a dict. It equals the plain list, and is not to be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


class DictKey(dict[Any, Any]):
    """A dict as a key of a dict. It equals the plain dict, and is not to be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def store_key(key: Any) -> Any:
    """Return a key of a store as a key of a dict: itself, an equal list or dict with a hash, or its text."""
    try:
        hash(key)
    except TypeError:
        pass
    else:
        return key
    if isinstance(key, list):
        return ListKey(map(store_key, key))
    if isinstance(key, dict):
        return DictKey((name, store_key(value)) for name, value in key.items())
    if isinstance(key, tuple):
        return tuple(map(store_key, key))
    return represented(key)
