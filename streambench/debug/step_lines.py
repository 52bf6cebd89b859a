"""Processed messages, and the message of a stop, as lines of text."""

from __future__ import annotations

from streambench.container.observe.snapshot import Choice
from streambench.debug.effect_lines import effect_lines
from streambench.debug.message_text import LINE, message_line, message_text
from streambench.debug.session import Session
from streambench.model import IncomingMessageEnvelope

_SHORT = 60
_WIDTH = 110
_LEAST_MESSAGE = 24
_INDENT = " " * 8


def head_line(position: int, envelope: IncomingMessageEnvelope | Choice, rule: str = "") -> str:
    """A message as ``1,034  flights.0@724  key ORD  (round robin)``."""
    return f"{position:>6,}  {_place(envelope)}{f'  ({rule})' if rule else ''}"


def row_line(choice: Choice, envelope: IncomingMessageEnvelope | None) -> str:
    """The line of one of several messages, with the message itself where that fits."""
    head, line = head_line(choice.number, choice), head_line(choice.number, choice, choice.rule)
    room = _WIDTH - len(line) - 2
    if envelope is None or room < _LEAST_MESSAGE:
        return line
    return f"{head}  {message_line(envelope.message, room)}{line[len(head) :]}"


def value_line(envelope: IncomingMessageEnvelope | None) -> list[str]:
    """The message itself in a line; none where it is not known."""
    return [] if envelope is None else [f"{_INDENT}message  {message_line(envelope.message, LINE)}"]


def position_lines(session: Session) -> list[str]:
    """The message at the position of a session, its changes of state, and its outputs."""
    position, message = session.position, processed_message(session)
    if not position or message is None:
        return []
    count = session.batch
    rule = f"the last of {count:,} messages that the task got at once" if count > 1 else ""
    lines = [head_line(position, message, rule), *value_line(message)]
    if session.history is None:
        return lines
    return lines + effect_lines(session.last, _short)


def stop_lines(session: Session, *, with_last: bool = True) -> list[str]:
    """The message at which a session stopped at a breakpoint: the next one where it stands before it, else
    the last one, unless ``with_last`` is false."""
    stopped = session.stopped_at
    if stopped is None or stopped.breakpoint.on != "message":
        message = processed_message(session) if stopped is not None and with_last else None
        return [] if message is None else [head_line(session.position, message), *value_line(message)]
    message = stopped.moment.envelope
    return [] if message is None else [f"{_INDENT}next     {_place(message)}", *value_line(message)]


def processed_message(session: Session) -> IncomingMessageEnvelope | None:
    """The message at the position, as it was before the task got it; None where there is none."""
    read = None if session.branched else session.message_at(session.position)
    return read or session.last_message


def _place(envelope: IncomingMessageEnvelope | Choice) -> str:
    key = "" if envelope.key is None else f"  key {message_text(envelope.key, _SHORT)}"
    return f"{envelope.ssp}@{envelope.offset}{key}"


def _short(value: object) -> str:
    return message_text(value, _SHORT)
