"""The reference page of all configuration keys, docs/keys.md.

``python -m tests.keys_page`` prints it, ``python -m tests.keys_page --write`` writes it;
``tests/cli/test_keys.py`` compares the page with the code.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterable, Iterator

from streambench.config_keys import KEYS, Key
from streambench.system.systems import BUILTIN
from tests.conftest import CHECKOUT

PAGE = CHECKOUT / "docs" / "keys.md"

_HEAD = """# Configuration keys

All keys of streambench and of the systems that come with it; `streambench keys` lists them, too. `<s>` stands
for a system, `<t>` for a stream, `<n>` for a name that the configuration chooses. A value may hold
`${env:NAME}`, `${file:PATH}` or `${file:PATH:KEY}`. A key of a stream comes before that of its system.
"""


def page() -> str:
    """Return the text of the page."""
    return _HEAD + "".join(sections())


def sections() -> Iterator[str]:
    prefixes = dict.fromkeys(each.pattern.partition(".")[0] for each in KEYS)
    for prefix in prefixes:
        yield _table(f"`{prefix}.`", (each for each in KEYS if each.pattern.startswith(f"{prefix}.")))
    for kind, path in BUILTIN.items():
        if settings := pkgutil.resolve_name(path).settings:
            keys = (each._replace(meaning=each.meaning.removeprefix(f"{kind}: ")) for each in settings)
            yield _table(f"Systems of kind `{kind}`", keys)


def _table(title: str, keys: Iterable[Key]) -> str:
    rows = (
        f"| `{each.pattern}` | {_kind(each)} | {_default(each)} | {_plain(each.meaning)} |\n" for each in keys
    )
    return f"\n## {title}\n\n| key | kind | default | meaning |\n|---|---|---|---|\n" + "".join(rows)


def _kind(key: Key) -> str:
    least = "" if key.least is None else f", {key.least} or more"
    return " or ".join(f"`{each}`" for each in key.values) or key.kind + least


def _default(key: Key) -> str:
    return "" if key.default is None else f"`{key.default}`"


def _plain(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page())
    else:
        print(page())
