"""``streambench keys``: what a configuration may say."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer

from streambench.cli.output import show_entries
from streambench.config_keys import KEYS, Key
from streambench.errors import ConfigError
from streambench.system.systems import builtin_settings

_REFERENCES = "A value may hold ${env:NAME}, ${file:PATH} or ${file:PATH:KEY}; $${ stands for ${ itself."


def keys(
    containing: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="Only keys whose name or meaning contains this.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List the keys of a configuration, with their defaults and meanings.

    <s> stands for a system, <t> for a stream, <n> for a name that the configuration chooses. Upper and lower
    case, hyphens and spaces make no difference to TEXT. What a plug-in takes beyond these (another kind of
    system, a serde, a store, a reporter) is its own and stands in its documentation.

    A value may hold ${env:NAME}, ${file:PATH} or ${file:PATH:KEY} (of a properties file). These are resolved
    when it is read and masked when it is shown; $${ stands for ${ itself. Settings below spark. are left to
    Spark.

    Examples:

        streambench keys checkpoint

        streambench keys --json
    """
    wanted = _plain(containing or "")
    rows = [
        {
            "key": each.pattern,
            "kind": each.kind,
            "default": each.default,
            "values": list(each.values) if as_json else " | ".join(each.values),
            "meaning": each.meaning,
        }
        for each in _all()
        if wanted in _plain(f"{each.pattern} {each.meaning}")
    ]
    if not rows:
        raise ConfigError(
            f"no key has {containing!r} in its name or meaning; 'streambench keys' lists all of them"
        )
    show_entries(
        rows, ("key", "kind", "default", "values", "meaning"), title="key", prose="meaning", as_json=as_json
    )
    if not as_json:
        print(_REFERENCES, file=sys.stderr)


def _all() -> list[Key]:
    """The keys of streambench, those of its systems among them where systems are."""
    systems = max(at for at, each in enumerate(KEYS) if each.pattern.startswith("systems.")) + 1
    return [*KEYS[:systems], *builtin_settings(), *KEYS[systems:]]


def _plain(text: str) -> str:
    return re.sub(r"[-\s]", "", text.lower())
