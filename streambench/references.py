"""References in configuration values: ``${env:NAME}``, ``${file:PATH}`` and ``${file:PATH:KEY}``, as Kafka's
ConfigProvider has them.

``$${`` stands for the text ``${`` itself. What a reference stands for is taken as it is: references in it are
not followed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

_PART = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_WHOLE = re.compile(r"\$\{(env|file):[^{}]*\}")
_LARGEST = 1 << 20


class UnresolvedError(Exception):
    """A reference that cannot be resolved. The text names the reference and the cause, never a value."""


class Fragment(NamedTuple):
    """A reference and the value that it stands for."""

    reference: str
    value: str


def has_references(text: str) -> bool:
    """Return True where there may be something to resolve in a text."""
    return "${" in text


def is_reference(text: str) -> bool:
    """Return True where a text is one reference and nothing else, so that it holds no secret itself."""
    return _WHOLE.fullmatch(text.strip()) is not None


def resolved(text: str, directory: Path) -> tuple[str, list[Fragment]]:
    """The text with values in place of its references, and these. ``directory``: what relative paths are
    relative to. Raises UnresolvedError."""
    fragments: list[Fragment] = []
    # A reference with text around it and an unknown provider may be a password: then it is not shown.
    is_whole = text.startswith("${") and text.count("${") == 1 and text.endswith("}")

    def value_of(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"
        if not found[2]:
            raise UnresolvedError("a ${ has no } behind it; write $${ for the text ${ itself")
        provider, colon, rest = found[1].partition(":")
        if provider == "env" and colon:
            value = _of_environment(found[0], rest.strip())
        elif provider == "file" and colon:
            value = _of_file(found[0], rest.strip(), directory)
        else:
            shown = found[0] if is_whole else "${...}"
            meant = f"${{env:{found[1]}}}" if is_whole and re.fullmatch(r"\w+", found[1]) else "${env:NAME}"
            raise UnresolvedError(
                f"{shown} is no reference: write {meant} or ${{file:PATH}}, or $${{ for the text ${{ itself"
            )
        fragments.append(Fragment(found[0], value))
        return value

    return _PART.sub(value_of, text), fragments


def _of_environment(reference: str, name: str) -> str:
    value = os.environ.get(name, "") if name and "\0" not in name else ""
    if not value:
        raise UnresolvedError(
            f"{reference}: there is no environment variable {name or 'without a name'}, or nothing in it"
        )
    return value


def _of_file(reference: str, rest: str, directory: Path) -> str:
    name, _, key = rest.partition(":")
    try:
        path = directory / Path(name).expanduser()
        if path.exists() and not path.is_file():
            raise UnresolvedError(f"{reference}: {path} is no regular file")
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read(_LARGEST + 1)
    except UnicodeDecodeError:
        raise UnresolvedError(f"{reference}: {name} is no text in UTF-8") from None
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # of a name with a zero byte, of a home directory that is unknown
        raise UnresolvedError(
            f"{reference}: cannot read {name}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if len(text) > _LARGEST:
        raise UnresolvedError(f"{reference}: {name} is larger than 1 MiB")
    text = _of_properties(reference, text, key) if ":" in rest else text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise UnresolvedError(f"{reference}: there is nothing in {name}" + (f" for {key}" if key else ""))
    return text


def _of_properties(reference: str, text: str, key: str) -> str:
    import javaproperties  # takes long to import, and is rarely needed

    try:
        values = javaproperties.loads(text)
    except ValueError:
        raise UnresolvedError(f"{reference}: the file is no properties file") from None
    if key not in values:
        raise UnresolvedError(f"{reference}: there is no key {key} in the file")
    return str(values[key])
