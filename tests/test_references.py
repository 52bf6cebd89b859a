"""References in configuration values, and the secrets that they stand for: resolved where they are read,
shown nowhere."""

from __future__ import annotations

import logging
import os
import pickle
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.errors import ConfigError, StreambenchError, TaskError, described
from streambench.masking import masked
from streambench.metrics.log_reporter import LinesOnStderr

MARKER = "m4rk3r/S3cret"
KEY = "systems.k.consumer.sasl.plain.password"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KPW", MARKER)
    monkeypatch.setenv("EMPTY", "")
    (tmp_path / "pw.txt").write_bytes(f" {MARKER}\n\r\n".encode())
    (tmp_path / "all.properties").write_text(f"# passwords\nkafka.password = {MARKER}\nempty=\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfa")


def config(tmp_path: Path, value: str, key: str = KEY) -> Config:
    return Config.from_text(
        f"{key}={value}".replace("\\", "\\\\"), origin="job.properties", directory=tmp_path
    )


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("${env:KPW}", MARKER),
        ("${file:pw.txt}", f" {MARKER}\n"),
        ("${file:all.properties:kafka.password}", MARKER),
        ("amqp://me:${env:KPW}@host/${env:KPW}", f"amqp://me:{MARKER}@host/{MARKER}"),
        ("$${env:KPW}", "${env:KPW}"),
        ("a$${b", "a${b"),
        ("$$${env:KPW}", "$${env:KPW}"),
        ("$$ $ {x} $KPW a$", "$$ $ {x} $KPW a$"),
    ],
)
def test_a_reference_is_resolved_where_it_is_read(tmp_path: Path, value: str, found: str) -> None:
    read = config(tmp_path, value)
    assert (read.text(KEY), read.required(KEY), read.secret(KEY)) == (found, found, found)
    assert read.below("systems.k.consumer.") == {"sasl.plain.password": found}
    assert (
        config(tmp_path, f"{tmp_path}/${{env:KPW}}", "systems.l.path").path("systems.l.path")
        == tmp_path / MARKER
    )


def test_what_a_reference_stands_for_is_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", "${env:KPW}")
    assert config(tmp_path, "${env:ODD}").text(KEY) == "${env:KPW}"


def test_numbers_names_and_truths_may_be_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("N", "7")
    monkeypatch.setenv("NAMES", "log.a, log.b")
    monkeypatch.setenv("YES", "TRUE")
    assert config(tmp_path, "${env:N}", "task.window.ms").integer("task.window.ms") == 7
    assert config(tmp_path, "${env:NAMES},log.c", "task.inputs").names("task.inputs") == [
        "log.a",
        "log.b",
        "log.c",
    ]
    assert config(tmp_path, "${env:YES}", "stores.s.drop.large.messages").boolean(
        "stores.s.drop.large.messages"
    )


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("${KPW}", r"${KPW} is no reference: write ${env:KPW}"),
        ("${vault:a/b:c}", r"${vault:a/b:c} is no reference"),
        ("${}", "${} is no reference"),
        ("${env:NOT_SET}", "${env:NOT_SET}: there is no environment variable NOT_SET, or nothing in it"),
        ("${env:EMPTY}", "${env:EMPTY}: there is no environment variable EMPTY, or nothing in it"),
        ("${env:}", "${env:}: there is no environment variable"),
        ("${file:none.txt}", "${file:none.txt}: cannot read none.txt: No such file"),
        ("${file:.}", "is no regular file"),
        ("${file:binary}", "${file:binary}: binary is no text in UTF-8"),
        ("${file:all.properties:other}", "${file:all.properties:other}: there is no key other in the file"),
        ("${file:all.properties:empty}", "there is nothing in all.properties for empty"),
        ("${file:~no-user-of-this-name/x}", "${file:~no-user-of-this-name/x}: cannot read"),
        ("${env:KPW", "a ${ has no } behind it; write $${"),
    ],
)
def test_what_cannot_be_resolved_is_an_error_with_key_and_reference(
    tmp_path: Path, value: str, what: str
) -> None:
    wrong = config(tmp_path, value)
    for read in (
        lambda: wrong.text(KEY),
        lambda: wrong.below("systems."),
        lambda: wrong.secret(KEY),
        wrong.validate,
    ):
        with pytest.raises(ConfigError) as raised:
            read()
        assert f"{KEY} (job.properties:1): " in str(raised.value)
        assert what in str(raised.value)
        assert raised.value.key == KEY
        assert MARKER not in str(raised.value)


def test_a_password_that_only_looks_like_a_reference_is_not_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no reference") as raised:
        config(tmp_path, "hunter${two}three").text(KEY)
    assert "two" not in str(raised.value)


def test_the_mapping_keeps_the_reference(tmp_path: Path) -> None:
    read = config(tmp_path, "${env:KPW}")
    assert (read[KEY], dict(read), list(read.items())) == (
        "${env:KPW}",
        {KEY: "${env:KPW}"},
        [(KEY, "${env:KPW}")],
    )
    assert read.with_values({"job.name": "x"})[KEY] == "${env:KPW}"
    again = pickle.loads(pickle.dumps(read))
    assert (again, hash(again), again.text(KEY)) == (read, hash(read), MARKER)
    assert repr(read) == f"Config({{'{KEY}': '${{env:KPW}}'}})"
    assert MARKER.encode() not in pickle.dumps(read)
    assert masked(KEY, "x${env:KPW}") == "***"


def test_settings_of_spark_are_left_to_spark(tmp_path: Path) -> None:
    read = config(tmp_path, "${env:NOT_SET}", "spark.hadoop.key")
    read.validate()
    assert read.below("spark.") == {"hadoop.key": "${env:NOT_SET}"}


def test_an_error_about_a_value_shows_its_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, kind in (
        ("task.window.ms", "integer"),
        ("systems.l.samza.offset.default", "text"),
        ("stores.s.ttl.ms", "integer"),
    ):
        with pytest.raises(ConfigError) as raised:
            getattr(config(tmp_path, "${env:KPW}", key), kind)(key)
        assert "'${env:KPW}'" in str(raised.value)
    monkeypatch.setenv("PLACE", f"{tmp_path}/all.properties")
    with pytest.raises(ConfigError, match=r"\$\{env:PLACE\} is a file"):
        config(tmp_path, "${env:PLACE}", "systems.l.path").directory_at("systems.l.path")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (KEY, "${env:KPW}"),
        ("systems.p.account", "${env:KPW}"),
        ("systems.q.url", "amqp://me:${env:KPW}@host"),
        (KEY, MARKER),
        ("systems.q.url", f"amqp://me:{MARKER}@host"),
        ("systems.h.token", f"other-token,{MARKER}"),
        ("systems.k.producer.sasl.jaas.config", f'Module required username="me" password="{MARKER}";'),
        ("systems.h.signature.secret.env", "KPW"),
        ("systems.h.signature.secret.file", "pw.txt"),
    ],
)
def test_a_secret_that_was_read_is_masked_in_errors_and_logs(
    tmp_path: Path, key: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = config(tmp_path, value, key)
    given.secret(key.removesuffix(".env").removesuffix(".file"))
    assert MARKER not in repr(given)
    theirs = f"cannot log in with {MARKER} at host"
    for error in (
        StreambenchError(theirs),
        ConfigError(theirs, key=key),
        TaskError(theirs, task="x"),
        ValueError(theirs),
    ):
        assert described(error).endswith("cannot log in with *** at host")
    assert MARKER not in repr(StreambenchError(theirs))
    logger = logging.getLogger("someone.else")
    handler = LinesOnStderr(logging.WARNING)
    logger.addHandler(handler)
    try:
        logger.warning("%r and %s", [MARKER], MARKER.replace("/", "%2F"))
    finally:
        logger.removeHandler(handler)
    assert capsys.readouterr().err == "warning: ['***'] and ***\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("systems.tokens.samza.factory", "kafka"),
        ("systems.k.bootstrap.servers", "${env:WORD}"),
        ("systems.k.streams.password-resets.cleanup.policy", "kafka"),
        ("serializers.registry.secret.class", "kafka"),
        ("job.name", "${env:WORD}"),
        ("systems.h.kafka.token", "kafka"),
    ],
)
def test_what_is_no_secret_stays_readable(
    tmp_path: Path, key: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORD", "kafka")
    assert config(tmp_path, value, key).text(key) == "kafka"
    assert str(StreambenchError("no kafka there")) == "no kafka there"


def test_the_environment_is_read_when_the_value_is(tmp_path: Path) -> None:
    read = config(tmp_path, "${env:KPW}")
    os.environ["KPW"] = "another"
    assert read.text(KEY) == "another"
