"""The error for an exception out of a chooser: it names the chooser, and the place in its code."""

from __future__ import annotations

from streambench.chooser.api import MessageChooser
from streambench.errors import ChooserError, StreambenchError, described, located


def chooser_failure(error: BaseException) -> ChooserError | None:
    """The error for an exception that a chooser raised, to be raised ``from`` it; None where it came from
    elsewhere, or is one of ours."""
    if isinstance(error, StreambenchError) or not isinstance(error, Exception):
        return None
    found = None
    step = error.__traceback__
    while step is not None:
        if isinstance(step.tb_frame.f_locals.get("self"), MessageChooser):
            found = step
        step = step.tb_next
    if found is None:
        return None
    code = found.tb_frame.f_code
    name = f"{type(found.tb_frame.f_locals['self']).__name__}.{code.co_name}"
    return ChooserError(
        f"the chooser failed in {name} ({located(code.co_filename, found.tb_lineno)}): {described(error)}"
    )
