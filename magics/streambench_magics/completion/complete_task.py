"""Completion and help in the body of a ``%%streamtask`` cell: the members of what its callbacks are given."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable

from streambench.batch import MessageBatch
from streambench.container.tasks.functions import CALLBACKS
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.task import MessageCollector, TaskContext, TaskCoordinator

_GIVEN: dict[str, type] = {
    "envelope": IncomingMessageEnvelope,
    "batch": MessageBatch,
    "collector": MessageCollector,
    "coordinator": TaskCoordinator,
    "context": TaskContext,
}
_DEF = re.compile(rf"def\s+({'|'.join(CALLBACKS)})\s*\(([^)]*)")
_MEMBER = re.compile(r"(?:^|[^\w.])(\w+)((?:\.\w+)*)\.(\w*)$")
_FIELD = re.compile(r"\b(?:(\w+)\.message|(\w+))(?:\[|\.get\()\s*[\"']([\w .-]*)$")
_NAMED_MESSAGE = re.compile(r"\b(\w+)\s*=\s*(\w+)\.message\s*$", re.MULTILINE)
_STORE = re.compile(r"\.store\(\s*[\"']([\w-]*)$")


def task_completions(
    before: str, line: str, stores: Iterable[str], fields: Iterable[str] = ()
) -> tuple[str, list[str]] | None:
    """The text to complete and what it may become, at a cursor behind ``line``; None where that is none of
    this. ``before``: the lines of the cell above. ``fields``: those of messages."""
    if (named := _STORE.search(line)) is not None:
        return named[1], sorted(each for each in stores if each.startswith(named[1]))
    if (field := _FIELD.search(line)) is not None and _is_message(f"{before}\n{line}", field[1], field[2]):
        return field[3], sorted(each for each in fields if each.startswith(field[3]))
    if (at := _member(before, line)) is None:
        return None
    found, owner = at
    return found[3], [name for name in _members(owner) if name.startswith(found[3])]


def task_help(before: str, line: str) -> str | None:
    """The help on the member at a cursor behind ``line``; None where there is none."""
    at = _member(before, line)
    if at is None or at[0][3] not in _members(at[1]):
        return None
    found, owner = at
    member = getattr(owner, found[3])
    called = inspect.isfunction(member)
    about = inspect.getdoc(member) if called or isinstance(member, property) else inspect.getdoc(owner)
    return f"{found[1]}{found[2]}.{found[3]}{inspect.signature(member) if called else ''}\n\n{about or ''}"


def _member(before: str, line: str) -> tuple[re.Match[str], type] | None:
    """The member that ends a line, and the class that has it; None where there is none, or it is unknown."""
    found = _MEMBER.search(line)
    owner = None if found is None else _class_of(f"{before}\n{line}", found[1], found[2])
    return None if found is None or owner is None else (found, owner)


def _is_message(text: str, envelope: str | None, name: str | None) -> bool:
    """True for the message of an envelope, and for a name that stands for one in the callback at the end."""
    if envelope is None:
        start = max((each.start() for each in _DEF.finditer(text)), default=0)
        envelopes = [each[2] for each in _NAMED_MESSAGE.finditer(text, start) if each[1] == name]
        envelope = envelopes[-1] if envelopes else ""
    return _class_of(text, envelope, "") is IncomingMessageEnvelope


def _class_of(text: str, name: str, attributes: str) -> type | None:
    """The class of what a name of the callback at the end of a text stands for."""
    definitions = list(_DEF.finditer(text))
    kinds = {each: each for each in _GIVEN}
    if definitions:
        callback, written = definitions[-1][1], definitions[-1][2]
        given = [each.partition(":")[0].partition("=")[0].strip() for each in written.split(",")]
        given = [each for each in given if each and each != "self"]
        # Functions may take the context besides.
        kinds |= dict(zip(given, (*CALLBACKS[callback], "context"), strict=False))
    if attributes:
        return SystemStreamPartition if kinds.get(name) == "envelope" and attributes == ".ssp" else None
    return _GIVEN.get(kinds.get(name, ""))


def _members(owner: type) -> list[str]:
    return [each for each in dir(owner) if not each.startswith("_")]
