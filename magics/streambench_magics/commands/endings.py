"""The end of a job in words: its messages and outputs since the last commit."""

from __future__ import annotations

from streambench.counts import counted
from streambench.debug.control.session import Session

NOTHING_COMMITTED = "nothing since its last checkpoint is committed"


def committed_text(session: Session) -> str:
    """The messages and outputs that the commit of a stop is about to write. Before the stop."""
    messages, held = session.uncommitted()
    sent = f", and {_held(held)} {'is' if held == 1 else 'are'} sent" if held else ""
    was = "is" if messages == 1 else "are"
    return f"{counted(messages, 'message')} {was} committed{sent}" if messages else ""


def dropped_text(session: Session) -> str:
    """The messages and outputs that an end without a commit drops. Before the end."""
    if session.history is None or not session.history.has_begun:
        return NOTHING_COMMITTED
    messages, held = session.uncommitted()
    if not messages:
        return f"nothing was processed since its last checkpoint{f': {_held(held)} dropped' if held else ''}"
    comes = "comes" if messages == 1 else "come"
    text = f"{NOTHING_COMMITTED}: {counted(messages, 'message')} {comes} again with its next start"
    if held:
        return f"{text}, and {_held(held)} {'is' if held == 1 else 'are'} dropped"
    return text if session.holds_outputs else f"{text}; outputs that are out already come again, too"


def _held(number: int) -> str:
    return f"{counted(number, 'held output')}"
