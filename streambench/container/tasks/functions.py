"""Tasks that are plain functions; each may take the context of its task as its last parameter.

Functions have no ``self``, and globals cannot replace it: all tasks of a process share them. A store in a
global also keeps the function from being sent to Spark. A function that takes one parameter more than
promised is given its task's own context.
"""

from __future__ import annotations

import dis
import inspect
import logging
from collections.abc import Callable
from functools import update_wrapper
from types import CodeType
from typing import Any

from streambench.errors import ConfigError
from streambench.task import StreamTask, TaskContext

log = logging.getLogger(__name__)

CALLBACKS = {
    "init": ("context",),
    "process": ("envelope", "collector", "coordinator"),
    "process_batch": ("batch", "collector", "coordinator"),
    "window": ("collector", "coordinator"),
    "end_of_stream": ("collector", "coordinator"),
    "close": (),
}
"""The functions of a task that the container calls, and the arguments that it gives them."""

_CONTEXT = "context"
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class MadeWithContext:
    """A task class whose objects are made with the context of their task."""

    def __init__(self, context: TaskContext | None = None) -> None: ...


class FunctionTask:
    """A task that is nothing but its ``process`` function."""

    def __init__(self, process: Callable[..., Any], context: TaskContext) -> None:
        self.process = with_context("process", process, context)


class TaskOfFunctions(MadeWithContext, StreamTask):
    """The base of task classes whose callbacks are plain functions (static methods), as those of a notebook
    cell.

    Made with a context, an object hands it to the functions that take it."""

    def __init__(self, context: TaskContext | None = None) -> None:
        for callback in CALLBACKS:
            plain = inspect.getattr_static(type(self), callback, None)
            if context is not None and isinstance(plain, staticmethod):
                setattr(self, callback, with_context(callback, plain.__func__, context))


def given_to(callback: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """The arguments of a plain function, by name: what is promised of this callback, and ``context`` where
    the function takes it.

    It does if it has a parameter named ``context`` behind the promised ones, or one more that must be given.
    Raises ConfigError where ``context`` has the position of a promised one, TypeError where the function
    cannot be called so. Raises ValueError where it has no signature."""
    promised = CALLBACKS[callback]
    wanted = _context_parameter(callback, function)
    signature = inspect.signature(function, follow_wrapped=False)
    if wanted is None:
        signature.bind(*promised)
        return promised
    if _is_next(wanted, callback, signature):
        signature.bind(*promised, _CONTEXT)
    else:
        signature.bind(*promised, context=_CONTEXT)
    return (*promised, _CONTEXT)


def with_context(
    callback: str, function: Callable[..., Any], context: TaskContext | None
) -> Callable[..., Any]:
    """The function as the container calls it: itself where it takes no context, so that this costs
    nothing."""
    try:
        wanted = _context_parameter(callback, function)
    except (TypeError, ValueError):
        return function  # of what is not written in Python, nothing is known
    if wanted is None:
        return function
    if not _is_next(wanted, callback, inspect.signature(function, follow_wrapped=False)):
        return update_wrapper(lambda *given: function(*given, context=context), function)
    # Written out: a call with a fixed number of arguments takes the interpreter less time.
    if len(CALLBACKS[callback]) == 3:
        return update_wrapper(
            lambda given, collector, coordinator: function(given, collector, coordinator, context), function
        )
    return update_wrapper(lambda *given: function(*given, context), function)


def _context_parameter(callback: str, function: Callable[..., Any]) -> inspect.Parameter | None:
    """The parameter by which a function takes the context beside what is promised of its callback."""
    promised = CALLBACKS[callback]
    if _CONTEXT in promised:
        return None
    parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    extra = parameters[len(promised) :]
    for at, each in enumerate(parameters):
        if each.name == _CONTEXT:
            if at >= len(promised) or each.kind is each.KEYWORD_ONLY:
                return each
            raise ConfigError(
                f"{callback}({', '.join(each.name for each in parameters)}): its 'context' would be given "
                f"the {promised[at]}; "
                f"the context comes last: {callback}({', '.join((*promised, _CONTEXT))})",
                key="task.class",
            )
    must_be_given = extra and extra[0].default is extra[0].empty and extra[0].kind in _BY_POSITION
    return extra[0] if must_be_given else None


def _is_next(wanted: inspect.Parameter, callback: str, signature: inspect.Signature) -> bool:
    """True where a parameter can be given by position, behind the promised ones of the callback."""
    parameters = list(signature.parameters.values())
    return wanted.kind in _BY_POSITION and parameters.index(wanted) == len(CALLBACKS[callback])


def shared_globals(factory: Any) -> list[str]:
    """The names of the globals that a task's ``init`` assigns, which all tasks of a process share."""
    init = getattr(inspect.unwrap(factory) if callable(factory) else factory, "init", None)
    code = getattr(inspect.unwrap(init) if callable(init) else None, "__code__", None)
    if not isinstance(code, CodeType):
        return []
    return sorted({each.argval for each in dis.get_instructions(code) if each.opname == "STORE_GLOBAL"})


def unsendable(factory: Any) -> str:
    """The remedy for a task that cannot be packed for another process, in words."""
    names = shared_globals(factory)
    if not names:
        return "make such things in init()"
    return (
        f"its init() assigns {_globals(names)}, and what a global holds is sent along: "
        f"{keep_in_context(names)}"
    )


def keep_in_context(names: list[str]) -> str:
    """The remedy for globals that ``init`` assigns, in words."""
    first = names[0]
    return (
        f"keep it in the task's own context: context.user.{first} = ... in init(context), and "
        f"context.user.{first} in "
        "process(envelope, collector, coordinator, context); in a class, as self." + first
    )


def warn_of_shared_globals(factory: Any, job: str, tasks: int) -> None:
    """Say so where ``init`` keeps what is a task's own in globals, which all ``tasks`` of this process
    share."""
    names = shared_globals(factory) if tasks > 1 else []
    if names:
        log.warning(
            "%s: init() assigns %s, which its %d tasks share: what the last init() assigns, all of them "
            "use. Where that is not meant, %s",
            job,
            _globals(names),
            tasks,
            keep_in_context(names),
        )


def _globals(names: list[str]) -> str:
    return f"the global{'' if len(names) == 1 else 's'} {', '.join(names)}"
