"""``streambench bench``: the measurements behind docs/figures.md."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import typer

import streambench
from streambench.errors import StreambenchError

_IN_WHEELS = "streambench_benchmarks"


OPTIONS = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
}
"""Everything behind the name goes to the benchmarks."""


def bench(context: typer.Context) -> None:
    """Measure: throughput, latency, start-up. Everything behind "bench" goes to the benchmarks; "bench
    --help" lists what they take.

    Examples:

        streambench bench

        streambench bench --help
    """
    checkout = Path(streambench.__file__).resolve().parent.parent
    module, environment = "benchmarks", dict(os.environ)
    if (checkout / "benchmarks" / "__main__.py").is_file():
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(checkout), os.environ.get("PYTHONPATH")])
        )
    elif importlib.util.find_spec(_IN_WHEELS) is not None:
        module = _IN_WHEELS
    else:
        raise StreambenchError(
            f"there are no benchmarks beside {checkout / 'streambench'}: install streambench again"
        )
    # -P: what is called benchmarks in the working directory is another's.
    done = subprocess.run([sys.executable, "-P", "-m", module, *context.args], env=environment, check=False)
    if done.returncode:
        raise typer.Exit(1 if done.returncode != 2 else 2)
