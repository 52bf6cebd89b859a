"""What Prometheus gets to see: read by Prometheus' own parser, over HTTP."""

from __future__ import annotations

import contextlib
import math
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.metrics.prometheus_reporter import PrometheusReporter, _Families
from streambench.metrics.registry import Distribution, Kind, Reading
from streambench.metrics.reporter import MetricsReport, ReporterContext

OWN = {"job_name": "job", "job_id": "1", "container": "2"}


def report(readings: Sequence[Reading], **tasks: Sequence[Reading]) -> MetricsReport:
    sources = {
        "samza-container-2": readings,
        **{f"TaskName-{name}": of_task for name, of_task in tasks.items()},
    }
    return MetricsReport("job", "1", 2, "host", "0.1", 0, 0, sources)


def shown(told: MetricsReport) -> dict[str, object]:
    """Families by name, as Prometheus' parser reads the text."""
    registry = CollectorRegistry()
    collector = _Families()
    collector.report = told
    registry.register(collector)
    return {
        family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())
    }


def samples(told: MetricsReport, family: str) -> dict[tuple[str, frozenset], float]:
    return {
        (each.name, frozenset(each.labels.items()) - frozenset(OWN.items())): each.value
        for each in shown(told)[family].samples
    }


KINDS: list[Kind] = ["counter", "gauge", "timer"]


def test_unit_and_meaning_come_from_the_catalogue() -> None:
    family = shown(report([Reading("container", "process-envelopes", "counter", 5)]))[
        "streambench_container_process_envelopes"
    ]
    assert (family.type, family.documentation) == (
        "counter",
        "messages: chosen and given to tasks; a broadcast message once",
    )
    (sample,) = family.samples
    assert (sample.name, sample.value, sample.labels) == (
        "streambench_container_process_envelopes_total",
        5,
        OWN,
    )


def test_what_a_name_is_about_is_a_label() -> None:
    labels = {"system": "a-b", "stream": "c-d", "partition": "7"}
    told = report([Reading("consumers", "a-b-c-d-7-messages-behind-high-watermark", "gauge", 9, labels)])
    name = "streambench_consumers_messages_behind_high_watermark"
    assert samples(told, name) == {(name, frozenset(labels.items())): 9}


def test_the_metrics_of_tasks_are_one_family_with_the_task_as_a_label() -> None:
    one, two = ([Reading("Mine", "seen", "counter", count)] for count in (1, 2))
    told = report([], **{"Partition 0": one, "Partition 1": two})
    name = "streambench_Mine_seen"
    assert samples(told, name) == {
        (f"{name}_total", frozenset({("task", "Partition 0")})): 1,
        (f"{name}_total", frozenset({("task", "Partition 1")})): 2,
    }


def test_a_timer_is_a_summary_and_its_maximum() -> None:
    told = report([Reading("container", "commit-ns", "timer", 4, spread=Distribution(10, 40, 3, 9, 11))])
    name = "streambench_container_commit_ns"
    assert samples(told, name) == {
        (name, frozenset({("quantile", "0.5")})): 3,
        (name, frozenset({("quantile", "0.99")})): 9,
        (f"{name}_count", frozenset()): 10,
        (f"{name}_sum", frozenset()): 40,
    }
    assert samples(told, f"{name}_max") == {(f"{name}_max", frozenset()): 11}


def test_names_that_prometheus_would_take_for_one_stay_apart() -> None:
    told = report(
        [
            Reading("Mine", "a-b", "counter", 1),
            Reading("Mine", "a_b", "counter", 2),
            Reading("Mine", "a.b", "gauge", 3),
        ]
    )
    families = shown(told)
    assert len(families) == 3
    assert sorted(sample.value for family in families.values() for sample in family.samples) == [1, 2, 3]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["t", "t_max", "t_count", "t_sum", "t_total", "t-max"]), st.sampled_from(KINDS)
        ),
        unique=True,
    )
)
def test_no_name_is_that_of_a_sample_of_another_metric(metrics: list[tuple[str, Kind]]) -> None:
    spread = Distribution(10, 40, 3, 9, 11)
    readings = [
        Reading("Mine", name, kind, 1, spread=spread if kind == "timer" else None) for name, kind in metrics
    ]
    told = [
        sample
        for family in shown(report(readings, **{"Partition 0": readings})).values()
        for sample in family.samples
    ]
    assert len({(sample.name, frozenset(sample.labels.items())) for sample in told}) == len(told)
    assert len(told) == 2 * sum(5 if kind == "timer" else 1 for _, kind in metrics)


def test_what_is_no_number_is_left_out() -> None:
    told = report([Reading("Mine", "text", "gauge", "x"), Reading("Mine", "nan", "gauge", math.nan)])  # type: ignore[arg-type]
    (family,) = shown(told).values()
    assert math.isnan(family.samples[0].value)


def test_what_is_too_large_is_shown_as_infinite() -> None:
    (family,) = shown(
        report([Reading("Mine", "large", "gauge", 10**400), Reading("Mine", "large", "gauge", -(10**400))])
    ).values()
    assert [sample.value for sample in family.samples] == [math.inf, -math.inf]


names = st.text(min_size=1, max_size=12)


@given(
    st.dictionaries(
        st.tuples(names, names),
        st.tuples(st.sampled_from(["counter", "gauge"]), st.integers(0, 1000)),
        max_size=12,
    )
)
def test_whatever_users_call_their_metrics_each_is_shown_once(metrics: dict) -> None:
    readings = [Reading(group, name, kind, value) for (group, name), (kind, value) in metrics.items()]
    told = [sample for family in shown(report(readings)).values() for sample in family.samples]
    assert sorted(sample.value for sample in told) == sorted(value for _, value in metrics.values())
    assert len({(sample.name, frozenset(sample.labels.items())) for sample in told}) == len(told)


@contextlib.contextmanager
def serving(container: int = 0, **settings: object) -> Iterator[PrometheusReporter]:
    config = Config({f"metrics.reporter.p.{key}": value for key, value in settings.items()})
    reporter = PrometheusReporter(
        ReporterContext("p", config, "job-1", container, lambda stream, key: lambda messages: None)
    )
    reporter.start()
    try:
        yield reporter
    finally:
        reporter.stop()


def scraped(reporter: PrometheusReporter) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{reporter.port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def free_ports(number: int) -> int:
    """The first of so many free ports in a row."""
    for first in range(20_000, 60_000, 7):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + number):
                    stack.enter_context(contextlib.closing(socket.create_server(("127.0.0.1", port))))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")


def test_it_serves_the_last_report() -> None:
    with serving() as reporter:
        assert "streambench" not in scraped(reporter)
        for count in (1, 2):
            reporter.report(report([Reading("Mine", "seen", "counter", count)]))
        assert "streambench_Mine_seen_total{" in scraped(reporter)
        assert scraped(reporter).splitlines()[-1].endswith(" 2.0")


def test_each_container_has_a_port_of_its_own() -> None:
    first = free_ports(3)
    with serving(0, port=first) as zero, serving(2, port=first) as two:
        assert (zero.port, two.port) == (first, first + 2)


def test_a_taken_port_is_told_by_its_key() -> None:
    with (
        serving() as other,
        pytest.raises(
            ConfigError, match=rf"metrics\.reporter\.p\.port.*: cannot listen on 127\.0\.0\.1:{other.port}"
        ),
        serving(port=other.port),
    ):
        pass


def test_after_the_stop_nobody_listens() -> None:
    with serving() as reporter:
        port = reporter.port
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60)
