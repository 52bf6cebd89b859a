"""Configurations of any content: each makes a job that runs, or an error of ours in one line."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streambench import config_keys
from streambench.config import Config
from streambench.errors import ConfigError, StreambenchError
from streambench.serde.registry import BUILTIN as SERDES
from streambench.system.systems import BUILTIN as SYSTEMS
from streambench.testing import run_job
from tests.surroundings import SOAK

CASES = 100_000 if SOAK else 150
LEAVES = "raise SystemExit(3)\n"
NASTY = ["\0", "\n", "\r", "\x1b[31m", "\x85", "\u2028", "\u202e", "\u2066", "\u200f", "\ud800", "\t",
         "é", "数", "..", "/", "~", "*", "%", "${x}"]  # fmt: skip


def _named(pattern: str) -> st.SearchStrategy[str]:
    """A key of a known form, with names of its own."""
    names = st.sampled_from(["mem", "a", "in", "x y", "é", "", *NASTY])
    parts = re.split(r"(<\w+>)", pattern)
    return st.tuples(*(names if part.startswith("<") else st.just(part) for part in parts)).map("".join)


TEXTS = st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=5)), max_size=4).map("".join)
KEYS = st.one_of(st.sampled_from([key.pattern for key in config_keys.KEYS]).flatmap(_named), TEXTS)
VALUES = st.one_of(
    st.sampled_from(
        [
            "true",
            "false",
            "0",
            "1",
            "-1",
            "5",
            "999999999999999999999",
            "1e3",
            "mem.in",
            "mem.a,mem.b",
            "mem",
            "a,b",
            "mem.in#0",
            "memory",
            "leaves.T",
            "leaves.py:T",
            "leaves:T",
            "./leaves.py:T",
            "nothing.py:T",
            "~no-user/x.py:T",
            "json.dumps",
            "os.path",
            ".",
            ":",
            "a.b:c",
            "org.apache.samza.Foo",
            "streambench.task.StreamTask",
            "bytes",
            "log/x",
            "x" * 300,
            "x" * 300 + ".py:T",
            "x" * 300 + ".T",
            *SERDES,
            *(SYSTEMS.keys() & {"file", "memory"}),
        ]
    ),
    TEXTS,
    TEXTS.map(lambda text: f"{text}.py:T"),
    TEXTS.map(lambda text: f"leaves.{text}"),
)
# Those listen, or reach for what is not there.
NOT_HERE = ("kafka", "amqp", "webhook", "tcp", "udp", "landing", "prometheus")


def ignore(envelope: Any, collector: Any, coordinator: Any) -> None:
    pass


def is_one_visible_line(text: str) -> bool:
    return all(
        unicodedata.category(each) not in ("Cc", "Cs", "Zl", "Zp") and each not in "\u202e\u2066\u200f"
        for each in text
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fuzz")
    (made / "leaves.py").write_text(LEAVES)
    return made


@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.dictionaries(KEYS, VALUES, max_size=4), own_task=st.booleans())
def test_any_configuration_runs_or_is_refused_in_one_line(
    values: dict[str, str], own_task: bool, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any(word in text for entry in values.items() for text in entry for word in NOT_HERE):
        return
    monkeypatch.chdir(directory)
    try:
        run_job(ignore if own_task else None, Config(values), {"mem.in": {0: [b"1"]}}, max_messages=1)
    except StreambenchError as error:
        assert is_one_visible_line(str(error)), repr(str(error))


@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    text=st.lists(
        st.one_of(TEXTS, st.sampled_from(["=", ":", " ", "\\", "\n", "task.class", "#", "\\u12"])),
        max_size=12,
    ).map("".join)
)
def test_any_text_is_a_configuration_or_refused_in_one_line(text: str) -> None:
    try:
        Config.from_text(text).validate()
    except StreambenchError as error:
        assert is_one_visible_line(str(error)), repr(str(error))


@pytest.mark.parametrize("key", ["stores.s.changelog", "systems.mem.streams.x.samza.msg.serde", "job.name"])
def test_half_a_character_in_a_value_is_an_error_of_its_key(key: str) -> None:
    with pytest.raises(ConfigError, match="surrogate") as caught:
        run_job(ignore, {"stores.s.factory": "memory", key: "mem.\ud800"}, {"mem.in": {0: [b"1"]}})
    assert caught.value.key == key


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31mb", "a\u202eb", "a\ud800b"])
def test_names_in_errors_show_what_they_hold(name: str) -> None:
    with pytest.raises(StreambenchError) as caught:
        run_job(ignore, {f"systems.{name}.samza.msg.serde": "json", "task.inputs": f"{name}.in"})
    assert is_one_visible_line(str(caught.value))
    assert repr(name)[1:-1] in str(caught.value)
