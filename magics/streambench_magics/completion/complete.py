"""Completion on the line of a magic: sub-commands, options, and the names of jobs, tasks, configurations and
streams as they are now."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from streambench.config import Config
from streambench.debug.control.session import Session
from streambench.debug.stopping.moment import NAMES
from streambench.errors import StreambenchError
from streambench.system.listing import named_inputs, streams_of
from streambench_magics.commands.command_parser import Parser
from streambench_magics.commands.commands import CONFIG, PARSERS, TASK
from streambench_magics.completion.complete_config import config_completions
from streambench_magics.completion.complete_task import task_completions
from streambench_magics.jobs.complete_names import (
    commit_names,
    condition_completions,
    key_fields,
    landmarks,
    message_fields,
    message_places,
    store_keys,
)
from streambench_magics.jobs.jobs import Job
from streambench_magics.jobs.workbench import Workbench
from streambench_magics.magics import StreamMagics

_LINE = re.compile(
    r"\s*(?:\w[\w, ]*=\s*)?(?P<magic>%stream|%%streamtask|%%streamconfig)\s+(?P<rest>.*)", re.DOTALL
)
_PATIENCE_S = 1.5
_PAUSE_S = 30.0
"""A system that does not answer while the user types is not asked again for so long."""

_NO_TYPES: Mapping[str, str] = MappingProxyType({})
_silent: dict[tuple[str, ...], float] = {}


def completer_of(magics: StreamMagics) -> Any:
    """A matcher for IPython's completer. On lines of these magics its answer is the only one."""

    def streambench_matcher(context: CompletionContext) -> SimpleMatcherResult:
        first, _, body = context.full_text.lstrip().partition("\n")
        if first.startswith("%%streamconfig") and context.cursor_line > 0:
            fragment, texts = config_completions(body, context.text_until_cursor)
            return _answer(texts, fragment)
        if first.startswith("%%streamtask") and context.cursor_line > 0:
            above = "\n".join(context.full_text.split("\n")[: context.cursor_line])
            fields = message_fields(magics.bench, _jobs_of_cell(magics.bench, first))
            in_task = task_completions(above, context.text_until_cursor, _stores(magics.bench), fields)
            return _nothing() if in_task is None else _answer(in_task[1], in_task[0])
        line = _LINE.fullmatch(context.text_until_cursor)
        if line is None:
            return _nothing()
        condition = _condition(line["rest"]) if line["magic"] == "%stream" else None
        if condition is not None:
            jobs = magics.bench.meant(line["rest"].split()[1:])
            typed = condition_completions(magics.bench, jobs, condition, NAMES)
            if typed is not None and (typed[0] or not condition.endswith(" ")):
                return _answer(typed[1], typed[0])
        before, _, fragment = line["rest"].rpartition(" ")
        words = before.split()
        is_goto = line["magic"] == "%stream" and words[:1] == ["goto"]
        positions = landmarks(magics.bench, words) if is_goto else {}
        found = [*positions, *sorted(set(candidates(magics.bench, line["magic"], words)))]
        return _answer([each for each in found if each.startswith(fragment)], fragment, positions)

    as_matcher: Any = context_matcher(identifier="streambench")
    return as_matcher(streambench_matcher)


def _nothing() -> SimpleMatcherResult:
    """No completions, and none of others suppressed. IPython adds to what it gets."""
    return SimpleMatcherResult(completions=[], suppress=False)


def _jobs_of_cell(bench: Workbench, first: str) -> list[Job]:
    """The jobs of the task in a cell with this first line."""
    words = first.split()[1:2]
    return [job for job in bench.jobs.values() if job.task_name in words]


def _condition(rest: str) -> str | None:
    """The part of a condition that is typed so far; None where the line has none, or only one word."""
    command, _, arguments = rest.partition(" ")
    parser = PARSERS.get(command)
    if parser is None:
        return None
    behind = re.search(r"--until[ =](.*)$", arguments) if not parser.takes_expression else None
    text = arguments if parser.takes_expression else behind[1] if behind is not None else ""
    # A first word may be an option, or what else stands there.
    is_begun = re.search(r"[\[.(=<>]|\b(and|or|not)\b", text) is not None
    return text if is_begun and not text.rpartition(" ")[2].startswith("--") else None


def _answer(texts: Iterable[str], fragment: str, types: Mapping[str, str] = _NO_TYPES) -> SimpleMatcherResult:
    """These completions of a fragment, and no others. ``types``: what the page shows beside some."""
    completions = [SimpleCompletion(text=each, type=types.get(each, "stream")) for each in texts]
    return SimpleMatcherResult(
        completions=completions, suppress=True, ordered=True, matched_fragment=fragment
    )


def candidates(bench: Workbench, magic: str, words: list[str]) -> Iterable[str]:
    """Words that may stand next on a line, after these words."""
    if magic == "%stream":
        if not words:
            return PARSERS
        parser = PARSERS.get(words[0])
        words = words[1:]
    else:
        parser = TASK if magic == "%%streamtask" else CONFIG
    return _arguments(bench, parser, words) if parser is not None else []


def _arguments(bench: Workbench, parser: Parser, words: list[str]) -> Iterable[str]:
    options = {option: action for action in parser._actions for option in action.option_strings}
    last = next((word for word in reversed(words) if word.startswith("--")), None)
    if last in options:
        action = options[last]
        given = len(words) - 1 - max(at for at, word in enumerate(words) if word == last)
        wanted = 0 if action.nargs == 0 else 1
        if given < wanted:
            of_data = _of_data(bench, parser, action.dest, words)
            return of_data or _values(bench, parser.completes.get(action.dest, ()))
        if action.nargs == "+":
            return [*_values(bench, parser.completes.get(action.dest, ())), *(set(options) - set(words))]
    left = [option for option in options if option not in words]
    positionals = [action for action in parser._actions if not action.option_strings]
    given = len([word for word in words if not word.startswith("--")])
    at = min(given, len(positionals) - 1)
    names: Iterable[str] = ()
    if positionals and (given < len(positionals) or positionals[at].nargs in ("+", "*")):
        names = _values(bench, parser.completes.get(positionals[at].dest, ()))
        if parser is PARSERS["streams"] and not words:
            names = [*names, "create", "grow"]
        if parser is PARSERS["changed"] and words and words[-1] in _stores(bench):
            names = store_keys(bench, words[-1])
    return [*names, *left]


def _of_data(bench: Workbench, parser: Parser, option: str, words: list[str]) -> list[str]:
    """The values of an option that stand in the data."""
    if option == "key_field":
        return key_fields(bench, words)
    if option == "key" and parser is PARSERS["state"]:
        return store_keys(bench, words[0] if not words[0].startswith("--") else None)
    return []


def _values(bench: Workbench, what: str | tuple[str, ...]) -> list[str]:
    if isinstance(what, tuple):
        return list(what)
    # A word that is no kind stands for itself.
    return [value for kind in what.split() for value in (_KINDS[kind](bench) if kind in _KINDS else [kind])]


def stream_names(bench: Workbench) -> set[str]:
    """The streams in sight: those that jobs and configurations name, and those that are there."""
    found: set[str] = set()
    asked: dict[tuple[str, ...], tuple[Config, str]] = {}
    for config in bench.all_configs():
        found.update(map(str, named_inputs(config)))
        for system in config.names_below("systems."):
            settings = sorted(key for key in config if key.startswith(f"systems.{system}."))
            asked[system, *(f"{key}={config[key]}" for key in settings)] = config, system
    now = time.monotonic()
    for known in [known for known in asked if now - _silent.get(known, -_PAUSE_S) < _PAUSE_S]:
        del asked[known]
    for known, answer in zip(asked, streams_of(asked.values(), patience_s=_PATIENCE_S), strict=True):
        if isinstance(answer, StreambenchError):
            _silent[known] = time.monotonic()
        else:
            found.update(map(str, answer))
    return found


def _alive(bench: Workbench) -> list[Session]:
    return [job.session for job in bench.jobs.values() if job.session is not None and job.alive]


def _stores(bench: Workbench) -> list[str]:
    return sorted({name for each in bench.all_configs() for name in each.names_below("stores.")})


def _tasks(bench: Workbench) -> list[str]:
    classes = [
        name
        for name, value in bench.namespace.items()
        if isinstance(value, type) and callable(getattr(value, "process", None))
    ]
    return [*bench.tasks, *(name for name in classes if not name.startswith("_"))]


_KINDS: dict[str, Callable[[Workbench], Iterable[str]]] = {
    "jobs": lambda bench: bench.jobs,
    "tasks": _tasks,
    "configs": lambda bench: bench.configs,
    "streams": stream_names,
    "commands": lambda bench: PARSERS,
    "stores": _stores,
    "breakpoints": lambda bench: [str(each.id) for job in _alive(bench) for each in job.breakpoints],
    "messages": message_places,
    "commits": commit_names,
    "watches": lambda bench: [name for job in _alive(bench) for name in job.watched],
    "variables": lambda bench: [
        name
        for name, value in bench.namespace.items()
        if not name.startswith("_") and (isinstance(value, list) or hasattr(value, "columns"))
    ],
}
