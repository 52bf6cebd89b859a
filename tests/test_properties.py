"""Properties text: the same in it as for java.util.Properties."""

from __future__ import annotations

import subprocess
import sys

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.properties import PropertiesError, dumps, loads, parse

# What decides about the reading, and little else.
TEXTS = st.text(st.sampled_from("ab.=: \t\f\n\r#!\\u0041dDeEü😀\x85\u2028"), max_size=40)


def other(text: str) -> list[tuple[str, str]]:
    """The settings as another reader finds them."""
    found = javaproperties.parse(text)
    return [(each.key, each.value) for each in found if isinstance(each, javaproperties.KeyValue)]


@given(text=TEXTS)
def test_any_text_is_read_as_by_another_reader(text: str) -> None:
    try:
        wanted = other(text)
    except javaproperties.InvalidUEscapeError:
        with pytest.raises(PropertiesError, match="four hexadecimal digits"):
            loads(text)
    else:
        assert [(each.key, each.value) for each in parse(text)] == wanted
        assert loads(text) == dict(wanted)


@given(values=st.dictionaries(TEXTS | st.text(), TEXTS | st.text()))
def test_values_are_written_as_by_another_writer_and_read_back(values: dict[str, str]) -> None:
    assert dumps(values) == javaproperties.dumps(values, timestamp=None)
    assert loads(dumps(values)) == values


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_settings_know_their_line_and_their_text(end: str) -> None:
    text = end.join(["# first", "", "a = 1 \\", "  2", "b"])
    assert list(parse(text)) == [("a", "1 2", "a = 1 \\\n  2", 3), ("b", "", "b", 5)]


def test_an_escape_that_is_none_is_an_error_with_its_line() -> None:
    with pytest.raises(PropertiesError) as caught:
        list(parse("a=1\nb=\\u12"))
    assert (caught.value.line, str(caught.value)) == (
        2,
        "\\u12 is no character: write \\u and four hexadecimal digits",
    )


def test_a_configuration_is_read_without_a_client_of_the_web() -> None:
    code = "import sys, streambench as sb; sb.Config.from_text('a=1'); print('http.client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
