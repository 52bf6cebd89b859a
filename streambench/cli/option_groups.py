"""Options that belong together, declared as the fields of one Struct and given to a command as one object."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from msgspec import Struct


def with_options(name: str, group: type[Struct]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter ``name`` of a command by one option for each field of ``group``.

    The fields are annotated and have their defaults as parameters do; their order is that of the help."""
    hints = get_type_hints(group, include_extras=True)
    fields = [
        inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field])
        for field, default in zip(group.__struct_fields__, group.__struct_defaults__, strict=True)
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**given: Any) -> None:
            options = group(**{each.name: given.pop(each.name) for each in fields})
            command(**given, **{name: options})

        parameters: list[inspect.Parameter] = []
        known = get_type_hints(command, include_extras=True)
        for each in inspect.signature(command).parameters.values():
            own = each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=known[each.name])
            parameters += fields if each.name == name else [own]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {each.name: each.annotation for each in parameters}
        return call

    return decorate
