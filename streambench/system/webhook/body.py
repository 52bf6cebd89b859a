"""From the body of a request to messages."""

from __future__ import annotations

from typing import Any

import msgspec

from streambench.errors import SerdeError
from streambench.serde.json_text import json_bytes, json_value
from streambench.system.webhook.inbox import Received
from streambench.system.webhook.settings import Endpoint

_LINES = frozenset(
    {
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        "application/jsonlines",
    }
)

_elements = msgspec.json.Decoder(list[msgspec.Raw])


class BadBodyError(ValueError):
    """A body is not what it should be. The text says so to its sender."""


def messages_of(endpoint: Endpoint, body: bytes, content_type: str, key: bytes | None) -> list[Received]:
    """The messages in a body, byte for byte as they stand in it. ``key``: the one that all of them have,
    unless a field is. Raises BadBodyError where one of them is wrong: a body is taken as a whole or not at
    all."""
    form = endpoint.form
    if not form.is_json:
        return [Received(key, body)]
    if content_type.partition(";")[0].strip().lower() in _LINES:
        lines = [line for line in body.splitlines() if line.strip()]
        values = [
            (line, _parsed(line, f"line {number} of those that are not empty"))
            for number, line in enumerate(lines, start=1)
        ]
    else:
        value = _parsed(body, "the body")
        is_split = form.split_arrays and isinstance(value, list)
        values = list(zip(_elements_of(body), value, strict=True)) if is_split else [(body, value)]
    if not values:
        raise BadBodyError("there is no message in it")
    return [
        Received(key if form.key_field is None else _field(form.key_field, value), message)
        for message, value in values
    ]


def _elements_of(body: bytes) -> list[bytes]:
    try:
        return [bytes(each) for each in _elements.decode(body)]
    except RecursionError:
        raise BadBodyError("the body is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise BadBodyError(f"the body is not JSON: {error}") from None


def _parsed(text: bytes, what: str) -> Any:
    try:
        return json_value(text)
    except (ValueError, SerdeError) as error:
        raise BadBodyError(f"{what} is not JSON: {error}") from None


def _field(name: str, value: Any) -> bytes:
    found = value.get(name) if isinstance(value, dict) else None
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, (int, float)):
        return json_bytes(found)
    raise BadBodyError(f"a message has no field '{name}' with a text or a number, which is to be its key")
