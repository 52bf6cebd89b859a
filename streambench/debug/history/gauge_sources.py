"""Sources of gauges: those that certainly read nothing but what can be copied."""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Callable, Collection
from functools import lru_cache, partial
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import Any

_CONSTANT = (int, float, complex, bool, str, bytes, type(None))
_PURE = (
    abs, all, any, bool, dict, divmod, enumerate, float, frozenset, int, isinstance, len, list, max, min,
    range, reversed, round, set, sorted, str, sum, tuple, zip,
)  # fmt: skip
"""Builtins that read nothing but their arguments."""

_DESCRIPTOR = (
    MethodDescriptorType, WrapperDescriptorType, MemberDescriptorType, GetSetDescriptorType,
    ClassMethodDescriptorType,
)  # fmt: skip
_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"})
_MISSING = object()


class SourceCheck:
    """The rule for sources of gauges. It refuses what is not certain: globals other than functions, what
    classes share, and constants of an enclosing function, which may set them again.

    ``is_copied``: True for a value that the copy of the task has a copy of. ``classes``: those of the values
    that were copied. ``refused``: the names of attributes that are not copied."""

    def __init__(
        self, is_copied: Callable[[Any], bool], classes: Collection[type], refused: Collection[str]
    ) -> None:
        self._is_copied = is_copied
        self._classes = [each for each in classes if not each.__module__.startswith("streambench.")]
        self._refused = refused
        self._begun: set[CodeType] = set()

    def accepts(self, source: Any) -> bool:
        """True for a source that certainly reads nothing but what is copied."""
        self._begun.clear()
        try:
            return self._accepts(source)
        except (ValueError, RecursionError):  # of an empty cell, of a function in itself
            return False

    def _accepts(self, value: Any) -> bool:
        if isinstance(value, _CONSTANT) or self._is_copied(value):
            return True
        if isinstance(value, partial):
            return all(map(self._accepts, (value.func, *value.args, *value.keywords.values())))
        if isinstance(value, MethodType):
            return self._is_copied(value.__self__) and self._accepts_called(value.__func__)
        if isinstance(value, FunctionType):
            cells = [each.cell_contents for each in value.__closure__ or ()]
            defaults = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
            return (
                not any(isinstance(each, _CONSTANT) for each in cells)
                and all(map(self._accepts, cells + defaults))
                and self._accepts_code(value)
            )
        if isinstance(value, (BuiltinFunctionType, MethodWrapperType)) and self._is_copied(value.__self__):
            return True
        return _is_pure(value)

    def _accepts_called(self, function: Any) -> bool:
        """True for a function that reads nothing but its arguments."""
        if not isinstance(function, FunctionType) or function.__closure__:
            return False
        defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        return all(isinstance(each, _CONSTANT) for each in defaults) and self._accepts_code(function)

    def _accepts_code(self, function: FunctionType) -> bool:
        if function.__code__ in self._begun:
            return True
        self._begun.add(function.__code__)
        of_globals, names = _names(function.__code__)
        for name in of_globals:
            value = function.__globals__.get(name, getattr(builtins, name, None))
            if not (value is math or _is_pure(value) or self._accepts_called(value)):
                return False
        return names.isdisjoint(self._refused) and all(
            self._accepts_shared(kind, name) for kind in self._classes for name in names
        )

    def _accepts_shared(self, kind: type, name: str) -> bool:
        """True unless objects of a class share a value of this name."""
        value = next((vars(each)[name] for each in kind.__mro__ if name in vars(each)), _MISSING)
        if value is _MISSING or isinstance(value, _DESCRIPTOR):
            return True
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        return self._accepts_called(value.fget if isinstance(value, property) else value)


def _is_pure(value: Any) -> bool:
    return any(value is each for each in _PURE)


@lru_cache(maxsize=1000)
def _names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that code reads, and all its names, with those of the functions in it."""
    of_globals = {each.argval for each in dis.get_instructions(code) if each.opname in _READS}
    names = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            inner = _names(each)
            of_globals |= inner[0]
            names |= inner[1]
    return frozenset(of_globals), frozenset(names)
