"""Options that belong together, declared as the fields of one Struct and given to a command as one object.

A field is annotated with a ``typer.Option``, or with an ``Option``, which the magics read, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct


class Option(Struct, frozen=True, kw_only=True):
    """An option of a command line and of a magic. ``flag``: its name, where that is not the field's.
    ``shown``: the default as the help has it. ``least``: of a number. ``completes``: values to offer, where
    others may be given, too."""

    help: str
    flag: str = ""
    metavar: str | None = None
    shown: str | None = None
    least: int | None = None
    completes: tuple[str, ...] = ()


class OptionField(Struct, frozen=True):
    """A field of a group: its name, its type without None, its default, and its option."""

    name: str
    type: Any
    default: Any
    option: Option

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return self.option.flag or f"--{self.name.replace('_', '-')}"

    @property
    def repeats(self) -> bool:
        """True where it may be given several times."""
        return get_origin(self.type) is list

    @property
    def choices(self) -> tuple[str, ...]:
        """Its values, where there are only these."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


class OptionError(ValueError):
    """Options that do not go together. ``flag``: the one that is wrong."""

    def __init__(self, flag: str, what: str) -> None:
        super().__init__(what)
        self.flag = flag


def option_fields(group: type[Struct]) -> list[OptionField]:
    """The fields of a group that are annotated with an ``Option``."""
    found = []
    hints = get_type_hints(group, include_extras=True)
    for name, default in _defaults(group).items():
        kind, note = get_args(hints[name])
        if isinstance(note, Option):
            one_of = get_args(kind) if isinstance(kind, UnionType) else (kind,)
            found.append(OptionField(name, one_of[0], default, note))
    return found


def with_options(name: str, group: type[Struct]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the parameter ``name`` of a command by one option for each field of ``group``.

    The fields are annotated and have their defaults as parameters do; their order is that of the help."""
    hints: dict[str, Any] = get_type_hints(group, include_extras=True)
    for each in option_fields(group):
        hints[each.name] = Annotated[get_args(hints[each.name])[0], _for_typer(each)]
    fields = [
        inspect.Parameter(field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field])
        for field, default in _defaults(group).items()
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


def _defaults(group: type[Struct]) -> Mapping[str, Any]:
    return dict(zip(group.__struct_fields__, group.__struct_defaults__, strict=True))


def _for_typer(field: OptionField) -> Any:
    import typer  # takes long to import, and the magics do without

    option = field.option
    is_text = option.shown is not None or field.default is None
    return typer.Option(
        field.flag, help=option.help, metavar=option.metavar, min=option.least,
        show_default=(option.shown or False) if is_text else True,
    )  # fmt: skip
