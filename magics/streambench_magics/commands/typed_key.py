"""Keys of stores as they are typed."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from streambench.debug.message_text import message_text
from streambench.syntax import literal

TEXT_SERDES = ("string", None)
_BYTES = ("b'", 'b"')


def typed_key(text: str, serde: str | None) -> Any:
    """The key of a store with this serde: text, bytes as text or as ``b'\\xff'``, else JSON or text."""
    if serde in TEXT_SERDES:
        return text
    if serde == "bytes":
        if text.startswith(_BYTES):
            with suppress(SyntaxError, ValueError):
                return literal(text)
        return text.encode()
    return json_or_text(text)


def json_or_text(text: str | None) -> Any:
    """The value of a text that is JSON; else the text."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def is_typed(typed: str | None, key: Any) -> bool:
    """True for a key that was typed, as it is or as it is shown; for each where none was."""
    return typed is None or typed in (key, str(key), message_text(key))
