"""Completion of names in the data: fields of messages in conditions and ``--key-field``, keys of stores."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from streambench.checkpoint.api import Checkpoint
from streambench.debug.control.session import Session
from streambench.debug.effects.events import Output
from streambench.debug.view.entries import first_entries
from streambench.debug.view.kept_commits import kept_commits
from streambench.errors import StreambenchError
from streambench.model import IncomingMessageEnvelope
from streambench.system.listing import named_inputs
from streambench_magics.jobs.jobs import Job
from streambench_magics.jobs.workbench import Workbench

_FIELD = re.compile(r"\b(message|before|after|store)((?:\[[^]]*\])*)\[[\"']?([\w .-]*)$")
_ATTRIBUTE = re.compile(r"\b(envelope|output)\.(\w*)$")
_WORD = re.compile(r"(?:^|[\s(=<>!+*/%-])(\w*)$")
_MOST_MESSAGES = 20
_MOST_KEYS = 100
_MOST_PLACES = 100
_PATIENCE_S = 1.0
"""As long as JupyterLab waits for completions."""

_asked: WeakKeyDictionary[Session, Future[dict[str, list[Checkpoint]]]] = WeakKeyDictionary()


def condition_completions(
    bench: Workbench, jobs: Sequence[Job], line: str, names: Sequence[str]
) -> tuple[str, list[str]] | None:
    """The text to complete and its completions, at the end of a condition of these jobs that is being typed.

    None where no condition is being typed. ``names``: those of a moment."""
    found = _FIELD.search(line)
    if found is not None:
        return found[3], _that_begin(found[3], _fields_of(bench, jobs, found[1], found[2]))
    attribute = _ATTRIBUTE.search(line)
    if attribute is not None:
        owner: Any = Output if attribute[1] == "output" else IncomingMessageEnvelope
        return attribute[2], _that_begin(attribute[2], owner.__struct_fields__)
    word = _WORD.search(line)
    return None if word is None else (word[1], _that_begin(word[1], names))


def key_fields(bench: Workbench, words: Sequence[str]) -> list[str]:
    """The fields of the variable behind ``--from``; without one, of the messages that jobs have read."""
    if "--from" in words[:-1]:
        source = bench.namespace.get(words[words.index("--from") + 1])
        first = source[0] if isinstance(source, (list, tuple)) and source else None
        columns = getattr(source, "columns", first if isinstance(first, Mapping) else ())
        return sorted(map(str, columns))
    return sorted(message_fields(bench))


def store_keys(bench: Workbench, store: str | None) -> list[str]:
    """The first keys of a store (of all) of the jobs that stand still, as they are typed."""
    found: dict[str, None] = {}
    for session in _still(bench):
        for each in _entries(session):
            if store in (None, each.store):
                key = each.key if isinstance(each.key, str) else json.dumps(each.key, default=str)
                found[json.dumps(key) if " " in key else key] = None
    return list(found)


def message_places(bench: Workbench) -> list[str]:
    """The begins of ``SSP@OFFSET`` for the inputs of the jobs that stand still."""
    places: dict[str, None] = {}
    for session in _still(bench):
        for task in session.container.tasks:
            places |= dict.fromkeys(f"{each.ssp}@" for each in task.subscriptions)
    return list(places)[:_MOST_PLACES]


def commit_names(bench: Workbench) -> list[str]:
    """The commits that are kept of the jobs that stand still."""
    found: dict[str, None] = {}
    for session in _still(bench):
        with suppress(StreambenchError, TimeoutError):
            history = _checkpoints(session).result(_PATIENCE_S)
            found |= dict.fromkeys(each.name for each in kept_commits(history, ()))
    return list(found)


def _checkpoints(session: Session) -> Future[dict[str, list[Checkpoint]]]:
    """The checkpoints of a session, read on another thread: they may be in a system that does not answer."""
    asked = _asked.get(session)
    if asked is not None and not asked.done():
        return asked
    found: Future[dict[str, list[Checkpoint]]] = Future()

    def ask() -> None:
        try:
            found.set_result(session.checkpoints())
        except Exception as error:
            found.set_exception(error)

    _asked[session] = found
    threading.Thread(target=ask, name=f"streambench completes {session.name}", daemon=True).start()
    return found


def landmarks(bench: Workbench, words: Sequence[str]) -> dict[str, str]:
    """The positions of the job among ``words`` (of the one used last) at which something was, the newest
    first, with what that was."""
    found: dict[int, str] = {}
    with suppress(StreambenchError):
        for session in _still_of(bench.meant(words)):
            found = session.landmarks()
    return {str(position): found[position] for position in sorted(found, reverse=True)}


def message_fields(bench: Workbench, jobs: Sequence[Job] = ()) -> set[str]:
    """The fields of the messages that those of these jobs which stand still have read, and of those looked at
    in their inputs. Without a job: of all messages that jobs have read and that were looked at."""
    found = set().union(*map(_read_fields, jobs or bench.jobs.values()))
    inputs = {str(stream) for job in jobs for stream in named_inputs(job.config)}
    return found.union(
        *(bench.peeked_fields[each] for each in bench.peeked_fields if each in inputs or not jobs)
    )


def _read_fields(job: Job) -> set[str]:
    """The fields of the messages that a job has read last, where it stands still."""
    sessions = _still_of([job])
    return field_names(
        each.message for session in sessions for each in tuple(session.container.choices)[-_MOST_MESSAGES:]
    )


def field_names(messages: Iterable[object]) -> set[str]:
    """The names of the fields of those messages that have fields."""
    return {str(field) for each in messages if isinstance(each, Mapping) for field in each}


def _fields_of(bench: Workbench, jobs: Sequence[Job], name: str, index: str) -> set[str]:
    """The fields of messages, or of the values or keys of stores."""
    if name == "message":
        return message_fields(bench, jobs)
    entries = [each for session in _still_of(jobs) for each in _entries(session)]
    if name == "store" and not index:
        return {each.store for each in entries} | {str(each.key) for each in entries}
    return field_names(each.value for each in entries)


def _entries(session: Session) -> Sequence[Any]:
    try:
        return first_entries(session, _MOST_KEYS).shown
    except StreambenchError:
        return ()


def _still(bench: Workbench) -> list[Session]:
    """The sessions of all jobs that can be looked at without waiting."""
    return _still_of(bench.jobs.values())


def _still_of(jobs: Iterable[Job]) -> list[Session]:
    """The sessions of these jobs that can be looked at without waiting."""
    sessions = [job.session for job in jobs]
    return [each for each in sessions if each is not None and each.state != "new" and not each.running]


def _that_begin(fragment: str, names: Iterable[str]) -> list[str]:
    return sorted(each for each in names if each.startswith(fragment))
