"""From the configuration to the reporters in force, and what is wrong with it."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from streambench.config import Config
from streambench.errors import ConfigError, MissingExtraError
from streambench.metrics.registry import Reading
from streambench.metrics.reporter import (
    MetricsReport,
    MetricsReporter,
    Reporter,
    ReporterContext,
    is_builtin,
    reporters,
)

HERE = "tests.metrics.test_reporter"


class Keeps(MetricsReporter):
    """Keeps what it is told."""

    interval_s = 7

    def __init__(self, context: ReporterContext) -> None:
        self.context = context
        self.reports: list[MetricsReport] = []

    def report(self, report: MetricsReport) -> None:
        self.reports.append(report)


def keeps(context: ReporterContext) -> Keeps:
    return Keeps(context)


class NoReporter:
    def __init__(self, context: ReporterContext) -> None:
        pass


def made(settings: Mapping[str, Any], container: int = 0) -> list[Reporter]:
    config = Config(
        {"metrics.reporters": "a", **{f"metrics.reporter.{key}": value for key, value in settings.items()}}
    )
    config.validate()
    return reporters(config, "job-1", container, lambda stream, key: lambda messages: None)


def test_without_names_there_are_none() -> None:
    assert reporters(Config(), "job-1", 0, lambda stream, key: lambda messages: None) == []


def test_what_is_not_named_is_not_in_force() -> None:
    assert [each.name for each in made({"a.class": "log", "b.class": "no.such.Thing"})] == ["a"]


@pytest.mark.parametrize("path", [f"{HERE}.Keeps", f"{HERE}:Keeps", f"{HERE}.keeps"])
def test_a_reporter_of_ones_own_is_made_with_its_context(path: str) -> None:
    (reporter,) = made({"a.class": path, "a.mine": "5"}, container=3)
    assert isinstance(reporter.made, Keeps)
    context = reporter.made.context
    assert (context.name, context.job, context.container) == ("a", "job-1", 3)
    assert context.config[context.key("mine")] == "5"


@pytest.mark.parametrize(
    ("text", "nanoseconds"), [(None, 7_000_000_000), ("60", 60_000_000_000), ("0.25", 250_000_000)]
)
def test_the_interval_is_in_seconds(text: str | None, nanoseconds: int) -> None:
    (reporter,) = made({"a.class": f"{HERE}.Keeps", "a.interval": text})
    assert reporter.every_ns == nanoseconds


@pytest.mark.parametrize(
    ("settings", "key", "what"),
    [
        ({}, "a.class", r"is missing, but metrics\.reporters names a; there are log, prometheus, snapshot"),
        ({"a.class": "promethius"}, "a.class", r"there is no 'promethius'; did you mean prometheus\?"),
        ({"a.class": "jmx"}, "a.class", "there is no 'jmx'; there are log, prometheus, snapshot"),
        ({"a.class": "no.such.Thing"}, "a.class", "no module"),
        ({"a.class": f"{HERE}.NoReporter"}, "a.class", "gave a NoReporter, not a MetricsReporter"),
        (
            {"a.class": "org.apache.samza.metrics.reporter.MetricsSnapshotReporterFactory"},
            "a.class",
            "write .*a.class=snapshot",
        ),
        ({"a.class": "org.apache.samza.metrics.reporter.JmxReporterFactory"}, "a.class", "Java class"),
        ({"a.class": "log", "a.interval": "0"}, "a.interval", "'0' is not a number of seconds above 0"),
        ({"a.class": "log", "a.interval": "1 min"}, "a.interval", "not a number of seconds"),
        ({"a.class": "log", "a.interval": "nan"}, "a.interval", "not a number of seconds"),
        ({"a.class": "log", "a.blacklist": "("}, "a.blacklist", r"'\(' is not a regular expression"),
        (
            {"a.class": "log", "a.intervall": "3"},
            "a.intervall",
            r"did you mean metrics\.reporter\.a\.interval\?",
        ),
        (
            {"a.class": "prometheus", "a.stream": "log.x"},
            "a.stream",
            "not a setting of this kind of reporter",
        ),
        ({"a.class": "prometheus", "a.port": "70000"}, "a.port", "70000 is no port"),
        ({"a.class": "prometheus", "a.port": "http"}, "a.port", "not a whole number"),
        ({"a.class": "snapshot"}, "a.stream", "is missing"),
        (
            {"a.class": "snapshot", "a.stream": "metrics"},
            "a.stream",
            "not a stream: write it as system.stream",
        ),
    ],
)
def test_a_wrong_configuration_is_refused_by_key(settings: dict[str, str], key: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        made(settings)
    assert raised.value.key == f"metrics.reporter.{key}"


def test_timers_are_on_off_or_sampled() -> None:
    with pytest.raises(
        ConfigError, match=r"metrics\.timer\.enabled: 'yes' is not one of true, false, sampled"
    ):
        Config({"metrics.timer.enabled": "yes"}).validate()


def test_without_its_package_prometheus_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any) -> Any:
        if name.split(".")[0] == "prometheus_client":
            raise ModuleNotFoundError("No module named 'prometheus_client'", name="prometheus_client")
        return real(name, *arguments)

    monkeypatch.delitem(sys.modules, "streambench.metrics.prometheus_reporter", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"pip install 'streambench\[prometheus\]'"):
        made({"a.class": "prometheus"})


def test_the_blacklist_leaves_out_what_it_matches_whole() -> None:
    (reporter,) = made({"a.class": f"{HERE}.Keeps", "a.blacklist": r"container\..*-ns|task\.x"})
    assert isinstance(reporter.made, Keeps)
    names = [("container", "process-ns"), ("container", "process-calls"), ("task", "x"), ("task", "x-y")]
    readings = [Reading(group, name, "gauge", 1) for group, name in names]
    reporter.report(MetricsReport("job", "1", 0, "h", "", 0, 0, {"samza-container-0": readings}))
    (told,) = reporter.made.reports
    assert [each.name for each in told.sources["samza-container-0"]] == ["process-calls", "x-y"]


def test_a_builtin_kind_is_known_by_name_and_by_path() -> None:
    config = Config({
        "metrics.reporter.a.class": "prometheus",
        "metrics.reporter.b.class": "streambench.metrics.prometheus_reporter.PrometheusReporter",
        "metrics.reporter.c.class": "log",
    })  # fmt: skip
    assert [is_builtin(config, name, "prometheus") for name in "abc"] == [True, True, False]
