"""A snapshot drawn as text."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rich.console import Console

from streambench.chooser import Candidate, Explanation
from streambench.container.observe.snapshot import Choice, ContainerSnapshot, PartitionSnapshot
from streambench.container.restore import RestoreProgress
from streambench.counts import counted
from streambench.debug.view.rates import Rates
from streambench.debug.view.rows import rows
from streambench.debug.view.view import headline, snapshot_table
from streambench.model import SystemStreamPartition


def partition(
    number: int, *, stream: str = "clicks", processed: int = 0, lag: int | None = 5, status: str = "waiting"
) -> PartitionSnapshot:
    ssp = SystemStreamPartition("log", stream, number)
    return PartitionSnapshot(
        ssp, (f"Partition {number}",), "0", str(processed), "9", "10", lag, None, 1, processed, status
    )


def snapshot(
    *partitions: PartitionSnapshot, time_ms: int = 0, container: int = 0, choices: tuple[Choice, ...] = ()
) -> ContainerSnapshot:
    processed = sum(each.processed for each in partitions)
    return ContainerSnapshot(
        "up-1", container, "running", "", time_ms, processed, partitions, choices, {}, {}
    )


def text_of(renderable: object, width: int = 160) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_a_row_shows_offsets_lag_and_status_of_its_partition() -> None:
    shown = text_of(snapshot_table(snapshot(partition(3, processed=4, lag=6, status="held by the gate"))))
    line = next(line for line in shown.splitlines() if line.startswith("log.clicks"))
    assert line.split() == ["log.clicks", "3", "0", "4", "10", "6", "-", "-", "held", "by", "the", "gate"]


def test_more_partitions_than_fit_fold_to_one_row_per_stream_with_sums() -> None:
    many = snapshot(
        *(partition(n, lag=2) for n in range(5)),
        *(partition(n, stream="views", lag=1, status="empty" if n else "") for n in range(3)),
    )
    folded = rows(many, max_rows=7)
    shown = [(str(row.stream), row.folded, row.lag, row.status) for row in folded]
    assert shown == [("log.clicks", 5, 10, "5 waiting"), ("log.views", 3, 3, "2 empty")]
    assert len(rows(many, max_rows=8)) == 8


def test_an_unknown_lag_is_not_summed_to_a_number() -> None:
    assert rows(snapshot(partition(0), partition(1, lag=None)), max_rows=1)[0].lag is None


def test_rates_are_messages_per_second_between_snapshots() -> None:
    rates = Rates(over_ms=2000)
    first = partition(0)
    rates.add(snapshot(first, time_ms=0))
    assert rates.of(first.ssp) is None
    rates.add(snapshot(partition(0, processed=50), time_ms=500))
    assert rates.of(first.ssp) == 100
    assert rates.total() == 100


def test_rates_forget_what_is_older_than_their_span() -> None:
    rates = Rates(over_ms=1000)
    for time_ms, processed in ((0, 0), (1000, 1000), (2000, 1010), (3000, 1020)):
        rates.add(snapshot(partition(0, processed=processed), time_ms=time_ms))
    assert rates.total() == 10


def test_time_that_stands_still_gives_no_rate() -> None:
    rates = Rates()
    rates.add(snapshot(partition(0), time_ms=7))
    rates.add(snapshot(partition(0, processed=5), time_ms=7))
    assert rates.total() is None


def test_a_container_that_begins_anew_has_no_rate_until_it_is_known_again() -> None:
    rates = Rates()
    ssp = partition(0).ssp
    for time_ms, processed in ((0, 0), (1000, 1000)):
        rates.add(snapshot(partition(0, processed=processed), time_ms=time_ms))
    for begins_anew in (
        snapshot(partition(0, processed=10), time_ms=2000),
        snapshot(partition(1, processed=10), time_ms=3000),
    ):
        rates.add(begins_anew)
        assert rates.total() is None
    rates.add(snapshot(partition(1, processed=40), time_ms=4000))
    assert (rates.total(), rates.of(ssp)) == (30, 0)


def test_a_container_that_is_not_there_any_more_has_no_rate() -> None:
    rates = Rates()
    for time_ms, processed, container in ((0, 0, 1), (1000, 1000, 1), (2000, 5, 0), (3000, 10, 0)):
        rates.add(snapshot(partition(0, processed=processed), time_ms=time_ms, container=container))
    assert rates.total() == 5


def test_rates_of_several_containers_add_up() -> None:
    rates = Rates()
    for time_ms, processed in ((0, 0), (1000, 30)):
        rates.add(
            [snapshot(partition(n, processed=processed), time_ms=time_ms, container=n) for n in range(2)]
        )
    assert rates.total() == 60
    assert rates.of(SystemStreamPartition("log", "clicks", 1), 1) == 30


def test_several_containers_are_one_table_that_names_the_container() -> None:
    both = [snapshot(partition(n), container=n) for n in (1, 0)]
    shown = text_of(snapshot_table(both))
    assert "2 containers" in shown
    assert [line.split()[1:3] for line in shown.splitlines() if line.startswith("log.")] == [
        ["0", "0"],
        ["1", "1"],
    ]


def test_what_a_message_holds_is_never_taken_for_markup() -> None:
    chosen = Choice(
        1, SystemStreamPartition("log", "clicks", 0), "0", "[red]key[/red]", Explanation("round robin")
    )
    assert "key '[red]key[/red]' (round robin)" in text_of(
        snapshot_table(snapshot(partition(0), choices=(chosen,)))
    )


def test_the_last_choice_shows_the_next_one_what_is_held_and_a_closed_gate() -> None:
    first, second, third = (SystemStreamPartition("log", "clicks", number) for number in range(3))
    why = Explanation(
        "bootstrap",
        Candidate(first, "0"),
        (Candidate(second, "4"), Candidate(third)),
        {third: "gated"},
        gate="bootstrap lags",
    )
    chosen = Choice(1, first, "0", None, why)
    shown = text_of(
        snapshot_table(replace(snapshot(partition(0), choices=(chosen,)), gate="bootstrap lags"))
    ).splitlines()
    assert [line.rstrip() for line in shown[-4:]] == [
        "last chosen: log.clicks.0@0 (bootstrap)",
        "  3 candidates, next log.clicks.1@4",
        "  held back: log.clicks.2 (gated)",
        "gate closed, bootstrap lags",
    ]


@pytest.mark.parametrize(
    ("state", "said"), [("paused", "stopped before"), ("failed", "failed at"), ("running", "last chosen")]
)
def test_a_message_that_was_chosen_and_not_processed_is_named_so(state: str, said: str) -> None:
    chosen = Choice(4, SystemStreamPartition("log", "clicks", 0), "3", None)
    shown = replace(snapshot(partition(0), choices=(chosen,)), processed=3, state=state)
    assert f"{said}: log.clicks.0@3" in text_of(snapshot_table(shown))


def test_a_closed_gate_is_shown_before_anything_was_chosen() -> None:
    shown = text_of(
        snapshot_table(replace(snapshot(partition(0)), gate="bootstrap: log.rules still has to catch up"))
    )
    assert shown.splitlines()[-1].rstrip() == "gate closed, bootstrap: log.rules still has to catch up"


def test_a_partition_says_when_its_turn_comes() -> None:
    shown = text_of(snapshot_table(snapshot(replace(partition(3), turn=2))))
    assert "next in 2" in next(line for line in shown.splitlines() if line.startswith("log.clicks"))
    many = snapshot(*(replace(partition(n), turn=n + 1) for n in range(5)))
    assert [row.status for row in rows(many, max_rows=3)] == ["5 waiting"]


def test_things_are_counted_in_words() -> None:
    assert [counted(number, "message") for number in (0, 1, 2, 1000)] == [
        "0 messages",
        "1 message",
        "2 messages",
        "1,000 messages",
    ]


def test_a_restore_of_state_is_told_in_the_headline() -> None:
    restoring = [
        replace(snapshot(container=at), state="new", restoring=RestoreProgress(1_500, 4_000))
        for at in range(2)
    ]
    assert (
        "new  2 containers  0 processed  restoring state: 3,000 of 8,000 entries read"
        in headline(restoring).plain
    )
    unknown = replace(snapshot(), restoring=RestoreProgress(1_500, None))
    assert "restoring state: 1,500 entries read" in headline(unknown).plain


def test_the_headline_names_the_container_whose_state_differs() -> None:
    running = snapshot(partition(0), container=0)
    dead = replace(
        snapshot(partition(1), container=1),
        state="restarting",
        reason="container 1: was killed; it is started again",
    )
    late = replace(snapshot(container=2), state="new")
    restoring = replace(late, restoring=RestoreProgress(1, 2))
    assert "running  2 containers; container 1 restarting  " in headline([running, dead]).plain
    assert "was killed" not in headline([running, dead]).plain
    assert (
        "running  3 containers; container 1 restarting; container 2 starting  "
        in headline([running, dead, late]).plain
    )
    assert "running  2 containers; container 2 restoring  " in headline([running, restoring]).plain
    assert "running  2 containers  " in headline([running, running]).plain


def test_what_is_left_is_not_known_of_a_container_that_reads_nothing() -> None:
    running = snapshot(partition(0), container=0)
    caught_up = snapshot(replace(partition(0), lag=0), container=0)
    assert running.lag
    for away in (
        replace(snapshot(partition(1), container=1), state="restarting"),
        replace(snapshot(container=1), state="new"),
        replace(snapshot(container=1), state="new", restoring=RestoreProgress(1, 2)),
        replace(snapshot(container=1), state="stopped", reason="stopped before the init of Partition 1"),
        replace(snapshot(container=1), state="failed", reason="Partition 1 failed in init()"),
    ):
        assert away.lag is None
        assert f"lag at least {running.lag:,}" in headline([running, away]).plain
        assert "lag ?" in headline([caught_up, away]).plain
    assert "lag 0" in headline([caught_up, caught_up]).plain


def flights(container: int = 0, position: int = 123456) -> ContainerSnapshot:
    """Twelve partitions far along, as the demo has them, and the last choice with its reasons."""
    ssps = [SystemStreamPartition("log", "flights", number) for number in range(12)]
    partitions = [
        PartitionSnapshot(
            ssp,
            (),
            "0",
            str(position),
            "",
            "234567",
            111111,
            "100000",
            9,
            position,
            "waiting",
            turn=number or None,
        )
        for number, ssp in enumerate(ssps)
    ]
    others = tuple(Candidate(ssp, str(position)) for ssp in ssps[1:])
    why = Explanation("round robin: it has waited longest", Candidate(ssps[0], str(position)), others)
    return snapshot(
        *partitions, container=container, choices=(Choice(1, ssps[0], str(position), "ABQ", why),)
    )


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("containers", [1, 4])
def test_on_a_terminal_nothing_is_broken_and_the_reason_is_whole(width: int, containers: int) -> None:
    every = [flights(number) for number in range(containers)]
    lines = text_of(snapshot_table(every, max_rows=23, height=23), width).rstrip("\n").splitlines()
    assert len(lines) <= 23
    assert all(len(line) <= width for line in lines)
    table = [line for line in lines if line.startswith("log.flights ")]
    assert len(table) == (12 if containers == 1 else 1)
    assert not any("…" in line for line in lines)
    assert "round robin: it has waited longest" in "\n".join(lines)


def test_a_narrow_console_leaves_out_columns_and_never_digits() -> None:
    wide, narrow = (text_of(snapshot_table(flights()), width).splitlines()[1].split() for width in (120, 60))
    assert wide == [
        "stream",
        "partition",
        "oldest",
        "position",
        "upcoming",
        "lag",
        "rate",
        "checkpoint",
        "status",
    ]
    assert narrow == ["stream", "partition", "position", "lag", "rate", "status"]
    row = next(
        line for line in text_of(snapshot_table(flights()), 40).splitlines() if line.startswith("log.")
    )
    assert "111,111" in row and row.split()[1] == "0"
