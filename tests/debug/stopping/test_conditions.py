"""Conditions: expressions and functions of a moment."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streambench.config import Config
from streambench.debug.stopping.conditions import Condition, ConditionError
from streambench.debug.stopping.moment import Moment
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.serde.registry import serde_named
from streambench.store.memory import MemoryEngine
from streambench.store.task_store import TaskStore

SSP = SystemStreamPartition("log", "flights", 2)
MOMENT = Moment(7, IncomingMessageEnvelope(SSP, "5", "ORD", {"delay": 203, "tags": ["x"]}))


@pytest.mark.parametrize(
    "text",
    [
        "message['delay'] > 180",
        "key == 'ORD' and partition == 2",
        "stream == 'log.flights' and offset == '5'",
        "stream == 'flights' and stream != 'log' and stream in ('x', 'flights')",
        "stream in {'x', 'flights'} and stream not in {'x'} and stream in {'log.flights'}",
        "envelope.ssp.stream in {'flights'} and stream in 'all of log.flights'",
        "position == 7",
        "any(tag == 'x' for tag in message['tags'])",
        "[message['delay'] for _ in range(2)] == [203, 203]",
        "envelope.ssp.partition == partition",
        "error is None and output is None and store == {}",
    ],
)
def test_an_expression_uses_the_names_of_the_moment(text: str) -> None:
    assert Condition(text).value(MOMENT)


class Matching:
    def __contains__(self, name: str) -> bool:
        return name.startswith("fli")


@pytest.mark.parametrize(
    "wanted",
    [
        {"x", "flights"}, {"log.flights": 1}, frozenset(["flights"]), {"flights": 1}.keys(),
        {1: "flights"}.values(), ["x", "log.flights"], "all of log.flights", Matching(),
    ],
)  # fmt: skip
def test_a_stream_is_found_by_either_name_in_what_a_notebook_has(wanted: object) -> None:
    assert Condition("stream in wanted", {"wanted": wanted}).value(MOMENT)
    assert not Condition("stream not in wanted", {"wanted": wanted}).value(MOMENT)


def test_a_stream_is_found_by_either_name_in_a_set_that_is_made() -> None:
    for text in ("frozenset(NAMES)", "NAMES | {'x'}", "(name for name in NAMES)", "NAMES if key else ()"):
        assert Condition(f"'log.flights' == stream in ({text})", {"NAMES": {"flights"}}).value(MOMENT)


def test_a_stream_is_looked_up_in_a_set_and_not_compared_with_each_member() -> None:
    class Members(set[str]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError

    condition = Condition("stream in NAMES", {"NAMES": Members(["flights"])})
    assert condition.value(MOMENT)
    assert condition.seen(MOMENT).startswith("stream is 'log.flights', NAMES is ")


@pytest.mark.parametrize(
    "text",
    [
        "any(output == 'x' for output in message['tags'])",
        "[error for error in message['tags']] == ['x']",
        "(lambda after: after > 200)(message['delay'])",
        "(before := message['delay']) > 200 and before",
        "any((after := tag) == 'x' for tag in message['tags']) and after",
        "any((last := tag) == 'x' for tag in message['tags']) and last == 'x'",
    ],
)
def test_own_names_of_an_expression_are_not_those_of_the_moment(text: str) -> None:
    condition = Condition(text)
    assert condition.kind is None
    assert condition.value(MOMENT)
    assert Condition(f"({text}) and output is None").kind == "output"


def test_a_function_gets_the_moment() -> None:
    assert Condition(lambda moment: moment.message["delay"]).value(MOMENT) == 203


def test_names_of_a_notebook_are_read_when_they_are_needed() -> None:
    names = {"limit": 300}
    condition = Condition("message['delay'] > limit", names)
    assert not condition.value(MOMENT)
    names["limit"] = 200
    assert condition.value(MOMENT)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("message['delay'] > 180", "message['delay'] is 203"),
        ("180 < message['delay'] and key == 'ORD'", "message['delay'] is 203, key is 'ORD'"),
        ("not key", "key is 'ORD'"),
        ("message['delay']", "message['delay'] is 203"),
    ],
)
def test_a_stop_names_the_values_that_decided(text: str, seen: str) -> None:
    assert Condition(text).seen(MOMENT) == seen


def test_what_is_no_expression_is_refused_at_once() -> None:
    with pytest.raises(ConditionError, match="no Python expression: message >"):
        Condition("message >")
    with pytest.raises(ConditionError, match="invalid syntax at its end"):
        Condition("message ==")
    with pytest.raises(ConditionError, match="invalid syntax at character 11"):
        Condition("message > > 1")


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConditionError, match="unknown name 'mesage'; did you mean message"):
        Condition("mesage['delay'] > 1")


def test_an_expression_that_raises_names_its_place() -> None:
    with pytest.raises(ConditionError, match=r"log.flights.2@5 \(position 7\): KeyError: 'dely'"):
        Condition("message['dely'] > 1").value(MOMENT)


@pytest.mark.parametrize("text", ["before['n'] > 1", "after['n'] == before['n'] + 1", "before > 3"])
def test_a_condition_on_a_new_key_says_how_to_write_it(text: str) -> None:
    moment = Moment(7, MOMENT.envelope, key="ORD", before=None, after={"n": 2})
    with pytest.raises(ConditionError) as raised:
        Condition(text).value(moment)
    assert "(position 7): TypeError: " in str(raised.value)
    assert f"; before is None where the key is new: write before and {text}" in str(raised.value)


def test_the_hint_on_none_keeps_an_or_together() -> None:
    with pytest.raises(ConditionError, match=r"write before and \(before\['n'\] or after\)"):
        Condition("before['n'] or after").value(Moment(7, MOMENT.envelope, after=1))


class OfTwoStores:
    name = "Partition 2"
    subscriptions = ()
    task = context = None

    def __init__(self) -> None:
        serde = serde_named(Config({}), "json", key="stores.counts.msg.serde")
        self.stores = {
            name: TaskStore(name, MemoryEngine(), serde, serde, changelog=False)
            for name in ("counts", "time")
        }


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("store['ORD'] > 9", r"the stores are counts, time: write store\['counts'\]\['ORD'\]"),
        ("store.time", r"the stores are counts, time: write store\['counts'\]\[KEY\]"),
        ("store('time')", r"the stores are counts, time: write store\['counts'\]\[KEY\]"),
        ("envelope.stream == 'x'", "write envelope.ssp.stream, or stream alone"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(text: str, remedy: str) -> None:
    moment = Moment(7, MOMENT.envelope, OfTwoStores())
    with pytest.raises(ConditionError, match=remedy):
        Condition(text).value(moment)
