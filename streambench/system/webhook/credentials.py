"""Credentials of senders: by a bearer token, by a signature over the body, or by both."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence


class Credentials:
    """Checks what is received, and signs what is posted, by the same settings. Where there are several tokens
    or secrets, any of them is accepted and the first is used. A representation of it shows none."""

    def __init__(
        self,
        tokens: Sequence[str],
        secrets: Sequence[str],
        signature_header: str,
        timestamp_header: str | None,
        tolerance_s: float,
    ) -> None:
        self._tokens = [each.encode() for each in tokens]
        self._secrets = [each.encode() for each in secrets]
        self._signature_header = signature_header
        self._timestamp_header = timestamp_header
        self._tolerance_s = tolerance_s

    def __bool__(self) -> bool:
        """True if anything is to be proved."""
        return bool(self._tokens or self._secrets)

    @property
    def header_names(self) -> frozenset[str]:
        """The headers, in small letters, that carry the proof."""
        return frozenset({"authorization", self._signature_header, self._timestamp_header or ""})

    def token_problem(self, headers: Mapping[str, str]) -> str | None:
        """The defect of a request's token; None for none."""
        if not self._tokens:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return "a bearer token is missing: send it as 'Authorization: Bearer TOKEN'"
        given = token.strip().encode("latin-1", "replace")
        # All are compared, and each in the same time whatever is given.
        matches = [hmac.compare_digest(given, each) for each in self._tokens]
        return None if any(matches) else "the bearer token is wrong"

    def signature_problem(self, headers: Mapping[str, str], body: bytes, now: float) -> str | None:
        """The defect of a request's signature; None for none. ``now``: in seconds since
        1970."""
        if not self._secrets:
            return None
        given = headers.get(self._signature_header, "")
        if not given:
            return f"the signature is missing: send it in the header {self._signature_header}"
        stamp = None
        if self._timestamp_header is not None:
            stamp = headers.get(self._timestamp_header, "").strip()
            if not stamp:
                return f"the time is missing that is signed: send it in the header {self._timestamp_header}"
            if not stamp.isascii() or not stamp.isdecimal() or len(stamp) > 15:
                return f"the time in the header {self._timestamp_header} is no number of seconds"
        matches = [
            hmac.compare_digest(given.strip().encode("latin-1", "replace"), _signed(each, stamp, body))
            for each in self._secrets
        ]
        if not any(matches):
            return "the signature does not match the body"
        if stamp is not None and abs(now - int(stamp)) > self._tolerance_s:
            return f"the time in the header {self._timestamp_header} is too far from now"
        return None

    def proof(self, body: bytes) -> dict[str, str]:
        """The headers that prove who posts this body now."""
        headers = {}
        if self._tokens:
            headers["authorization"] = f"Bearer {self._tokens[0].decode()}"
        if self._secrets:
            stamp = None if self._timestamp_header is None else str(int(time.time()))
            if self._timestamp_header is not None and stamp is not None:
                headers[self._timestamp_header] = stamp
            headers[self._signature_header] = _signed(self._secrets[0], stamp, body).decode()
        return headers

    def without_secrets(self, text: str) -> str:
        """A text in which no token and no secret stands any more: a receiver may repeat what it was sent."""
        for each in (*self._tokens, *self._secrets):
            text = text.replace(each.decode(), "***")
        return text


def _signed(secret: bytes, stamp: str | None, body: bytes) -> bytes:
    what = body if stamp is None else b"%b.%b" % (stamp.encode(), body)
    return b"sha256=" + hmac.new(secret, what, hashlib.sha256).hexdigest().encode()
