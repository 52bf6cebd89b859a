"""The outputs that ``%stream outputs`` is asked for."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from streambench.debug.control.session import Session
from streambench.debug.effects.events import Output
from streambench.debug.stopping.conditions import Condition
from streambench.debug.stopping.moment import Moment, StreamName
from streambench_magics.commands.typed_key import is_typed
from streambench_magics.errors import MagicError


def wanted_outputs(session: Session, args: Namespace, namespace: Mapping[str, Any]) -> list[Output]:
    """The outputs to a stream, with a key, held, or for which a condition holds. Raises ConditionError, and
    MagicError for a condition that is not of outputs."""
    condition = None if args.where is None else Condition(args.where, namespace)
    if condition is not None and condition.kind != "output":
        raise MagicError(f"--where is asked of outputs: output.message, output.key, not {args.where}")
    return [
        each
        for each in session.outputs()
        if (each.held or not args.held)
        and args.stream in (None, StreamName(each.stream))
        and is_typed(args.key, each.key)
        and (condition is None or condition.value(Moment(each.position, output=each)))
    ]


def per_stream(outputs: Sequence[Output]) -> str:
    """The number of outputs to each stream, where there are several; else empty."""
    counts = Counter(each.stream for each in outputs)
    named = ", ".join(f"{stream} {count:,}" for stream, count in counts.items())
    return f": {named}" if len(counts) > 1 else ""
