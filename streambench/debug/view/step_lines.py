"""Processed messages, and the message of a stop, as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from streambench.container.observe.snapshot import Choice
from streambench.debug.control.session import Session
from streambench.debug.effects.effect_lines import effect_lines
from streambench.debug.message_text import LINE, message_line, short_text
from streambench.model import IncomingMessageEnvelope

_WIDTH = 92
"""Characters of a row: so many fit into a JupyterLab of 1,200 pixels."""

_LEAST_MESSAGE = 30
_INDENT = " " * 8

UNKNOWN_RULE = "no reason is recorded: it was chosen at full speed, or long ago"
"""The text in the place of the rule by which a message was chosen."""

_NOT_PROCESSED = {"message": "next", "error": "failed"}
"""Per kind of a breakpoint at which the message is not processed, the word before it."""


def head_line(position: int, envelope: IncomingMessageEnvelope | Choice, rule: str = "") -> str:
    """A message as ``1,034  flights.0@724  key ORD  (round robin)``."""
    return f"{position:>6,}  {_place(envelope)}{f'  ({rule})' if rule else ''}"


def row_lines(choices: Sequence[Choice], session: Session) -> list[str]:
    """A line for each of several messages, with the message itself where there is room in the line. Below
    stand the rules by which they were chosen, each once."""
    lines = []
    for each in choices:
        line = head_line(each.number, each)
        room = _WIDTH - 2 - len(line)
        if room >= _LEAST_MESSAGE and (envelope := session.message_at(each.number)) is not None:
            line += f"  {message_line(envelope.message, room)}"
        lines.append(line)
    return lines + _rule_lines(choices)


def _rule_lines(choices: Sequence[Choice]) -> list[str]:
    """The rules, each with the numbers of its messages where there are several rules."""
    numbers: dict[str, list[int]] = {}
    for each in choices:
        numbers.setdefault(each.rule or UNKNOWN_RULE, []).append(each.number)
    if len(numbers) < 2:
        return [f"{_INDENT}rule     {rule}" for rule in numbers]
    return [f"{_INDENT}rule     {spans(of_rule)}: {rule}" for rule, of_rule in numbers.items()]


def spans(numbers: Sequence[int]) -> str:
    """Rising numbers in few words: "3-5, 9"."""
    found: list[list[int]] = []
    for each in numbers:
        if found and each == found[-1][1] + 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    return ", ".join(f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last in found)


def value_line(envelope: IncomingMessageEnvelope | None) -> list[str]:
    """The message itself in a line; none where it is not known."""
    return [] if envelope is None else [f"{_INDENT}message  {message_line(envelope.message, LINE)}"]


def position_lines(session: Session) -> list[str]:
    """The message at the position of a session, its changes of state, and its outputs."""
    position, message = session.position, processed_message(session)
    if not position or message is None:
        return []
    count = session.batch
    rule = f"the last of {count:,} messages that the task got at once"
    if count == 1:
        rules = [each.rule for each in session.snapshot().choices if each.number == position]
        rule = "".join(rules) or UNKNOWN_RULE
    lines = [head_line(position, message, rule), *value_line(message)]
    if session.history is None:
        return lines
    return lines + effect_lines(session.last)


def stop_lines(session: Session, *, with_last: bool = True) -> list[str]:
    """The message at which a session stopped at a breakpoint.

    It is the next one where the session stopped before it, and the one that failed. Else it is the last one,
    with what it did, unless ``with_last`` is false.
    """
    stopped = session.stopped_at
    if stopped is None:
        return []
    if stopped.breakpoint.on not in _NOT_PROCESSED:
        return position_lines(session) if with_last else []
    message = stopped.moment.envelope
    if message is None:
        return []
    return [f"{_INDENT}{_NOT_PROCESSED[stopped.breakpoint.on]:<9}{_place(message)}", *value_line(message)]


def processed_message(session: Session) -> IncomingMessageEnvelope | None:
    """The message at the position, as it was before the task got it; None where there is none."""
    read = None if session.branched else session.message_at(session.position)
    return read or session.last_message


def _place(envelope: IncomingMessageEnvelope | Choice) -> str:
    key = "" if envelope.key is None else f"  key {short_text(envelope.key)}"
    return f"{envelope.ssp}@{envelope.offset}{key}"
