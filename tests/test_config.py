"""Configuration: reading, typed access, and errors that name the key."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.config import Config
from streambench.config_keys import KEYS, find
from streambench.errors import ConfigError
from streambench.masking import masked
from streambench.system.memory import MemorySystemFactory


def test_a_config_is_a_mapping_of_text() -> None:
    config = Config({"task.inputs": "mem.a", "task.window.ms": 100})
    assert dict(config) == {"task.inputs": "mem.a", "task.window.ms": "100"}
    assert config == {"task.inputs": "mem.a", "task.window.ms": "100"}
    assert len(config) == 2
    assert "task.inputs" in config


def test_equal_contents_are_equal_configs_wherever_they_come_from() -> None:
    assert Config({"job.name": "x", "job.id": 7}) == Config.from_text("job.id=7\njob.name = x")
    assert len({Config({"job.name": "x"}), Config.from_text("job.name=x")}) == 1


def test_a_config_cannot_be_changed_through_what_it_was_made_of() -> None:
    source = {"job.name": "x"}
    config = Config(source)
    source["job.name"] = "y"
    assert config["job.name"] == "x"
    with pytest.raises(TypeError):
        config["job.name"] = "y"  # type: ignore[index]


def test_values_of_other_types_are_turned_to_text() -> None:
    config = Config(
        {"a": True, "b": False, "c": 1.5, "d": None, "e": ["mem.a", "mem.b"], "f": ("x", 1), "g": Path("x/y")}
    )
    assert dict(config) == {"a": "true", "b": "false", "c": "1.5", "e": "mem.a,mem.b", "f": "x,1", "g": "x/y"}


def test_a_class_is_turned_to_where_it_can_be_imported_from() -> None:
    assert Config({"x": MemorySystemFactory})["x"] == "streambench.system.memory:MemorySystemFactory"


def test_a_config_travels_to_another_process() -> None:
    config = Config.from_text("job.name=x", origin="job.properties", directory=Path("/jobs"))
    copy = pickle.loads(pickle.dumps(config))
    assert (copy, copy.origin, copy.directory) == (config, "job.properties", Path("/jobs"))


# Reading properties


@pytest.mark.parametrize(
    "text", ["job.name=x", "job.name = x", "job.name: x", "job.name x", "  job.name=x  ", "job.name=\\\n  x"]
)
def test_all_ways_to_write_a_property_are_read(text: str) -> None:
    assert Config.from_text(text) == {"job.name": "x"}


def test_comments_and_empty_lines_are_passed_over() -> None:
    assert Config.from_text("# a comment\n\n! another\njob.name=x # not a comment\n") == {
        "job.name": "x # not a comment"
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_error_names_the_line_whatever_ends_the_lines(newline: str) -> None:
    text = newline.join(["# first", "job.name=x", "task.inputs=a.b,\\", "  a.c", "", "task.window.ms=soon"])
    with pytest.raises(ConfigError, match=r"^task\.window\.ms \(line 6\): 'soon' is not a whole number$"):
        Config.from_text(text).integer("task.window.ms")


def test_an_error_names_the_file_and_the_line(tmp_path: Path) -> None:
    (tmp_path / "clicks.properties").write_text("job.name=x\ntask.window.ms=soon\n")
    with pytest.raises(ConfigError, match=r"task\.window\.ms \(clicks\.properties:2\)") as caught:
        Config.from_file(tmp_path / "clicks.properties").integer("task.window.ms")
    assert caught.value.key == "task.window.ms"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "job.properties").write_bytes("\ufeffjob.name=x\n".encode())
    assert Config.from_file(tmp_path / "job.properties") == {"job.name": "x"}


def test_a_file_holds_utf8(tmp_path: Path) -> None:
    (tmp_path / "job.properties").write_text("job.name=größe\n", encoding="utf-8")
    assert Config.from_file(tmp_path / "job.properties")["job.name"] == "größe"


def test_a_file_that_is_not_there_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot read the configuration .*nothing\.properties: No such file"
    ):
        Config.from_file(tmp_path / "nothing.properties")


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    (tmp_path / "job.properties").write_bytes(b"job.name=\xff\xfe")
    with pytest.raises(ConfigError, match=r"cannot read the configuration .*job\.properties"):
        Config.from_file(tmp_path / "job.properties")


def test_a_key_given_twice_with_different_values_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"line 3: job\.name is already set in line 1"):
        Config.from_text("job.name=x\n\njob.name=y")
    assert Config.from_text("job.name=x\njob.name=x") == {"job.name": "x"}


def test_a_line_without_a_value_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"line 2: 'task' has no value: write task=\.\.\."):
        Config.from_text("job.name=x\ntask")


def test_a_broken_escape_is_an_error() -> None:
    with pytest.raises(ConfigError, match="line 1"):
        Config.from_text("job.name=\\u12")


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "job.properties").write_text("systems.log.path=streams\ntask.checkpoint.path=/elsewhere\n")
    config = Config.from_file(tmp_path / "job.properties")
    assert config.path("systems.log.path") == tmp_path / "streams"
    assert config.path("task.checkpoint.path") == Path("/elsewhere")


@given(
    st.dictionaries(
        st.text("abc.-", min_size=1).filter(str.strip),
        st.text("xyz 1,=:#!\\äß", max_size=8).map(str.strip),
        max_size=6,
    )
)
def test_what_properties_can_say_is_read_back(values: dict[str, str]) -> None:
    import javaproperties

    assert Config.from_text(javaproperties.dumps(values, timestamp=None)) == values


# Typed access


def test_a_missing_key_has_the_default_of_the_table() -> None:
    config = Config()
    assert config.integer("task.commit.ms") == 60_000
    assert config.boolean("task.drop.deserialization.errors") is False
    assert config.text("systems.any.samza.offset.default") == "upcoming"
    assert config.text("job.name") is None
    assert config.names("task.inputs") == []


def test_an_empty_value_counts_as_none() -> None:
    assert Config({"task.commit.ms": ""}).integer("task.commit.ms") == 60_000
    assert Config({"job.name": "  "}).text("job.name") is None


def test_a_required_key_says_what_it_is_for() -> None:
    with pytest.raises(ConfigError, match=r"^task\.class: is missing \(the task: package\.module\.Class"):
        Config().required("task.class")


def test_names_are_split_at_commas_and_trimmed() -> None:
    assert Config({"task.inputs": " mem.a , mem.b,, mem.c"}).names("task.inputs") == [
        "mem.a",
        "mem.b",
        "mem.c",
    ]


def test_an_allowed_value_may_be_written_in_capitals() -> None:
    assert (
        Config({"systems.m.samza.offset.default": "OLDEST"}).text("systems.m.samza.offset.default")
        == "oldest"
    )


def test_true_and_false_may_be_in_capitals_and_nothing_else_is_either() -> None:
    assert Config({"x": "TRUE"}).boolean("x") is True
    with pytest.raises(ConfigError, match="x: 'yes' is neither true nor false"):
        Config({"x": "yes"}).boolean("x")


def test_the_setting_of_a_stream_goes_before_that_of_its_system() -> None:
    config = Config({"systems.m.samza.msg.serde": "json", "systems.m.streams.a.b.samza.msg.serde": "string"})
    assert config.required(config.stream_key("m", "a.b", "samza.msg.serde")) == "string"
    assert config.required(config.stream_key("m", "c", "samza.msg.serde")) == "json"


def test_names_below_a_prefix_are_those_up_to_the_next_dot() -> None:
    config = Config(
        {"systems.b.samza.factory": "log", "systems.a.path": "x", "systems.a.samza.factory": "log"}
    )
    assert config.names_below("systems.") == ["a", "b"]
    assert config.below("systems.a.") == {"path": "x", "samza.factory": "log"}


def test_values_can_be_set_and_removed_in_a_copy() -> None:
    config = Config.from_text("job.name=x\njob.id=1", origin="job.properties", directory=Path("/jobs"))
    copy = config.with_values({"job.id": None, "job.name": "y", "task.window.ms": 5})
    assert copy == {"job.name": "y", "task.window.ms": "5"}
    assert (copy.origin, copy.directory) == ("job.properties", Path("/jobs"))
    assert config == {"job.name": "x", "job.id": "1"}


def test_the_error_of_a_replaced_value_does_not_name_the_old_line() -> None:
    config = Config.from_text("task.window.ms=5\ntask.commit.ms=never").with_values(
        {"task.window.ms": "soon"}
    )
    with pytest.raises(ConfigError, match=r"^task\.window\.ms: 'soon'"):
        config.integer("task.window.ms")
    with pytest.raises(ConfigError, match=r"^task\.commit\.ms \(line 2\)"):
        config.integer("task.commit.ms")


# Secrets


@pytest.mark.parametrize(
    "key",
    [
        "systems.k.ssl.password",
        "systems.w.token",
        "systems.k.sasl.jaas.config",
        "systems.w.hmac.secret",
        "systems.a.api-key",
        "my.apikey",
    ],
)
def test_secrets_are_not_shown(key: str) -> None:
    assert masked(key, "hunter2") == "***"
    assert "hunter2" not in repr(Config({key: "hunter2"}))


def test_the_user_of_a_url_is_not_shown() -> None:
    assert masked("systems.a.url", "amqp://me:hunter2@host:5672/x") == "amqp://***@host:5672/x"
    assert masked("systems.a.url", "amqp://me:hunter@2/3@host:5672/x") == "amqp://***@host:5672/x"
    assert masked("systems.a.url", "amqp://host:5672/x") == "amqp://host:5672/x"
    assert masked("systems.a.url", "amqp://me:hunter 2,3@host:5672/x") == "amqp://***@host:5672/x"
    assert masked("systems.a.url", "amqp://me:hunter@2?3@host:5672/x") == "amqp://***"
    assert masked("systems.a.url", "me:hunter2@host:5672/x") == "***@host:5672/x"
    assert (
        masked("systems.a.url", "amqp://me:hunter2@host/x?ssl_options={'password':'hunter2'}")
        == "amqp://***@host/x?***"
    )
    assert masked("systems.a.url", "amqp://host/x?heartbeat=30") == "amqp://host/x?heartbeat=30"


def test_the_token_in_a_url_is_not_shown() -> None:
    assert (
        masked("master", "sc://host:15002/;use_ssl=true;token=hunter2;user_id=me")
        == "sc://host:15002/;use_ssl=true;token=***;user_id=me"
    )
    assert "hunter2" not in repr(Config({"systems.a.url": "https://host/x?access_token=hunter2"}))
    assert masked("some.address", "https://host/x?kind=token") == "https://host/x?kind=token"


def test_of_the_url_of_a_webhook_only_the_host_is_shown() -> None:
    assert (
        masked("systems.a.streams.b.url", "https://hooks.example.org/services/T1/hunter2")
        == "https://hooks.example.org/***"
    )
    assert (
        masked("systems.a.url", "https://me:hunter2@example.org?key=hunter2") == "https://***@example.org?***"
    )
    assert masked("systems.a.url", "http://127.0.0.1:80") == "http://127.0.0.1:80"


def test_a_secret_is_read_from_where_the_configuration_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("\ufeffhunter2\n")
    monkeypatch.setenv("PLACE", " hunter2 ")
    ways = ["systems.a.token=hunter2", "systems.a.token.env=PLACE", "systems.a.token.file=file"]
    for way in ways:
        assert Config.from_text(way, directory=tmp_path).secret("systems.a.token") == "hunter2"
    assert Config().secret("systems.a.token") is None
    monkeypatch.setenv("PLACE", "")
    (tmp_path / "file").write_text(" ")
    wrong = {
        "systems.a.token.env=PLACE": "no environment variable PLACE",
        "systems.a.token.file=file": "there is nothing in",
        "systems.a.token.file=.": "cannot read",
        f"{ways[0]}\n{ways[1]}": "systems.a.token is set as well",
    }
    for text, what in wrong.items():
        with pytest.raises(ConfigError, match=what) as raised:
            Config.from_text(text, directory=tmp_path).secret("systems.a.token")
        assert "hunter2" not in str(raised.value)


# Validation


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("task.inptus", "task.inputs"),
        ("tsak.inputs", "task.inputs"),
        ("jobs.name", "job.name"),
        ("system.log.samza.factory", "systems.log.samza.factory"),
        ("task.windows.ms", "task.window.ms"),
        ("systems.log.samza.ofset.default", "systems.log.samza.offset.default"),
        ("systems.log.streams.a.samza.prority", "systems.log.streams.a.samza.priority"),
        ("stores.counts.key.sered", "stores.counts.key.serde"),
        ("task.lifecycle.listener.audit.clas", "task.lifecycle.listener.audit.class"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: is not a known key; did you mean {meant}\?") as caught:
        Config({key: "1"}).validate()
    assert caught.value.key == key


def test_a_mistyped_prefix_of_a_systems_own_key_is_an_error() -> None:
    log = {"systems.log.samza.factory": "log"}
    for name in ("path", "no.such.setting"):  # which ones there are, only the system itself knows
        meant = (
            rf"^system\.log\.{name}: is not a known key; did you mean one that begins with systems\.log\. "
            rf"instead\?$"
        )
        with pytest.raises(ConfigError, match=meant):
            Config({**log, f"system.log.{name}": "data"}).validate()
    Config({**log, "system.mine.path": "data", "tasks.size.limit": "1"}).validate()


@pytest.mark.parametrize(
    ("key", "least"),
    [
        ("task.consumer.batch.size", 1), ("task.batch.messages", 1), ("task.checkpoint.history", 1),
        ("systems.s.samza.fetch.threshold", 1),
        ("stores.s.ttl.ms", 0), ("stores.s.object.cache.size", 0), ("stores.s.write.batch.size", 1),
    ],
)  # fmt: skip
def test_a_number_that_is_too_small_is_refused_before_anything_is_set_up(key: str, least: int) -> None:
    Config({key: least}).validate()
    with pytest.raises(ConfigError, match=rf"^{key}: {least - 1} is too small: give {least} or more$"):
        Config({key: least - 1}).validate()


@pytest.mark.parametrize("path", ["file", "file/below/it"])
def test_a_directory_is_not_looked_for_in_a_file(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    config = Config.from_text(f"systems.log.path={path}", directory=tmp_path)
    with pytest.raises(
        ConfigError,
        match=rf"^systems\.log\.path \(line 1\): {tmp_path}/file is a file, and this takes a directory: name",
    ):
        config.directory_at("systems.log.path")
    assert Config({"systems.log.path": tmp_path / "new"}).directory_at("systems.log.path") == tmp_path / "new"


def test_a_key_like_no_other_is_an_error_without_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"^task\.qqqq: is not a known key$"):
        Config({"task.qqqq": "1"}).validate()


@pytest.mark.parametrize(
    "key",
    [
        "my.threshold",
        "clicks.window",
        "spark.executor.memory",
        "systems.log.path",
        "systems.k.streams.a.retention.ms",
    ],
)
def test_keys_of_the_user_and_of_plug_ins_are_theirs(key: str) -> None:
    Config({key: "1"}).validate()


@pytest.mark.parametrize(
    "key",
    [
        "yarn.container.memory.mb",
        "job.factory.class",
        "task.opts",
        "stores.s.rocksdb.block.size",
        "metrics.timer.debug.enabled",
    ],
)
def test_a_key_of_samza_that_means_nothing_here_is_a_warning(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        Config({key: "1"}).validate()
    assert [record.getMessage() for record in caplog.records] == [
        f"{key} is a setting of Samza that has no meaning in streambench; it is ignored"
    ]


def test_a_reset_that_is_neither_true_nor_false_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    key = "systems.sys.streams.a.samza.reset.offset"
    Config({key: "True"}).validate()
    assert not caplog.records
    Config({key: "yes"}).validate()
    assert [each.getMessage() for each in caplog.records] == [
        f"{key}: 'yes' is neither true nor false; it counts as false, the checkpoint is used"
    ]


@pytest.mark.parametrize("key", ["job.container.count", "systems.s.streams.a.partitions"])
def test_what_there_must_be_one_of_is_not_none_or_fewer(key: str) -> None:
    Config({key: "1"}).validate()
    for number in ("0", "-3"):
        with pytest.raises(ConfigError, match=f"{key}: {number} is too small: give 1 or more"):
            Config({key: number}).validate()


@pytest.mark.parametrize(
    ("key", "value", "ours"),
    [
        (
            "systems.k.samza.factory",
            "org.apache.samza.system.kafka.KafkaSystemFactory",
            "write systems.k.samza.factory=kafka",
        ),
        (
            "serializers.registry.s.class",
            "org.apache.samza.serializers.StringSerdeFactory",
            "write serializers.registry.s.class=string",
        ),
        (
            "task.class",
            "org.apache.samza.task.MyTask",
            r"task.class takes a Python class here \(package.module.Class\)",
        ),
    ],
)
def test_a_class_of_samza_gets_an_error_that_names_ours(key: str, value: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=ours):
        Config({key: value}).validate()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("task.window.ms", "1.5"),
        ("task.commit.ms", "1 s"),
        ("systems.m.streams.a.samza.bootstrap", "yes"),
        ("systems.m.samza.offset.default", "earliest"),
        ("task.processing.guarantee", "exactly_once"),
    ],
)
def test_a_value_of_the_wrong_kind_is_found_before_anything_runs(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=value) as caught:
        Config({key: value}).validate()
    assert caught.value.key == key


@pytest.mark.parametrize("key", [known.pattern for known in KEYS])
def test_every_key_in_the_table_finds_itself(key: str) -> None:
    filled = key.replace("<s>", "kafka").replace("<t>", "eu.clicks").replace("<n>", "x")
    found = find(filled)
    assert found is not None
    assert found.pattern == key


@pytest.mark.parametrize("key", [known.pattern for known in KEYS if known.default is not None])
def test_every_default_in_the_table_is_of_its_kind(key: str) -> None:
    known = next(each for each in KEYS if each.pattern == key)
    Config({key.replace("<s>", "s").replace("<t>", "t").replace("<n>", "n"): known.default}).validate()


def test_a_file_that_is_not_utf_8_is_told_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "job.properties"
    path.write_bytes(b"\xef\xbb\xbf# one\njob.name=a\njob.id=M\xfcnchen\n")
    with pytest.raises(ConfigError, match=r"job\.properties, line 3: it is not UTF-8"):
        Config.from_file(path)


def test_a_command_in_a_remedy_can_be_copied_with_any_name_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "my job.properties"
    path.write_text("job.name=j\n")
    assert Config.from_file(path).command("streams") == "streambench streams -c 'my job.properties'"
    assert Config({}).command("streams") == "streambench streams -c JOB.properties"
