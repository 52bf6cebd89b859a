"""The abilities that a kind of system declares, and what asks for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import pytest

from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.config import Config
from streambench.errors import ConfigError, SerdeError
from streambench.job.shareable import check_shareable
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.store_definitions import store_definitions
from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer, accept
from streambench.system.capabilities import Checking, StagedWrites
from streambench.system.log.factory import LogSystemFactory
from streambench.system.memory import MemoryAdmin, MemoryConsumer, MemoryProducer, MemoryStreams
from streambench.system.systems import BUILTIN, Systems, abilities_of, keepers, kind_name
from tests.conftest import CHECKOUT

ABILITIES = {
    "in_process": {"memory"},
    "is_local": {"log", "memory", "file"},
    "holds_changelogs": {"log", "memory", "kafka"},
    "keeps_headers": {"log", "memory", "kafka", "amqp", "webhook", "tcp", "udp"},
    "consecutive_offsets": {"log", "kafka"},
    "portable_settings": {"log", "memory", "kafka"},
    "creates_path": {"log"},
    "listens": {"webhook", "tcp", "udp"},
    "settings_unconfirmed": {"tcp", "udp"},
}
MODULE = """\
import {test}

print("run")

class Factory({test}.Plain):
    listens = True
"""


class Plain(SystemFactory):
    """Has the abilities that every system has."""

    streams = MemoryStreams()

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemConsumer:
        return MemoryConsumer(self.streams)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemProducer:
        return MemoryProducer(self.streams)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemAdmin:
        return MemoryAdmin(self.streams)


class Pipe(Plain):
    """Keeps no keys, and no headers."""

    holds_changelogs: ClassVar[bool] = False
    keeps_headers: ClassVar[bool] = False
    settings_unconfirmed: ClassVar[Mapping[str, str] | None] = {"wait": "false"}


class Shelf(Plain):
    """Lives in this process."""

    in_process: ClassVar[bool] = True


def of(factory: object, **keys: object) -> Config:
    named = {key.replace("_", "."): value for key, value in keys.items()}
    return Config({"systems.mine.samza.factory": factory, **named})


@pytest.mark.parametrize("ability", ABILITIES)
def test_each_kind_declares_its_abilities(ability: str) -> None:
    asked = {kind: getattr(abilities_of(of(kind), "mine"), ability) for kind in BUILTIN}
    assert {kind for kind, value in asked.items() if value not in (False, None)} == ABILITIES[ability]


def test_the_abilities_of_a_landed_system_are_its_own() -> None:
    config = Config({"systems.hook.samza.factory": "webhook", "systems.hook.samza.landing": "log"})
    assert abilities_of(config, "hook").listens


def test_a_system_that_is_not_there_has_the_abilities_of_any() -> None:
    for factory in ("logg", "no.such.module.Factory", "pathlib.Path", None):
        assert abilities_of(of(factory), "mine") is SystemFactory


def test_a_kind_that_holds_no_changelogs_is_refused_for_one() -> None:
    with pytest.raises(ConfigError, match=r"'mine' is a .*Pipe system, which cannot hold a changelog"):
        store_definitions(of(Pipe, stores_counts_changelog="mine.counts"), "job-1")
    assert store_definitions(of(Plain, stores_counts_changelog="mine.counts"), "job-1")["counts"].changelog


def test_what_is_in_this_process_is_not_shared_and_keeps_checkpoints() -> None:
    config = of(Shelf, task_checkpoint_system="mine")
    checkpoints = checkpoint_manager(config, "job-1")
    assert isinstance(checkpoints, MemoryCheckpointManager)
    with pytest.raises(ConfigError, match="a memory system exists once in each process"):
        check_shareable(config, Systems(config), checkpoints, "containers")
    with pytest.raises(ConfigError, match="keeps no checkpoints"):
        checkpoint_manager(of(Plain, task_checkpoint_system="mine"), "job-1")


class Shelves(LogSystemFactory):
    """A log of another kind: it does not keep checkpoints unless it says how."""


def test_what_derives_from_a_log_keeps_checkpoints_only_where_it_says_so(tmp_path: Path) -> None:
    config = of(Shelves, systems_mine_path=tmp_path)
    assert keepers(config) == []
    assert isinstance(checkpoint_manager(config, "job-1"), MemoryCheckpointManager)
    assert isinstance(Systems(config).factory("mine"), StagedWrites)


def test_a_file_of_a_plug_in_is_not_run_again_to_ask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "abilities_plug_in.py").write_text(MODULE.format(test=__name__))
    config = Config.from_text(
        "systems.mine.samza.factory=abilities_plug_in.py:Factory\n", directory=tmp_path
    )
    assert abilities_of(config, "mine").listens
    assert isinstance(Systems(config).factory("mine"), abilities_of(config, "mine"))  # type: ignore[arg-type]
    assert abilities_of(config, "mine").listens
    assert capsys.readouterr().out == "run\n" * 2


def test_a_kind_is_named_as_errors_name_it() -> None:
    assert kind_name(of("streambench.system.log:LogSystemFactory"), "mine") == "log"
    assert kind_name(of(Pipe), "mine").endswith("Pipe")


def test_the_page_of_plug_ins_lists_the_abilities_and_their_defaults() -> None:
    page = (CHECKOUT / "docs" / "plugin.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", page, re.MULTILINE))
    config = Config()
    assert listed.pop("creates_streams") == str(Plain().creates_streams)
    assert listed == {name: str(getattr(abilities_of(config, "none"), name)) for name in ABILITIES}


def test_each_kind_that_comes_with_streambench_checks_its_messages() -> None:
    assert all(isinstance(Systems(of(kind)).factory("mine"), Checking) for kind in BUILTIN)


def test_a_landed_system_refuses_what_its_own_producer_refuses(tmp_path: Path) -> None:
    landing = {"systems_mine_samza_landing": "log", "systems_log_samza_factory": "log"}
    stream = SystemStream("mine", "t")
    for factory, is_refused in (("tcp", True), (Pipe, False)):
        systems = Systems(of(factory, **landing, systems_log_path=tmp_path))
        check = systems.check(stream)
        with pytest.raises(SerdeError, match="newline") if is_refused else nullcontext():
            check("", OutgoingMessageEnvelope(stream, b"1\n2"), None, b"1\n2", 0)
        systems.close()


def test_a_kind_without_a_check_refuses_nothing() -> None:
    assert Systems(of(Plain)).check(SystemStream("mine", "t")) is accept
