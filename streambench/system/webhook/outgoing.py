"""Outgoing messages: what a post has beside its body, or the error that refuses a message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from streambench.errors import SerdeError, shortened
from streambench.model import SystemStream
from streambench.system.webhook.settings import HEADER_NAME

_OURS = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_LONGEST_QUERY = 32 << 10


class KeyAs(NamedTuple):
    """The place of a key in a request: a header, or a parameter of the URL; with neither it is not sent."""

    header: str | None
    query: str | None


def beside_the_body(
    stream: SystemStream, key_as: KeyAs, key: Any, message: Any, headers: Mapping[str, bytes] | None
) -> tuple[dict[str, str], str | None]:
    """The HTTP headers of a message, and what it adds to the URL. Raises SerdeError where it cannot be
    posted."""
    if type(message) is not bytes:
        what = f"a {type(message).__name__}, not bytes: set a serde"
        if message is None:
            what = "None, and there is nothing to post"
        raise SerdeError(f"{stream}: what is to be posted is {what}")
    if key is not None and type(key) is not bytes:
        serde = f"systems.{stream.system}.samza.key.serde"
        raise SerdeError(f"{stream}: its keys are bytes, and this is a {type(key).__name__}: set {serde}")
    found = _http_headers(stream, headers or {})
    query = None
    if key is not None and key_as.header is not None:
        found[key_as.header] = _header_value(stream, "key", key)
    elif key is not None and key_as.query is not None:
        query = f"{quote(key_as.query, safe='')}={quote(key, safe='')}"
        if len(query) > _LONGEST_QUERY:
            raise SerdeError(f"{stream}: a key of {len(key)} bytes is too long for a URL")
    return found, query


def _http_headers(stream: SystemStream, headers: Mapping[str, bytes]) -> dict[str, str]:
    found = {}
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            raise SerdeError(
                f"{stream}: {shortened(name)} cannot be the name of an HTTP header: give letters, digits, - "
                "and _"
            )
        if name.lower() not in _OURS:
            found[name] = _header_value(stream, f"header '{name}'", value)
    return found


def _header_value(stream: SystemStream, what: str, value: bytes) -> str:
    try:
        text = value.decode("ascii")
    except (UnicodeDecodeError, AttributeError):
        text = "\n"
    if not text.isprintable() or text != text.strip():
        raise SerdeError(
            f"{stream}: the {what} cannot be an HTTP header: those are printable ASCII characters, without "
            "blanks around them"
        )
    return text
