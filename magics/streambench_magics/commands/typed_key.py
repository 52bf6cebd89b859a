"""Keys of stores as they are typed."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from streambench.debug.message_text import message_text
from streambench.syntax import literal

_BYTES = ("b'", 'b"')


def typed_key(text: str, serde: str | None) -> Any:
    """The key of a store with this serde: text, bytes as text or as ``b'\\xff'``, else JSON or text."""
    if serde in ("string", None):
        return text
    if serde == "bytes":
        if text.startswith(_BYTES):
            with suppress(SyntaxError, ValueError):
                return literal(text)
        return text.encode()
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_typed(typed: str | None, key: Any) -> bool:
    """True for a key that was typed, as it is or as it is shown; for each where none was."""
    return typed is None or typed in (key, str(key), message_text(key))
