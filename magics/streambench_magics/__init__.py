"""The magics of streambench for IPython and JupyterLab: ``%load_ext streambench``.

Only what needs IPython is in here. Everything that the magics do, Python code can do without them, by
``streambench`` itself.
"""

from __future__ import annotations

import atexit
import re
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

_HELP = re.compile(r"\s*%stream\s+([a-z]+)\s*\?{1,2}\s*")

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register ``%%streamtask``, ``%%streamconfig`` and ``%stream``, the completion of their arguments, and
    the text of the values of ``streambench.debug``."""
    from streambench_magics import displays
    from streambench_magics.completion.complete import completer_of
    from streambench_magics.magics import StreamMagics

    unload_ipython_extension(ipython)
    magics = StreamMagics(ipython)
    ipython.register_magics(magics)
    magics.matcher = completer_of(magics)
    ipython.Completer.custom_matchers.append(magics.matcher)
    ipython.input_transformers_cleanup.append(_help_of_command)
    _help_at_cursor(getattr(ipython, "kernel", None))
    displays.register(ipython)
    atexit.register(magics.end)


def _help_at_cursor(kernel: Any) -> None:
    """Have a kernel show the help of sub-commands at the cursor."""
    from streambench_magics.completion.inspection import inspecting

    if hasattr(kernel, "do_inspect"):
        kernel.do_inspect = inspecting(kernel.do_inspect)


def _help_of_command(lines: list[str]) -> list[str]:
    """``%stream step?`` is ``%stream help step``: IPython would look for an object of that name."""
    found = _HELP.fullmatch("".join(lines))
    return lines if found is None else [f"%stream help {found[1]}\n"]


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Stop what runs, freeze the panels, take the magics away."""
    magics = ipython.magics_manager.registry.pop("StreamMagics", None)
    if magics is None:
        return
    from streambench_magics import displays

    atexit.unregister(magics.end)
    displays.unregister(ipython)
    try:
        magics.end()
    finally:
        for kind, names in magics.magics.items():
            for name in names:
                ipython.magics_manager.magics[kind].pop(name, None)
        if magics.matcher is not None and magics.matcher in ipython.Completer.custom_matchers:
            ipython.Completer.custom_matchers.remove(magics.matcher)
        if _help_of_command in ipython.input_transformers_cleanup:
            ipython.input_transformers_cleanup.remove(_help_of_command)
        # What is left is the method of its class.
        getattr(getattr(ipython, "kernel", None), "__dict__", {}).pop("do_inspect", None)
