"""Progress of a deployment: what containers report, and what it adds up to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from typing import Any, cast

from streambench.container.observe.snapshot import left_until
from streambench.spark import ContainerProgress, DeployProgress
from streambench.spark.progress import Address, Listener, ProgressReporter
from streambench.spark.progress_view import description_of, line_of, view_of
from streambench.spark.round import interrupt, reporting_containers
from streambench.spark.spark_job import SparkJob


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def waiting(count: int, total: int | None = 100) -> list[ContainerProgress]:
    """Containers with two partitions each."""
    return [ContainerProgress(number=at, total=total, left=total, partitions=2) for at in range(count)]


def report(
    listener: Listener,
    container: int,
    *notes: Sequence[Any],
    attempt: int = 0,
    address: Address | None = None,
) -> None:
    reporter = ProgressReporter(address or listener.address, container, attempt)
    for note in notes:
        reporter.report(*note)
    reporter.close()


def test_progress_adds_up_over_containers() -> None:
    with Listener("127.0.0.1", waiting(4), "delays-1", 3) as listener:
        report(listener, 0, ("running", 0), ("running", 10, 90), ("done", 100, 0, 2))
        report(listener, 2, ("running", 7, 93, 1))
        report(listener, 3, ("failed", 1, 99, 0, "ValueError: no delay\nat line 3"))
        seen = listener.read()
    assert (seen.job, seen.round) == ("delays-1", 3)
    assert (seen.containers, seen.active, seen.done, seen.failed, seen.waiting) == (4, 1, 1, 1, 1)
    assert (seen.messages, seen.total, seen.left) == (108, 400, 292)
    assert (seen.partitions, seen.partitions_done) == (8, 3)
    assert [each.stage for each in seen.each] == ["done", "waiting", "running", "failed"]
    assert seen.each[3].error == "ValueError: no delay"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    with Listener("127.0.0.1", waiting(1, 10_000), now=clock) as listener:
        seen: list[DeployProgress] = []
        for clock.now, messages in ((1.0, 0), (9.0, 8_000), (10.0, 8_100), (13.0, 8_400)):
            report(listener, 0, ("running", messages, 10_000 - messages))
            seen.append(listener.read())
    assert [each.rate for each in seen] == [0.0, 0.0, 100.0, 100.0]
    assert (seen[0].eta_s, seen[-1].eta_s) == (None, 16.0)


def test_of_a_container_that_says_nothing_the_silence_is_known() -> None:
    clock = Clock()
    with Listener("127.0.0.1", waiting(2), now=clock) as listener:
        report(listener, 0, ("running", 1))
        report(listener, 1, ("done", 1))
        listener.read()
        clock.now = 30.0
        assert [each.silent_s for each in listener.read().each] == [30.0, 0.0]


def test_a_description_has_the_sums_and_the_containers_of_interest() -> None:
    clock = Clock()
    with Listener("127.0.0.1", waiting(10), "delays-1", now=clock) as listener:
        for number in range(9):
            report(listener, number, ("done", 100, 0, 2))
        report(listener, 9, ("running", 7, 93))
        listener.read()
        clock.now = 30.0
        said = description_of(listener.read())
    assert said.startswith("after 30.0 s: 907 of 1,000 messages, ")
    assert "93 left, " in said and "9 of 10 containers done, 1 running; container 0 done 100, " in said
    assert said.endswith("9 running 7 (no report for 30 s), and 2 more: 2 done")


def test_a_container_that_is_long_at_one_message_is_named() -> None:
    clock = Clock()
    with Listener("127.0.0.1", waiting(2), "delays-1", now=clock) as listener:
        reporter = ProgressReporter(listener.address, 1, 0)
        reporter.report("running", 7, 93)
        reporter.report_busy("Partition 0 at log.in.0@15, late.py line 6: time.sleep(60)", 14.0)
        listener.read()
        clock.now = 2.0
        seen = listener.read()
        said = "busy 16 s: Partition 0 at log.in.0@15, late.py line 6: time.sleep(60)"
        assert (seen.each[1].messages, seen.each[1].left, seen.each[0].busy) == (7, 93, "")
        assert view_of(seen).rows[1][""] == said
        assert line_of(seen).endswith(
            f"0 of 2 containers done, 1 running, 1 waiting, 2.0 s; container 1 {said}"
        )
        assert f"1 running 7 ({said})" in description_of(seen)
        reporter.report("running", 8, 92)
        assert listener.read().each[1].busy == ""
        reporter.report("done", 100, 0)
        reporter.report_busy("late", 99.0)
        assert listener.read().each[1].stage == "done"


def test_a_cluster_that_starts_no_container_is_hinted_at() -> None:
    clock = Clock()
    long_ago = clock.now - 600  # the start of Spark took ten minutes
    with Listener("127.0.0.1", waiting(2), "delays-1", began=long_ago, now=clock) as listener:
        said = []
        for clock.now in (59.0, 61.0):
            seen = listener.read()
            said.append([any("no container yet" in text for text in view_of(seen).lines), line_of(seen)])
        report(listener, 0, ("running", 0))
        said.append([False, line_of(listener.read())])
    assert [is_late for is_late, _ in said] == [False, True, False]
    assert ["its machines are busy" in line for _, line in said] == [False, True, False]


def test_a_later_attempt_replaces_the_dead_one_and_a_zombie_is_not_heard() -> None:
    with Listener("127.0.0.1", waiting(1)) as listener:
        report(listener, 0, ("running", 50, 50))
        # The first attempt had committed 40 messages.
        report(listener, 0, ("running", 5, 55), attempt=1)
        report(listener, 0, ("running", 60, 40))
        assert (listener.read().messages, listener.read().left, listener.read().retried) == (45, 55, 1)
        report(listener, 0, ("done", 60, 0), attempt=1)
        report(listener, 0, ("running", 19, 41), attempt=1)
        assert (listener.read().messages, listener.read().done) == (100, 1)


def test_what_is_left_is_not_known_before_the_first_position() -> None:
    assert left_until([]) == (None, 0)
    with Listener("127.0.0.1", waiting(1)) as listener:
        report(listener, 0, ("running", 0, *left_until([])), attempt=1)
        assert (listener.read().messages, listener.read().left) == (0, 100)


def test_where_offsets_are_no_numbers_messages_are_counted_alone() -> None:
    with Listener("127.0.0.1", waiting(1, None)) as listener:
        report(listener, 0, ("running", 50))
        seen = listener.read()
    assert (seen.messages, seen.total, seen.left, seen.eta_s) == (50, None, None, None)


def test_only_who_knows_the_secret_is_heard() -> None:
    with Listener("127.0.0.1", waiting(1)) as listener:
        assert listener.address is not None
        host, port, secret = listener.address.host, listener.address.port, listener.address.secret
        report(listener, 0, ("running", 99), address=Address(host, port, b"0" * 16))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for datagram in (b"", b"x" * 1000, secret, secret + b"\xff\x00"):
                stranger.sendto(datagram, (host, port))
        report(listener, 0, ("running", 1))
        assert listener.read().messages == 1


def test_an_error_of_any_length_is_reported() -> None:
    with Listener("127.0.0.1", waiting(1)) as listener:
        report(listener, 0, ("failed", 1, 99, 0, "\N{PILE OF POO}" * 100_000))
        assert listener.read().failed == 1


def test_where_the_network_is_closed_progress_stays_at_nothing() -> None:
    with Listener("no.such.host.invalid", waiting(2)) as listener:
        assert listener.address is None
        report(listener, 0, ("running", 1))
        assert listener.read().messages == 0
    ProgressReporter(Address("not an address", 1, b""), 0, 0).report("running", 1)


def test_an_interrupt_returns_when_no_container_reports_any_more() -> None:
    class Cancelled:
        """A Spark job whose container goes on for a while."""

        def interrupt(self, timeout_s: float) -> None:
            reporting.start()

    def go_on() -> None:
        for messages in range(10):
            reporter.report("running", messages)
            threading.Event().wait(0.05)
        reporter.close()

    reporting = threading.Thread(target=go_on)
    with Listener("127.0.0.1", [ContainerProgress(number=0), ContainerProgress(number=1)]) as listener:
        reporter = ProgressReporter(listener.address, 0, 0)
        reporter.report("running")
        interrupt(cast(SparkJob, Cancelled()), "job-1", lambda: reporting_containers(listener))
        [first, second] = listener.read().each
    assert (first.messages, second.stage) == (9, "waiting")
    reporting.join()
