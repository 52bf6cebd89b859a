"""The end of a job in words: its messages and outputs since the last commit."""

from __future__ import annotations

from streambench.counts import counted
from streambench.debug.control.session import Session

NOTHING_COMMITTED = "nothing since its last checkpoint is committed"


def ended_text(session: Session, *, has_failed: bool, is_abandoned: bool) -> str:
    """The end of a job that is about to be stopped: "is stopped, with everything committed"."""
    if has_failed:
        return f"has failed: {dropped_text(session)}"
    if session.recording is not None:
        return "is stopped; a replay is in memory, and nothing of it has left that"
    if is_abandoned:
        return f"is abandoned: {dropped_text(session)}"
    return "is stopped, with everything committed"


def replaced_text(session: Session | None) -> str:
    """The end of a job that is about to be stopped as another one takes its place, behind its name. Empty
    where it had not started."""
    if session is None:
        return ""
    if session.state == "stopped":
        return ", which was stopped"
    if session.container.abandoned:
        return f", which was abandoned: {NOTHING_COMMITTED}"
    if session.state == "failed":
        return f", which had failed: {NOTHING_COMMITTED}"
    if session.recording is not None:
        return ", which was a replay"
    committed = committed_text(session)
    return f", which was stopped{f': {committed}' if committed else ''}"


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
