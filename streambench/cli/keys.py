"""``streambench keys``: what a configuration may say."""

from __future__ import annotations

from typing import Annotated

import typer

from streambench.cli.output import show_rows
from streambench.config_keys import KEYS
from streambench.errors import ConfigError


def add_to(app: typer.Typer) -> None:
    app.command(name="keys")(keys)


def keys(
    containing: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Only keys whose name or meaning contains this.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List the keys of a configuration, with their defaults and meanings.

    <s> stands for a system, <t> for a stream, <n> for a name that the configuration chooses. What a kind of system, a serde, a store or
    a reporter takes beyond these is its own and stands in its documentation.

    Examples:

        streambench keys checkpoint

        streambench keys --json
    """
    wanted = (containing or "").lower()
    rows = [
        {
            "key": each.pattern,
            "kind": each.kind,
            "default": each.default,
            "values": list(each.values) if as_json else " | ".join(each.values),
            "meaning": each.meaning,
        }
        for each in KEYS
        if wanted in f"{each.pattern} {each.meaning}".lower()
    ]
    if not rows:
        raise ConfigError(f"no key has {containing!r} in its name or meaning; 'streambench keys' lists all of them")
    show_rows(rows, ("key", "kind", "default", "values", "meaning"), as_json=as_json)
