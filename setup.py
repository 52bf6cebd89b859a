"""Compiles the modules that every message goes through, where STREAMBENCH_COMPILE=1 asks for it (``make compiled``). All else of the
package stands in pyproject.toml; without this the package is plain Python, and does the same."""

from __future__ import annotations

import os

from setuptools import setup

# Not what others may inherit from (systems, choosers, outboxes): a class of plain Python cannot inherit from a compiled one.
# Nor the outlet: the interpreter reads the fields of envelopes in less time than compiled code does.
HOT = [
    "streambench/container/handles.py",
    "streambench/container/loop.py",
    "streambench/container/multiplexer.py",
    "streambench/container/task_instance.py",
    "streambench/container/turns.py",
    "streambench/system/partitioner.py",
]

if os.environ.get("STREAMBENCH_COMPILE") == "1":
    from mypyc.build import mypycify

    setup(ext_modules=mypycify(HOT, group_name="streambench"))
else:
    setup()
