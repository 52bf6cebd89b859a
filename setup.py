"""Puts the benchmarks and the data of the demo into wheels, under names of their own: in the checkout they
stand elsewhere.

Compiles the modules that every message goes through, where STREAMBENCH_COMPILE=1 asks for it (``make
compiled``). All else of the package stands in pyproject.toml; without this the package is plain Python, and
does the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

# Not what others may inherit from (systems, choosers, outboxes): a class of plain Python cannot inherit from
# a compiled one. Nor the stream writers: the interpreter reads fields of envelopes in less time than compiled
# code does.
HOT = [
    "streambench/container/tasks/task_handles.py",
    "streambench/container/event_loop.py",
    "streambench/container/dispatch.py",
    "streambench/container/loop_context.py",
    "streambench/container/progress.py",
    "streambench/container/inputs/multiplexer.py",
    "streambench/container/inputs/partition_buffer.py",
    "streambench/container/tasks/task_instance.py",
    "streambench/container/burst.py",
    "streambench/system/partitioner.py",
]

# Where they stand here, and in a wheel.
ELSEWHERE = {
    **{str(path): f"streambench_benchmarks/{path.name}" for path in sorted(Path("benchmarks").glob("*.py"))},
    "notebooks/data/flights.jsonl.gz": "streambench/cli/flights.jsonl.gz",
}


class BuildPy(build_py):
    """Also copies what stands elsewhere."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self._copies().items():
                Path(target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [
            *super().get_outputs(include_bytecode),
            *([] if self.editable_mode else self._copies().values()),
        ]

    def get_source_files(self) -> list[str]:
        return [*super().get_source_files(), *ELSEWHERE]

    def _copies(self) -> dict[str, str]:
        return {source: str(Path(self.build_lib) / target) for source, target in ELSEWHERE.items()}


if os.environ.get("STREAMBENCH_COMPILE") == "1":
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(HOT, group_name="streambench"), cmdclass={"build_py": BuildPy})
else:
    setup(cmdclass={"build_py": BuildPy})
