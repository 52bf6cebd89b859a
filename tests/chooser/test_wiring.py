"""From the configuration to the chooser of a container: only the layers that are asked for."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from streambench.chooser import (
    BatchingChooser,
    BootstrappingChooser,
    MessageChooser,
    MessageChooserFactory,
    PartitionMetadata,
    RoundRobinChooser,
    TieredPriorityChooser,
)
from streambench.chooser.checked import CheckedChooser
from streambench.chooser.wiring import wire_chooser
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStream
from tests.chooser.messages import A, B, put, started, take_all, until

METADATA = {stream: {0: until(0)} for stream in (A, B)}


class NewestFirst(MessageChooser):
    """Whoever came last goes first."""

    def __init__(self) -> None:
        self._messages: list[IncomingMessageEnvelope] = []

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        self._messages.append(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        return self._messages.pop() if self._messages else None


class NewestFirstFactory(MessageChooserFactory):
    made: list[tuple[MessageChooser, Config, MetricsRegistry]] = []  # noqa: RUF012 - looked at by a test

    def get_chooser(self, config: Config, metrics: MetricsRegistry) -> MessageChooser:
        chooser = NewestFirst()
        self.made.append((chooser, config, metrics))
        return chooser


class SameAgain(MessageChooserFactory):
    _chooser = NewestFirst()

    def get_chooser(self, config: Config, metrics: MetricsRegistry) -> MessageChooser:
        return self._chooser


class NoChooserFactory(MessageChooserFactory):
    def get_chooser(self, config: Config, metrics: MetricsRegistry) -> Any:
        return "no chooser"


class NeedsMore(NewestFirst):
    def __init__(self, more: str) -> None:
        super().__init__()


class Unfinished(MessageChooser):
    """Lacks update and choose."""


def _wire(
    config: dict[str, Any],
    inputs: Collection[SystemStream] = (A, B),
    metrics: MetricsRegistry | None = None,
    directory: Path | None = None,
) -> MessageChooser:
    made_of = Config.from_text(
        "\n".join(f"{key}={value}" for key, value in config.items()), directory=directory
    )
    return wire_chooser(
        made_of, inputs, METADATA, metrics or MetricsRegistry(), lambda one, other: int(one) - int(other)
    )


def _users(chooser: MessageChooser) -> type[MessageChooser]:
    """The class of a chooser that is not ours and is checked."""
    assert isinstance(chooser, CheckedChooser)
    return type(chooser.wrapped)


def _name(what: type) -> str:
    return f"{what.__module__}.{what.__qualname__}"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"task.chooser.class": "round-robin"},
        {"task.consumer.batch.size": 1},
        {"systems.sys.streams.a.samza.priority": -1, "systems.sys.streams.b.samza.priority": -7},
        {"systems.sys.streams.a.samza.priority": 3, "systems.sys.streams.b.samza.priority": 3},
        {"systems.sys.streams.a.samza.bootstrap": "false"},
        {
            "systems.sys.streams.elsewhere.samza.bootstrap": "true",
            "systems.sys.streams.elsewhere.samza.priority": 1,
        },
    ],
)
def test_without_need_there_is_nothing_around_the_round_robin(config: dict[str, Any]) -> None:
    assert type(_wire(config)) is RoundRobinChooser


def test_each_layer_comes_with_its_key() -> None:
    assert type(_wire({"systems.sys.streams.a.samza.priority": 0})) is TieredPriorityChooser
    assert type(_wire({"task.consumer.batch.size": 2})) is BatchingChooser
    assert type(_wire({"systems.sys.streams.a.samza.bootstrap": "true"})) is BootstrappingChooser


def test_a_higher_priority_goes_first_and_one_that_is_not_listed_goes_last() -> None:
    chooser = _wire({"systems.sys.streams.a.samza.priority": 0})
    put(started(chooser, "a.0", "b.0"), "b.0@0", "a.0@0")
    assert take_all(chooser) == ["a.0@0", "b.0@0"]


def test_batches_go_over_priorities_and_the_gate_over_batches() -> None:
    config = {
        "systems.sys.streams.b.samza.priority": 5,
        "systems.sys.streams.a.samza.bootstrap": "true",
        "task.consumer.batch.size": 2,
    }
    chooser = started(_wire(config), "a.0", "b.0")
    put(chooser, "b.0@0")
    assert take_all(chooser) == [], "the gate is closed"
    put(chooser, "a.0@0")
    assert chooser.choose() is not None
    put(chooser, "a.0@1")
    assert take_all(chooser) == ["a.0@1", "b.0@0"], (
        "the batch of a goes on although b has the higher priority"
    )
    put(chooser, "a.0@2", "b.0@1")
    assert take_all(chooser) == ["b.0@1", "a.0@2"]


def test_bootstrap_streams_go_by_their_priorities() -> None:
    config = {
        "systems.sys.streams.a.samza.bootstrap": "true",
        "systems.sys.streams.b.samza.bootstrap": "true",
        "systems.sys.streams.b.samza.priority": 1,
    }
    chooser = started(_wire(config), "a.0", "b.0")
    put(chooser, "b.0@0")
    assert take_all(chooser) == []
    put(chooser, "a.0@0")
    assert take_all(chooser) == ["a.0@0", "b.0@0"]


def test_a_chooser_class_replaces_the_round_robin() -> None:
    assert _users(_wire({"task.chooser.class": _name(NewestFirst)})) is NewestFirst


def test_a_chooser_may_stand_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from streambench.chooser import RoundRobinChooser\nclass Mine(RoundRobinChooser): pass\n"
    )
    assert _users(_wire({"task.chooser.class": "mine.py:Mine"}, directory=tmp_path)).__name__ == "Mine"


def test_a_package_adds_a_chooser_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("newest-first", f"{NewestFirst.__module__}:NewestFirst", "streambench.choosers")
    found = {point.group: [point]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found.get(group, []))
    assert _users(_wire({"task.chooser.class": "newest-first"})) is NewestFirst


def test_each_priority_has_a_chooser_of_its_own_from_the_factory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NewestFirstFactory, "made", [])
    metrics = MetricsRegistry()
    config = {"task.chooser.class": _name(NewestFirstFactory), "systems.sys.streams.a.samza.priority": 2}
    chooser = started(_wire(config, metrics=metrics), "a.0", "a.1", "b.0", "b.1")
    assert len({id(made) for made, _, _ in NewestFirstFactory.made}) == len(NewestFirstFactory.made) == 2
    assert all(
        given is metrics and given_config["task.chooser.class"]
        for _, given_config, given in NewestFirstFactory.made
    )
    put(chooser, "a.0@0", "b.0@0", "a.1@0", "b.1@0")
    assert take_all(chooser) == ["a.1@0", "a.0@0", "b.1@0", "b.0@0"]


def test_no_chooser_is_made_that_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NewestFirstFactory, "made", [])
    priorities = {"systems.sys.streams.a.samza.priority": 2, "systems.sys.streams.b.samza.priority": 1}
    _wire({"task.chooser.class": _name(NewestFirstFactory), **priorities})
    assert len(NewestFirstFactory.made) == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no-such", "there is no 'no-such'; there are round-robin"),
        ("tests.chooser.test_wiring.NoSuch", "has no 'NoSuch'"),
        (_name(SystemStream), "neither a MessageChooser class nor a MessageChooserFactory class"),
        (
            "tests.chooser.test_wiring.METADATA",
            "neither a MessageChooser class nor a MessageChooserFactory class",
        ),
        (_name(NoChooserFactory), "NoChooserFactory.get_chooser gave a str, not a MessageChooser"),
        (_name(NeedsMore), "cannot make a chooser: TypeError: .*'more'"),
        (_name(Unfinished), "cannot make a chooser: TypeError: .*abstract"),
    ],
)
def test_what_makes_no_chooser_is_an_error_that_names_the_key(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^task.chooser.class.*{says}") as caught:
        _wire({"task.chooser.class": name})
    assert caught.value.key == "task.chooser.class"


def test_a_factory_that_gives_one_chooser_to_two_priorities_is_an_error() -> None:
    with pytest.raises(ConfigError, match="gave the same chooser twice"):
        _wire({"task.chooser.class": _name(SameAgain), "systems.sys.streams.a.samza.priority": 2})


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("task.consumer.batch.size", "0", "0 is too small: give 1 or more"),
        ("task.consumer.batch.size", "-5", "-5 is too small: give 1 or more"),
        ("task.consumer.batch.size", "many", "is not a whole number"),
        ("systems.sys.streams.a.samza.priority", "high", "is not a whole number"),
        ("systems.sys.streams.a.samza.bootstrap", "yes", "is neither true nor false"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_key(key: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        _wire({key: value})
    assert caught.value.key == key


def test_offsets_are_compared_by_what_the_container_hands_over() -> None:
    compared = []

    def compare(one: str, other: str) -> int:
        compared.append((one, other))
        return int(one) - int(other)

    config = Config({"systems.sys.streams.a.samza.bootstrap": "true"})
    chooser = wire_chooser(
        config, [A, B], {A: {0: PartitionMetadata("0", "4", "5")}}, MetricsRegistry(), compare
    )
    put(started(chooser, "a.0@3", "b.0"), "a.0@3")
    chooser.choose()
    assert compared == [("3", "4"), ("3", "4")]
