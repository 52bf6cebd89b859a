"""Conditions: functions of a moment, or Python expressions in its names."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Literal

from streambench.debug.stopping.moment import (
    KIND_OF_NAME,
    NAMES,
    Moment,
    NoKeyError,
    NoStoreError,
    StreamName,
)
from streambench.errors import StreambenchError, described, shortened, text_of
from streambench.model import IncomingMessageEnvelope
from streambench.suggestions import suggest
from streambench.syntax import literal, parse

_ALWAYS = "True"

Conditional = str | Callable[[Moment], object] | None
"""A condition as it is given. None: always."""


class ConditionError(StreambenchError):
    """A condition or a watch that is no expression, uses unknown names, or raised where it was evaluated.

    ``missing``: what it raised, where the task has not the key of a store that it looks for."""

    missing: NoKeyError | None = None


def named_expression(text: str) -> tuple[str, str]:
    """The name and the expression of a watch, of ``NAME=EXPRESSION``. Raises ConditionError."""
    name, equals, expression = text.partition("=")
    if not equals or not name.strip().isidentifier() or expression.strip()[:1] in ("", "="):
        raise ConditionError("a watch is NAME=EXPRESSION")
    return name.strip(), _unquoted(expression.strip())


def _unquoted(expression: str) -> str:
    """An expression without quotes around all of it: as a text it would be a value that never changes."""
    try:
        value = literal(expression)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        return expression
    return value.strip() or expression if isinstance(value, str) else expression


class Condition:
    """A condition, or the value of a watch. ``text``: as it was given; of a function, its name.

    ``namespace``: further names for an expression, looked up whenever it is evaluated."""

    def __init__(
        self, given: Conditional, namespace: Mapping[str, Any] | None = None, *, is_watch: bool = False
    ) -> None:
        """Raises ConditionError for text that is no expression, and for names that are not known."""
        self._what = "watch" if is_watch else "condition"
        self._namespace: Mapping[str, Any] = namespace or {}
        self._parts: list[tuple[str, Any]] = []
        self._of_moment: list[str] = []
        """The names of the moment that an expression looks at."""
        self.of_envelope: Callable[[IncomingMessageEnvelope], object] | None = None
        """The value where an envelope is all that is looked at, without a Moment; None where it is not."""
        self.of_change: Callable[[Callable[[str], Any]], object] | None = None
        """The value where a change of state is all that is looked at: of a function that returns ``key``,
        ``before``, ``after`` or ``store_name`` by its name; None where it is not."""
        self.kind: Literal["output", "state", "error"] | None = None
        """The only kind of breakpoint that has all its names; None where more than one has."""
        self.needs_memory = True
        """False where it does not look at what a task keeps in memory."""
        self._is_function = callable(given)
        if given is None or isinstance(given, str):
            self.text = _ALWAYS if given is None else given.strip()
            self._compile()
        elif callable(given):
            self.text = getattr(given, "__qualname__", shortened(given))
            self._call: Callable[[Moment], Any] = given
        else:
            raise ConditionError(
                f"{shortened(given)} is no condition: give an expression as text, or a function of a Moment"
            )

    @property
    def is_always(self) -> bool:
        """True where nothing is asked, so that it holds at each moment."""
        return self.text == _ALWAYS

    def value(self, moment: Moment) -> Any:
        """The value at a moment. Raises ConditionError, with the place of the moment."""
        try:
            return self._call(moment)
        except Exception as error:
            # An expression has one line, which the text shows.
            raise self._failure(error, moment) from (error if self._is_function else None)

    def holds(self, moment: Moment) -> bool:
        """True where the value at a moment is true. Raises ConditionError, also where it is neither true nor
        false, as an array."""
        value = self.value(moment)
        try:
            return bool(value)
        except Exception as error:
            raise self._failure(error, moment) from error

    def _failure(self, error: Exception, moment: Moment) -> ConditionError:
        at = f" at {moment.place}" if moment.place else ""
        failure = f"the {self._what} {self.text} cannot be evaluated{at} (position {moment.position:,})"
        if isinstance(error, NoKeyError):
            said = ConditionError(
                f"{failure}: the store {error.store} has no key {shortened(error.key)} in {error.task}; "
                f"write store[{error.store!r}].get({shortened(error.key)})"
            )
            said.missing = error
            return said
        hint = _hint(error, moment) or self._hint_of_none(error, moment)
        return ConditionError(f"{failure}: {type(error).__name__}: {text_of(error)}{hint}")

    def _hint_of_none(self, error: Exception, moment: Moment) -> str:
        """The remedy where a name of the moment is None, and was taken for a value; else empty."""
        if "NoneType" not in text_of(error):
            return ""
        for name in self._of_moment:
            if name in _WHY_NONE and getattr(moment, name) is None:
                rest = f"({self.text})" if " or " in self.text else self.text
                return f"; {name} is None {_WHY_NONE[name]}: write {name} and {rest}"
        return ""

    def seen(self, moment: Moment) -> str:
        """The values that decided, in words: ``message['delay'] is 203``."""
        shown = []
        for text, code in self._parts:
            try:
                shown.append(f"{text} is {shortened(self._evaluated(code, moment))}")
            except Exception as error:
                shown.append(f"{text} cannot be evaluated: {described(error)}")
        return ", ".join(shown) or f"{self.text} is true"

    def _compile(self) -> None:
        try:
            tree = parse(self.text, "<condition>", "eval")
            used = _free_names(symtable.symtable(self.text, "<condition>", "eval"))
        except SyntaxError as error:
            # Python names character 0 of the next line for what is missing behind the text.
            place = f"character {error.offset}" if error.offset else "its end"
            raise ConditionError(
                f"this is no Python expression: {self.text} ({error.msg} at {place}); for "
                "example: message['delay'] > 180"
            ) from None
        self._of_moment = [name for name in NAMES if name in used]
        self.needs_memory = not {"self", "context"}.isdisjoint(used)
        self.kind = next((KIND_OF_NAME[name] for name in self._of_moment if name in KIND_OF_NAME), None)
        self._of_namespace = []
        for name in sorted(used - set(NAMES)):
            if name in self._namespace:
                self._of_namespace.append(name)
            elif not hasattr(builtins, name):
                raise ConditionError(_unknown(name, f"the {self._what} {self.text}"))
        decisive = [(ast.unparse(each), each) for each in _decisive(tree.body)]
        tree = ast.fix_missing_locations(_AnyName().visit(tree))
        code = compile(tree, "<condition>", "eval")
        with_own = ast.comprehension | ast.Lambda | ast.NamedExpr
        if not self._of_namespace and not any(isinstance(each, with_own) for each in ast.walk(tree)):
            names = self._of_moment
            # One function of the values that it needs: less work with each message.
            made: Any = parse(f"lambda {', '.join(names)}: None", "<condition>", "eval")
            made.body.body = tree.body
            plain = eval(compile(made, "<condition>", "eval"), {_BY_ANY_NAME: _ByAnyName})
            self._call = lambda moment: plain(*[getattr(moment, name) for name in names])
            self._find_quick(plain, names)
        else:
            self._call = lambda moment: self._evaluated(code, moment)
        self._parts = [
            (text, compile(ast.Expression(each), "<condition>", "eval")) for text, each in decisive
        ]

    def _find_quick(self, plain: Callable[..., object], names: list[str]) -> None:
        """Set ``of_envelope`` and ``of_change``, where a function of these names needs no Moment."""
        if names == ["message"]:
            self.of_envelope = lambda envelope: plain(envelope.message)
        elif all(name in _OF_ENVELOPE for name in names):
            self.of_envelope = lambda envelope: plain(*[_OF_ENVELOPE[name](envelope) for name in names])
        if all(name in _OF_CHANGE for name in names):
            self.of_change = lambda read: plain(*map(read, names))

    def _evaluated(self, code: Any, moment: Moment) -> Any:
        # Names of a comprehension are looked up among the globals.
        scope = {name: self._namespace[name] for name in self._of_namespace if name in self._namespace}
        scope[_BY_ANY_NAME] = _ByAnyName
        for name in self._of_moment:
            scope[name] = getattr(moment, name)
        return eval(code, scope)


_OF_ENVELOPE: dict[str, Callable[[IncomingMessageEnvelope], Any]] = {
    "envelope": lambda envelope: envelope,
    "message": attrgetter("message"),
    "key": attrgetter("key"),
    "offset": attrgetter("offset"),
    "partition": attrgetter("ssp.partition"),
}


_OF_CHANGE = ("key", "before", "after", "store_name")


_ALONE = {each: f", or {each} alone" for each in ("stream", "partition")}

_WHY_NONE = {
    "before": "where the key is new",
    "after": "where the key was deleted",
    "message": "in a tombstone",
    "key": "in a message without a key",
    "envelope": "before the first message",
}
"""The names of a moment that may be None where they belong to it, and when they are."""


def _free_names(table: symtable.SymbolTable) -> set[str]:
    """The names of an expression that it does not make itself, as those of a comprehension."""
    is_top = table.get_type() == "module"
    # What a comprehension names by := is declared global, outside of it.
    own = {
        each.get_name()
        for each in table.get_symbols()
        if is_top and (each.is_assigned() or each.is_declared_global())
    }
    found = {
        each.get_name()
        for each in table.get_symbols()
        if each.is_referenced() and (is_top or each.is_global())
    }
    return found.union(*map(_free_names, table.get_children())) - own


_BY_ANY_NAME = "by any name"
"""The name of _ByAnyName in the code of an expression: none that an expression can use itself."""


class _ByAnyName:
    """A container in which a stream is found by its name with or without the system."""

    __slots__ = ("_container",)

    def __init__(self, container: Any) -> None:
        self._container = container

    def __contains__(self, stream: object) -> bool:
        container = self._container
        if (
            not isinstance(stream, StreamName)
            or isinstance(container, str)  # in which ``in`` finds a part
            or not hasattr(container, "__contains__")  # each member is compared, once
        ):
            return stream in container
        # A set or a dict looks for the hash of a name, and a stream has two names.
        whole = str(stream)
        return whole in container or whole.partition(".")[2] in container


class _AnyName(ast.NodeTransformer):
    """Has ``stream in {"a", "b"}`` and ``stream in NAMES`` look for each name of the stream."""

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        left = [node.left, *node.comparators][-2]
        is_stream = (left.id if isinstance(left, ast.Name) else getattr(left, "attr", "")) == "stream"
        if is_stream and isinstance(node.ops[-1], ast.In | ast.NotIn):
            node.comparators[-1] = _by_any_name(node.comparators[-1])
        return node


def _by_any_name(container: ast.expr) -> ast.expr:
    """A container as one that finds a stream by each name; a literal compares each member."""
    if isinstance(container, ast.Set):
        return ast.Tuple(container.elts, ast.Load())
    if isinstance(container, ast.Tuple | ast.List | ast.Constant):
        return container
    return ast.Call(ast.Name(_BY_ANY_NAME, ast.Load()), [container], [])


def _decisive(node: ast.expr) -> list[ast.expr]:
    """The parts of an expression whose values say why it was true: what is compared, and is no constant."""
    if isinstance(node, ast.BoolOp):
        return [part for each in node.values for part in _decisive(each)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _decisive(node.operand)
    if isinstance(node, ast.Compare):
        return [each for each in (node.left, *node.comparators) if not _is_constant(each)]
    return [] if _is_constant(node) else [node]


def _is_constant(node: ast.expr) -> bool:
    return not any(isinstance(each, ast.Name) for each in ast.walk(node))


def _hint(error: Exception, moment: Moment) -> str:
    """The remedy where an output or an envelope was taken for its message, or a store is missing; else
    empty."""
    if isinstance(error, NoStoreError) or text_of(error).startswith("'Stores' object"):
        return _hint_of_stores(error, list(moment.store))
    is_of_envelope = isinstance(error, AttributeError) and isinstance(error.obj, IncomingMessageEnvelope)
    if is_of_envelope and (name := str(getattr(error, "name", ""))) in ("stream", "system", "partition"):
        return f"; write envelope.ssp.{name}" + _ALONE.get(name, "")
    for kind, name in (("Output", "output"), ("IncomingMessageEnvelope", "envelope")):
        if text_of(error).startswith(f"'{kind}' object"):
            return f"; the message of it is {name}.message"
    return ""


def _hint_of_stores(error: Exception, names: list[str]) -> str:
    if not names:
        return "; the task has no stores"
    key = repr(error.args[0]) if isinstance(error, NoStoreError) else "KEY"
    return f"; the stores are {', '.join(names)}: write store[{names[0]!r}][{key}]"


def _unknown(name: str, what: str) -> str:
    hint = " ".join([*filter(None, [suggest(name, NAMES)]), f"there is {', '.join(NAMES)}"])
    return f"{what} uses the unknown name '{name}'; {hint}"
