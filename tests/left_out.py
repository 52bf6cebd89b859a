"""What the process of the tests never imports; as a plug-in of pytest, this comes before that of nbval."""

from __future__ import annotations

import sys

# Its grammar takes a second of CPU to build, in each worker: nbformat's JSON schemas do without it.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
