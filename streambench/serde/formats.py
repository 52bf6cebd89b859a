"""Names of the bytes that serdes write, stored beside these bytes: serdes that read each other have equal
names."""

from __future__ import annotations

import codecs
import hashlib
import json
import re

from streambench.config import Config
from streambench.masking import masked
from streambench.serde.api import Serde
from streambench.serde.registry import BUILTIN

_OF_OWN = "format"
"""An attribute by which a serde names the bytes that it writes; without it, its class and its settings do."""


def format_of(config: Config, name: str, serde: Serde) -> str:
    """The name of the bytes that ``serde`` writes, which the configuration calls ``name``.

    It is that of the builtin serde, or of the class, however the registry calls it, with the settings that
    matter."""
    own = getattr(serde, _OF_OWN, None)
    if isinstance(own, str):
        return own
    prefix = f"serializers.registry.{name}."
    kind = config.text(prefix + "class") or name
    kind = next(
        (builtin for builtin, path in BUILTIN.items() if kind.replace(":", ".") == path.replace(":", ".")),
        kind,
    )
    settings = {
        key: value.strip() for key, value in config.below(prefix).items() if key != "class" and value.strip()
    }
    if kind in BUILTIN:
        return kind + _described(settings)
    # The directory of a file is no matter of its bytes; and a secret must not be written anywhere, not even
    # as a digest.
    kind = kind.rpartition("/")[2]
    known = {key: value for key, value in sorted(settings.items()) if masked(key, value) == value}
    digest = hashlib.sha256(json.dumps(known).encode()).hexdigest()[:12]
    return f"{kind} (settings {digest})" if known else kind


def _described(settings: dict[str, str]) -> str:
    """The settings of a builtin serde that change its bytes."""
    if "encoding" in settings:
        encoding = codecs.lookup(settings["encoding"]).name
        return "" if encoding == "utf-8" else f" ({encoding})"
    if "type" in settings:
        return f" ({re.split(r'[.:]', settings['type'])[-1]})"
    return ""
