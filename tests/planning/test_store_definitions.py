"""Which stores a job has."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.planning.store_definitions import store_definitions
from streambench.serde.builtin import JsonSerde, LongSerde, StringSerde
from streambench.store.cache import CachedEngine
from streambench.store.expiry import ExpiringEngine
from streambench.store.layer import Layer
from streambench.store.memory import MemoryEngine, MemoryEngineFactory
from streambench.store.rocksdb import RocksDbEngine
from streambench.system.memory import MemorySystemFactory
from streambench.system.systems import Systems

LOG = {"systems.log.samza.factory": "log", "systems.log.path": "data"}
OTHER = {"systems.other.samza.factory": "log", "systems.other.path": "other"}
MEMORY = {"systems.mem.samza.factory": "memory"}


class OwnFactory(MemoryEngineFactory):
    pass


def changelog(values: dict[str, str]) -> SystemStream | None:
    return store_definitions(Config(values), "job-1")["counts"].changelog


def test_one_key_defines_a_store_with_good_defaults() -> None:
    (counts,) = store_definitions(Config({"stores.counts.factory": "memory"}), "job-1").values()
    assert counts.name == "counts"
    assert isinstance(counts.factory, MemoryEngineFactory)
    assert isinstance(counts.key_serde, StringSerde) and isinstance(counts.value_serde, JsonSerde)
    assert counts.changelog == SystemStream("_checkpoints", "job-1-counts-changelog")
    assert counts.formats == ("string", "json")


def test_a_job_without_stores_has_none() -> None:
    assert store_definitions(Config(LOG), "job-1") == {}


def test_serdes_and_factory_are_as_configured() -> None:
    config = Config(
        {
            "stores.c.factory": f"{__name__}.OwnFactory",
            "stores.c.key.serde": "long",
            "stores.c.msg.serde": "string",
        }
    )
    own = store_definitions(config, "job-1")["c"]
    assert isinstance(own.factory, OwnFactory)
    assert isinstance(own.key_serde, LongSerde) and isinstance(own.value_serde, StringSerde)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({**LOG, "stores.counts.factory": "memory"}, "log.job-1-counts-changelog"),
        ({**LOG, "stores.counts.changelog": "mine"}, "log.mine"),
        ({**LOG, "stores.counts.changelog": "log.my.own"}, "log.my.own"),
        ({**LOG, **OTHER, "stores.counts.changelog": "other.x"}, "other.x"),
        ({**LOG, **OTHER, "stores.counts.changelog": "x", "job.changelog.system": "other"}, "other.x"),
        (
            {**LOG, **OTHER, "stores.counts.factory": "memory", "job.default.system": "other"},
            "other.job-1-counts-changelog",
        ),
        (
            {**LOG, **MEMORY, "stores.counts.factory": "memory", "job.changelog.system": "mem"},
            "mem.job-1-counts-changelog",
        ),
        ({**LOG, "stores.counts.changelog": "none"}, None),
        ({**MEMORY, "stores.counts.factory": "memory"}, "_checkpoints.job-1-counts-changelog"),
        ({**MEMORY, "stores.counts.changelog": "x"}, "_checkpoints.x"),
        (
            {"task.checkpoint.system": "file", "stores.counts.factory": "memory"},
            "_checkpoints.job-1-counts-changelog",
        ),
        (
            {**LOG, **OTHER, "task.checkpoint.system": "file", "stores.counts.changelog": "x"},
            "_checkpoints.x",
        ),
        ({**LOG, "task.checkpoint.system": "file", "stores.counts.changelog": "x"}, "log.x"),
        ({**LOG, **OTHER, "task.checkpoint.system": "other", "stores.counts.changelog": "x"}, "other.x"),
    ],
)
def test_the_changelog_is_the_one_named_else_one_in_the_changelog_system(
    values: dict[str, str], expected: str | None
) -> None:
    assert changelog(values) == (None if expected is None else SystemStream.parse(expected))


def test_a_name_with_spaces_becomes_a_stream_without() -> None:
    values = {**LOG, "stores.counts.factory": "memory"}
    assert store_definitions(Config(values), "my job-1")["counts"].changelog == SystemStream(
        "log", "my-job-1-counts-changelog"
    )


def test_several_log_systems_are_a_warning_that_names_the_choice(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert changelog({**LOG, **OTHER, "stores.counts.factory": "memory"}) is None
    assert "job.changelog.system" in caplog.text and "'counts'" in caplog.text


@pytest.mark.parametrize(
    ("values", "key", "text"),
    [
        ({**LOG, "stores.counts.changelog": "lgo.x"}, "stores.counts.changelog", "did you mean log"),
        ({**LOG, "stores.counts.changelog": "log."}, "stores.counts.changelog", "system.stream"),
        ({**LOG, **OTHER, "stores.counts.changelog": "x"}, "stores.counts.changelog", "job.changelog.system"),
        (
            {**LOG, "stores.counts.factory": "memory", "job.changelog.system": "kafka"},
            "job.changelog.system",
            "no system 'kafka'",
        ),
        (
            {"stores.counts.factory": "rocks"},
            "stores.counts.factory",
            "there is no 'rocks'; there are memory",
        ),
        ({"stores.counts.factory": "pathlib.Path"}, "stores.counts.factory", "not a StoreEngineFactory"),
        ({"stores.counts.key.serde": "jsn"}, "stores.counts.key.serde", "did you mean json"),
        (
            {**LOG, "stores.a.changelog": "x", "stores.b.changelog": "x"},
            "stores.b.changelog",
            "changelog of the store 'a' already",
        ),
    ],
)
def test_what_is_wrong_is_reported_under_its_key(values: dict[str, str], key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as raised:
        store_definitions(Config(values), "job-1")
    assert raised.value.key == key


def test_systems_that_are_known_without_configuration_will_do(tmp_path: Path) -> None:
    config = Config({"stores.counts.changelog": "mem.x"})
    definitions = store_definitions(config, "job-1", Systems(config, MemorySystemFactory()))
    assert definitions["counts"].changelog == SystemStream("mem", "x")


class Deep(MemoryEngineFactory):
    def get_engine(self, store: str, task: str, config: Config, directory: Path) -> MemoryEngine:
        if config.get(f"stores.{store}.engine.depth") != "3":
            raise config.error(f"stores.{store}.engine.depth", "must be 3")
        return super().get_engine(store, task, config, directory)


def test_a_factory_has_settings_of_its_own() -> None:
    config = Config({"stores.c.factory": f"{__name__}.Deep", "stores.c.engine.depth": "3"})
    config.validate()
    store_definitions(config, "job-1")["c"].engine("Partition 0", config, Path(), lambda: 0).put(b"a", b"1")
    wrong = config.with_values({"stores.c.engine.depth": "4"})
    with pytest.raises(ConfigError, match=r"stores\.c\.engine\.depth: must be 3"):
        store_definitions(wrong, "job-1")["c"].engine("Partition 0", wrong, Path(), lambda: 0)


@pytest.mark.parametrize(
    ("values", "layers"),
    [
        ({"factory": "memory"}, [MemoryEngine]),
        ({"factory": "memory", "object.cache.size": 1_000}, [CachedEngine, MemoryEngine]),
        ({"factory": "memory", "ttl.ms": 5}, [ExpiringEngine, MemoryEngine]),
        ({"factory": "memory", "ttl.ms": 0}, [MemoryEngine]),
        ({"factory": "rocksdb"}, [CachedEngine, RocksDbEngine]),
        ({"factory": "rocksdb", "object.cache.size": 0}, [RocksDbEngine]),
        ({"factory": "rocksdb", "rocksdb.ttl.ms": 5}, [ExpiringEngine, CachedEngine, RocksDbEngine]),
    ],
)
def test_layers_stand_above_an_engine_where_they_are_of_use(
    values: dict[str, object], layers: list[type], tmp_path: Path
) -> None:
    config = Config({f"stores.c.{key}": value for key, value in values.items()})
    config.validate()
    made = engine = store_definitions(config, "job-1")["c"].engine(
        "Partition 0", config, tmp_path / "files", lambda: 0
    )
    found = [type(engine)]
    while isinstance(engine, Layer):
        engine = engine.engine
        found.append(type(engine))
    made.close()
    assert found == layers
