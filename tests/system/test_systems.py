"""The systems of a job, from its configuration."""

from __future__ import annotations

from typing import ClassVar

import pytest

from streambench.config import Config
from streambench.errors import ConfigError, StreamExistsError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream
from streambench.system.memory import MemoryAdmin, MemoryStreams, MemorySystemFactory
from streambench.system.pull.factory import PullSystemFactory
from streambench.system.systems import Systems


class Mine(MemorySystemFactory):
    """A kind of system of one's own, with two settings."""

    keys: ClassVar[frozenset[str] | None] = frozenset({"url", "timeout.ms"})


class Counting(MemorySystemFactory):
    made: ClassVar[list[str]] = []

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> MemoryAdmin:
        self.made.append(system)
        return super().get_admin(system, config, metrics)


class Demanding(MemorySystemFactory):
    def __init__(self, url: str) -> None:
        super().__init__()


def of(system: str, factory: object, **keys: str) -> Systems:
    return Systems(
        Config(
            {f"systems.{system}.samza.factory": factory}
            | {f"systems.{system}.{key}": value for key, value in keys.items()}
        )
    )


def test_a_system_is_made_by_the_factory_that_the_configuration_names() -> None:
    assert isinstance(of("m", "memory").factory("m"), MemorySystemFactory)
    assert isinstance(
        of("m", "streambench.system.memory.MemorySystemFactory").factory("m"), MemorySystemFactory
    )
    assert isinstance(of("m", Mine).factory("m"), Mine)


def test_other_partitions_than_configured_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    systems = of("wide", "memory", **{"streams.a.partitions": "2"})
    a = SystemStream("wide", "a")
    assert systems.created(a) == 2
    assert not caplog.records
    key, other = "systems.wide.streams.a.partitions", of("wide", "memory", **{"streams.a.partitions": "7"})
    assert other.created(a) == 2
    assert caplog.messages == [
        f"{key}: wide.a is there already, with 2 partitions and not 7; "
        "'streambench streams grow wide.a --partitions 7 -c JOB.properties' gives it as many"
    ]
    with pytest.raises(StreamExistsError, match="get more of them, not fewer"):
        other.create(a, 1)


def test_a_factory_and_an_admin_are_made_once() -> None:
    Counting.made.clear()
    systems = of("m", Counting)
    assert systems.factory("m") is systems.factory("m")
    assert systems.admin("m") is systems.admin("m")
    assert Counting.made == ["m"]


def test_the_systems_of_a_configuration_are_all_that_it_says_something_of() -> None:
    assert Systems(Config({"systems.b.samza.factory": "log", "systems.a.path": "x"})).names() == ["a", "b"]


def test_an_undefined_system_is_reported_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match="there is no system 'lgo'; did you mean log"):
        of("log", "log").factory("lgo")


def test_a_system_that_is_like_no_other_is_reported_with_how_to_define_it() -> None:
    with pytest.raises(
        ConfigError,
        match=r"there is no system 'kafka'; define it with systems\.kafka\.samza\.factory=log \(or .*file, ",
    ):
        of("m", "memory").factory("kafka")


def test_a_system_configured_without_its_kind_is_not_offered_as_meant() -> None:
    with pytest.raises(
        ConfigError, match=r"there is no system 'log'; define it with systems\.log\.samza\.factory="
    ):
        Systems(Config({"systems.log.path": "x"})).factory("log")


def test_the_error_names_the_key_where_the_system_was_mentioned() -> None:
    with pytest.raises(ConfigError, match=r"^task\.inputs: there is no system 'x'") as caught:
        Systems(Config()).factory("x", key="task.inputs")
    assert caught.value.key == "task.inputs"


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("streambench.config.Config", "streambench.config.Config is not a SystemFactory"),
        ("streambench.no_such.Thing", "there is no module"),
        ("memroy", "there is no 'memroy'"),
        (Demanding, "cannot make a Demanding: .*'url'"),
    ],
)
def test_a_factory_that_is_none_is_an_error_that_names_the_key(factory: object, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        of("m", factory).factory("m")
    assert caught.value.key == "systems.m.samza.factory"


def test_an_unknown_setting_of_a_system_kind_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(
        ConfigError,
        match=r"systems\.m\.timeuot\.ms: is not a setting of this kind of system; did you mean "
              r"systems\.m\.timeout\.ms\?",
    ):
        of("m", Mine, **{"timeuot.ms": "5"}).factory("m")
    of("m", Mine, **{"timeout.ms": "5", "streams.a.partitions": "3", "samza.msg.serde": "json"}).factory("m")


def test_systems_without_a_kind_are_those_of_the_fallback() -> None:
    streams = MemoryStreams()
    systems = Systems(
        Config({"systems.a.samza.factory": "memory", "systems.b.path": "x"}), MemorySystemFactory(streams)
    )
    for name in ("a", "b", "c"):
        systems.create(SystemStream(name, "s"), 1)
    assert sorted(map(str, streams.partitions)) == ["a.s", "b.s", "c.s"]


def test_metadata_may_be_asked_of_several_systems_at_once() -> None:
    systems = Systems(Config(), MemorySystemFactory(MemoryStreams()))
    wanted = [SystemStream("b", "s"), SystemStream("a", "s"), SystemStream("b", "t")]
    for stream in wanted:
        systems.create(stream, 2)
    assert {
        stream: list(partitions) for stream, partitions in systems.metadata(wanted).items()
    } == dict.fromkeys(wanted, [0, 1])
    with pytest.raises(UnknownStreamError, match=r"no stream a\.nothing"):
        systems.metadata([*wanted, SystemStream("a", "nothing")])


def test_a_stream_gets_the_asked_or_configured_number_of_partitions_or_one() -> None:
    config = Config({"systems.m.streams.configured.partitions": 4, "systems.m.streams.a.b.partitions": 5})
    systems = Systems(config, MemorySystemFactory(MemoryStreams()))
    for name, asked, there in [
        ("asked", 3, 3),
        ("configured", None, 4),
        ("a.b", None, 5),
        ("neither", None, 1),
        ("configured2", 2, 2),
    ]:
        stream = SystemStream("m", name)
        assert systems.create(stream, asked) is True
        assert len(systems.metadata([stream])[stream]) == there


def test_a_stream_has_at_least_one_partition() -> None:
    systems = Systems(Config({"systems.m.streams.s.partitions": 0}), MemorySystemFactory(MemoryStreams()))
    with pytest.raises(
        ConfigError, match=r"systems\.m\.streams\.s\.partitions: 0 is too small: give 1 or more"
    ):
        systems.create(SystemStream("m", "s"))


def test_consumers_and_producers_are_new_each_time() -> None:
    systems, metrics = of("m", "memory"), MetricsRegistry()
    assert systems.consumer("m", metrics) is not systems.consumer("m", metrics)
    assert systems.producer("m", metrics) is not systems.producer("m", metrics)


def test_admins_are_closed_and_made_anew_when_they_are_needed_again() -> None:
    Counting.made.clear()
    systems = of("m", Counting)
    systems.admin("m")
    systems.close()
    systems.admin("m")
    assert Counting.made == ["m", "m"]


class Promised(MemorySystemFactory):
    """Written to the promise: every part is given its metrics."""

    given: ClassVar[list[MetricsRegistry]] = []

    def get_admin(self, system, config, metrics):  # type: ignore[no-untyped-def]
        self.given.append(metrics)
        return super().get_admin(system, config, metrics)


class Shorter(MemorySystemFactory):
    """Takes no metrics."""

    def get_consumer(self, system, config):  # type: ignore[no-untyped-def, override]
        return super().get_consumer(system, config, MetricsRegistry())

    def get_producer(self, system, config):  # type: ignore[no-untyped-def, override]
        return super().get_producer(system, config, MetricsRegistry())

    def get_admin(self, system, config):  # type: ignore[no-untyped-def, override]
        return super().get_admin(system, config)


class Failing(MemorySystemFactory):
    def get_admin(self, system, config, metrics):  # type: ignore[no-untyped-def]
        raise TypeError("of its own")


@pytest.mark.parametrize("kind", [Promised, Shorter])
def test_the_parts_of_a_system_are_asked_for_with_what_is_promised(kind: type[MemorySystemFactory]) -> None:
    systems, metrics = of("m", kind), MetricsRegistry()
    assert systems.admin("m").streams() == []
    assert systems.consumer("m", metrics) is not None
    assert systems.producer("m", metrics) is not None
    if kind is Promised:
        assert Promised.given.pop() is systems.metrics


def test_a_type_error_of_a_factory_is_not_mistaken_for_the_short_signature() -> None:
    with pytest.raises(TypeError, match="of its own"):
        of("m", Failing).admin("m")


def test_a_missing_input_is_named_with_its_key_and_what_makes_it() -> None:
    inputs = {"task.inputs": "m.here,m.away", "task.broadcast.inputs": "m.all#0"}
    systems = Systems(
        Config({"systems.m.samza.factory": "memory", **inputs}), MemorySystemFactory(MemoryStreams())
    )
    systems.create(SystemStream("m", "here"))
    with pytest.raises(
        UnknownStreamError,
        match=r"^task\.inputs: there is no stream m\.away .*'streambench streams create m\.away -c JOB",
    ):
        systems.inputs([SystemStream("m", "here"), SystemStream("m", "away")])
    with pytest.raises(
        UnknownStreamError,
        match=r"^task\.broadcast\.inputs: there is no stream m\.all .*streams create m\.all -c JOB",
    ):
        systems.inputs([SystemStream("m", "here"), SystemStream("m", "all")])


class Tables(PullSystemFactory):
    """Has no stream, and cannot create one."""

    def partitions(self, system: str, stream: str, config: Config) -> int:
        return 0

    def consumer(self, system, stream, partition, offset, config):  # type: ignore[no-untyped-def]
        raise NotImplementedError


class MadeHere(Tables):
    def create(self, system: str, stream: str, partitions: int, config: Config) -> None:
        """Creates streams."""


@pytest.mark.parametrize(
    ("kind", "is_made_here"),
    [
        ("memory", True),
        ("file", False),
        ("webhook", False),
        ("tcp", False),
        ("udp", False),
        (Tables, False),
        (MadeHere, True),
    ],
)
def test_only_a_kind_that_creates_streams_is_said_to_create_them(kind: object, is_made_here: bool) -> None:
    systems = of("m", kind, path="somewhere") if kind == "file" else of("m", kind)
    assert ("streams create m.away" in systems.remedy("m", "m.away")) is is_made_here


def test_landing_a_system_does_not_change_who_creates_its_streams() -> None:
    log = {"systems.log.samza.factory": "log", "systems.log.path": "log"}
    for kind, is_made_here in (("tcp", False), ("amqp", True)):
        landed = {"systems.m.samza.factory": kind, "systems.m.samza.landing": "log"}
        systems = Systems(Config(log | landed))
        assert ("streams create" in systems.remedy("m", "m.away")) is is_made_here
