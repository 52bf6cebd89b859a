"""Traces recorded from a running Apache Samza 1.8.0; ``tests/data/samza-traces/README.md`` describes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).resolve().parent / "data" / "samza-traces"


def samza_traces(name: str) -> list[dict[str, Any]]:
    """The traces of one kind, for example ``offsets``."""
    with gzip.open(_DIRECTORY / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
