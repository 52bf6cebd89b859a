"""The magics of streambench for IPython and JupyterLab: ``%load_ext streambench``.

Only what needs IPython is in here. Everything that the magics do, Python code can do without them, by ``streambench`` itself.
"""

from __future__ import annotations

import atexit

from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Register ``%%streamtask``, ``%%streamconfig`` and ``%stream``, and the completion of their arguments."""
    from streambench_magics.complete import completer_of
    from streambench_magics.magics import StreamMagics

    unload_ipython_extension(ipython)
    magics = StreamMagics(ipython)
    ipython.register_magics(magics)
    magics.matcher = completer_of(magics)
    ipython.Completer.custom_matchers.append(magics.matcher)
    atexit.register(magics.end)


def unload_ipython_extension(ipython: InteractiveShell) -> None:
    """Stop what runs, freeze the panels, take the magics away."""
    magics = ipython.magics_manager.registry.pop("StreamMagics", None)
    if magics is None:
        return
    atexit.unregister(magics.end)
    try:
        magics.end()
    finally:
        for kind, names in magics.magics.items():
            for name in names:
                ipython.magics_manager.magics[kind].pop(name, None)
        if magics.matcher is not None and magics.matcher in ipython.Completer.custom_matchers:
            ipython.Completer.custom_matchers.remove(magics.matcher)
