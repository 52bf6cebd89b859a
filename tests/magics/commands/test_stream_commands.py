"""``%stream send``, ``peek`` and ``streams``."""

from __future__ import annotations

import math

import pandas
import pytest

from streambench.debug.streams.frames import rows_of
from streambench.errors import SerdeError, StreambenchError
from streambench_magics.errors import MagicError
from tests.magics.conftest import Shell


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        ('{"a": [1, "b c"]} --key k', [{"a": [1, "b c"]}]),
        ('--key k {"a": 1}', [{"a": 1}]),
        ("17 --key k", [17]),
        ("word --key k", ["word"]),
        ('"two words" --key k', ["two words"]),
        ("[1, 2] --key k", [[1, 2]]),
        ("--from [1,2] --key k", [1, 2]),
        ("--from numbers --key k", [1, 2, 3]),
        ("""--from "[{'t': 'a'}, {'t': 'b'}]" --key k""", [{"t": "a"}, {"t": "b"}]),
        ("""--from '[{"t": " {"}]' --key k""", [{"t": " {"}]),
        ("""--key k "a { b" """, ["a { b"]),
    ],
)
def test_messages_are_json_text_or_taken_from_variables(ip: Shell, line: str, messages: list[object]) -> None:
    ip.run("numbers = range(1, 4)")
    ip.run("%stream streams create mem.s")
    ip.run(f"%stream send mem.s {line}")
    ip.run("found = get_ipython().run_line_magic('stream', 'peek mem.s')")
    assert [each["message"] for each in ip.names["found"]] == messages
    assert {each["key"] for each in ip.names["found"]} == {"k"}


def test_a_dataframe_is_sent_row_by_row_with_its_keys(ip: Shell) -> None:
    ip.names["frame"] = pandas.DataFrame({"origin": ["ORD", "JFK"], "delay": [3, None]})
    ip.run("%stream streams create log.flights --partitions 3")
    assert (
        ip.run("%stream send log.flights --from frame --key-field origin") == "sent 2 messages to log.flights"
    )
    ip.run("found = get_ipython().run_line_magic('stream', 'peek log.flights')")
    assert sorted((each["key"], each["message"]["delay"]) for each in ip.names["found"]) == [
        ("JFK", None),
        ("ORD", 3.0),
    ]


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("mem.clicks", "give one message, or --from a variable"),
        ("mem.clicks x --from y", "give one message, or --from a variable"),
        ("mem.clicks {'a': 1}", "this is not JSON: .* need double quotes"),
        ("mem.clicks it's", "no closing quotation"),
        ("mem.clicks --from nix", "--from nix: NameError"),
        ("mem.none x", r"%stream streams create mem.none --partitions N makes it"),
        ("nix.none x", "there is no system nix; there is log, mem"),
        ("clicks x", "is not a stream: write it as system.stream"),
        ("mem.clicks x --partition 7", "mem.clicks has no partition 7; it has 2, numbered from 0"),
        ("mem.clicks --from [1] --key-field f", "has no field f to take the key from"),
    ],
)
def test_an_error_names_the_message_that_cannot_be_sent(ip: Shell, line: str, right: str) -> None:
    with pytest.raises(StreambenchError, match=right):
        ip.run(f"%stream send {line}")


def test_a_bare_word_is_not_sent_to_a_stream_of_json(ip: Shell) -> None:
    ip.run("%stream streams create log.words")
    assert "'\"word\"'" in ip.fails("%stream send log.words word")
    ip.run("words = ['a']")
    assert "--from words sends the messages" in ip.fails("%stream send log.words words")
    assert ip.run("""%stream send log.words '"word"'""") == "sent 1 message to log.words"
    ip.run("%stream peek log.words")
    assert [each["message"] for each in ip.value] == ["word"]


def test_peek_takes_evenly_from_the_partitions_and_moves_nothing(ip: Shell) -> None:
    once = ip.run("%stream peek mem.clicks --limit 2")
    assert once.splitlines() == [
        "partition  offset  key  message",
        "        0       0  -    a",
        "        1       0  -    b",
    ]
    assert ip.run("%stream peek mem.clicks --limit 2") == once
    assert [each["message"] for each in ip.value] == ["a", "b"]
    ip.run("%stream peek mem.clicks --partition 1 --from 1")
    assert [each["message"] for each in ip.value] == ["d"]
    ip.run("%stream peek mem.clicks --from newest --limit 1 --partition 0")
    assert [each["message"] for each in ip.value] == ["c"]
    with pytest.raises(MagicError, match="mem.clicks has no partition 5; it has 2, numbered from 0"):
        ip.run("%stream peek mem.clicks --partition 5")


def test_an_empty_stream_says_so(ip: Shell) -> None:
    ip.run("%stream streams create mem.s")
    assert ip.run("%stream peek mem.s") == "mem.s is empty there"


def test_a_peek_beyond_the_end_says_where_that_is(ip: Shell) -> None:
    assert ip.run("%stream peek mem.clicks --from 2") == "mem.clicks ends at 2"
    with pytest.raises(
        StreambenchError,
        match=r"5 is beyond the end of all partitions, which is .*: partition 0 at 2, 1 at 2",
    ):
        ip.run("%stream peek mem.clicks --from 5")
    with pytest.raises(
        StreambenchError, match=r"mem.clicks.1: 5 is outside of what it holds: 0 to 2 \(the next\)"
    ):
        ip.run("%stream peek mem.clicks --from 5 --partition 1")
    with pytest.raises(StreambenchError, match="'noon' is no offset of it"):
        ip.run("%stream peek mem.clicks --from noon")


def test_a_word_that_is_the_name_of_a_variable_is_noticed(ip: Shell) -> None:
    ip.run("messages = ['x', 'y']\nword = 'z'")
    said = ip.run("%stream send mem.clicks messages").splitlines()
    assert (
        said[1]
        == "that was the word 'messages'; the messages of the variable messages are sent with --from messages"
    )
    assert ip.run("%stream send mem.clicks word") == "sent 1 message to mem.clicks"


def test_streams_are_listed_with_their_offsets_and_folded_where_many(ip: Shell) -> None:
    assert ip.run("%stream streams mem").splitlines() == [
        "stream      partition  oldest  newest  upcoming",
        "mem.clicks          0       0       1         2",
        "mem.clicks          1       0       1         2",
    ]
    assert (
        ip.run("%stream streams create mem.wide --partitions 30") == "mem.wide is created, with 30 partitions"
    )
    assert (
        ip.run("%stream streams create mem.wide --partitions 30")
        == "mem.wide is there already, with 30 partitions"
    )
    assert ip.run("%stream streams mem").splitlines() == [
        "stream      partitions  messages",
        "mem.clicks           2         4",
        "mem.wide            30         0",
    ]
    refused = ip.fails("%stream streams create mem.wide --partitions 31")
    assert "; '%stream streams grow mem.wide --partitions 31' gives it as many" in refused
    grown = ip.run("%stream streams grow mem.wide --partitions 31").splitlines()
    assert grown[0] == "mem.wide has 31 partitions now; it had 30"
    assert grown[1].startswith("From now on, many keys go to other partitions")


def test_streams_may_have_commas_between_them_as_in_a_configuration(ip: Shell) -> None:
    ip.run("%stream streams create mem.a,mem.b mem.c")
    assert ip.run("%stream create Count --config inputs --inputs mem.a,mem.b") == (
        "Count is a job of the task Count; it reads mem.a, mem.b"
    )
    assert ip.run("%stream attach mem.c, mem.clicks") == "Count reads mem.a, mem.b, mem.c, mem.clicks"
    assert ip.run("%stream detach Count mem.a,mem.c,mem.clicks") == "Count reads mem.b"


def test_a_job_with_empty_inputs_shows_how_to_send(ip: Shell) -> None:
    ip.run("%stream streams create mem.views --partitions 2")
    ip.run("%stream create Count --config inputs --inputs mem.views")
    remedy = "mem.views is empty; to send to it: %stream send mem.views MESSAGE"
    assert ip.run("%stream step").splitlines() == [
        "Count: nothing to read, it has caught up with its inputs",
        f"Count: {remedy}",
    ]
    said = ip.run("%stream run --messages 1").splitlines()
    assert said == [
        "Count runs for 1 message",
        f"Count has nothing to read yet: {remedy} (%stream pause Count stops it)",
    ]
    ip.run("%stream send mem.views 1")
    assert "1 message processed" in ip.run("%stream wait")
    assert ip.run("%stream step") == "Count: nothing to read, it has caught up with its inputs"


def test_a_frame_is_sent_to_a_stream_with_all_its_digits(ip: Shell) -> None:
    ip.names["frame"] = pandas.DataFrame(
        {"x": [1e-12, 1 / 3], "t": pandas.to_datetime([1, 1_700_000_000_123_456_789])}
    )
    ip.run("%stream streams create log.fine")
    assert ip.run("%stream send log.fine --from frame") == "sent 2 messages to log.fine"
    ip.run("found = get_ipython().run_line_magic('stream', 'peek log.fine')")
    assert [each["message"] for each in ip.names["found"]] == rows_of(ip.names["frame"])


def test_an_infinity_is_refused_by_json_and_named(ip: Shell) -> None:
    ip.names["frame"] = pandas.DataFrame({"x": [1.0, math.inf]})
    ip.run("%stream streams create log.fine")
    with pytest.raises(Exception, match=r"JSON has no inf \(at \['x'\]\)"):
        ip.run("%stream send log.fine --from frame")


def test_an_element_that_cannot_be_sent_is_named(ip_empty: Shell) -> None:
    ip_empty.run("%%streamconfig js\nsystems.js.samza.factory=memory\nsystems.js.samza.msg.serde=json")
    ip_empty.run("%stream streams create js.in --partitions 1")
    ip_empty.names["frame"] = pandas.DataFrame({"w": ["a", "b"], "x": [1.0, math.inf]})
    with pytest.raises(SerdeError, match=r"^element \[1\] of 2, \{'w': 'b', 'x': inf\}: cannot be sent"):
        ip_empty.run("%stream send js.in --from frame")
