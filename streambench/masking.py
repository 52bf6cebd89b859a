"""The secrets among keys and values of a configuration, and values as they may be shown."""

from __future__ import annotations

import re

from streambench import redaction, references

_SECRET = re.compile(
    r"passw|passphrase|secret|token|credential|sasl\.(?!mechanism)|\.hmac|api[._-]?key|private[._-]?key",
    re.IGNORECASE,
)
# The same at the end of a key: a value there is a secret, whatever the system or stream is called.
_SECRET_END = re.compile(
    r"(passw|passphrase|secret|token|credential|jaas\.config|hmac|api[._-]?key|private[._-]?key)[^.]*$",
    re.IGNORECASE,
)
_JAAS_PASSWORD = re.compile(r'password\s*=\s*"((?:[^"\\]|\\.)*)"')
_USER_INFO = re.compile(r"(?<=://)[^\s,;]+(?=@)")  # a password that was not quoted may have / and @ in it
_WEBHOOK = re.compile(r"(?i:(?<=^http://)|(?<=^https://))([^/?#\s]+[/?#]).+")
_HTTP = re.compile("https?://", re.IGNORECASE)
_TOKEN = re.compile(r"(?<=token=)[^;&\s]+", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """True where the value of a key is a secret, whatever the system or stream is called."""
    return bool(_SECRET_END.search(key))


def masked(key: str, value: str) -> str:
    """The value as it may be shown.

    Stars replace a secret, and the user part or the token of a URL. They also replace what follows the host
    in the URL of a webhook: with it anyone may post there. A value that is a reference is shown as it is."""
    if references.is_reference(value):
        return value
    if _SECRET.search(key):
        return "***"
    if key.endswith("url"):
        value = _WEBHOOK.sub(r"\1***", value) if _HTTP.match(value) else _of_broker(value)
    return _TOKEN.sub("***", _USER_INFO.sub("***", value))


def remember_clear(key: str, value: str) -> None:
    """Register a secret that a configuration holds in clear, or the password in a URL."""
    if is_secret(key):
        if value.lower() not in key.lower():  # to mask "secret" would hide the names of keys
            redaction.remember(value)
        for password in _JAAS_PASSWORD.findall(value):
            redaction.remember(password)
    elif "://" in value and "@" in value:
        for user in _USER_INFO.findall(value):
            redaction.remember(user)
            redaction.remember(user.partition(":")[2])


def _of_broker(url: str) -> str:
    """Without what stands before the @, however wrongly it is written, and without options that have a secret
    among them."""
    address, query, options = url.partition("?")
    user, at, host = address.rpartition("@")
    scheme, mark, _ = (user or address).partition("://")
    start = f"{scheme}{mark}" if mark else ""
    if "@" in options:
        return f"{start}***"  # who knows where the password ends
    shown = f"{start}***@{host}" if at else address
    return f"{shown}{query}{_masked_options(options)}"


def _masked_options(options: str) -> str:
    return "***" if _SECRET.search(options) else options
