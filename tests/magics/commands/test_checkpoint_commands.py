"""``%stream checkpoints``."""

from __future__ import annotations

from tests.magics.conftest import Shell


def test_checkpoints_show_how_much_a_crash_would_repeat(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 2")
    ip.run("%stream commit")
    ip.run("%stream step")
    assert ip.run("%stream checkpoints").splitlines() == [
        "task         partition     checkpoint  position  to do again",
        "Partition 0  mem.clicks.0           0         2            1",
        "Partition 1  mem.clicks.1           0         1            0",
    ]
    ip.run("%stream stop")
    history = ip.run("%stream checkpoints --history").splitlines()
    assert [line.split()[-1] for line in history] == ["checkpoint", "0", "1", "0"]


def test_checkpoints_are_sorted_by_stream_and_partition_not_by_text(ip: Shell) -> None:
    ip.run("%%streamconfig each\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest\n"
           "job.systemstreampartition.grouper.factory=ssp\n")  # fmt: skip
    ip.run("%stream streams create mem.z --partitions 2")
    ip.run("%stream streams create mem.many --partitions 11")
    ip.run("%stream send mem.z 1 --partition 0")
    ip.run("%stream send mem.many 1 --partition 10")
    ip.run("%stream send mem.many 1 --partition 9")
    ip.run("%stream create Count --config each --inputs mem.z mem.many")
    expected = [*(f"mem.many.{number}" for number in range(11)), "mem.z.0", "mem.z.1"]
    ip.run("%stream step 3")
    ip.run("%stream checkpoints")
    assert [record["task"] for record in ip.value] == expected
    ip.run("%stream stop")
    ip.run("%stream checkpoints --history")
    assert list(dict.fromkeys(record["task"] for record in ip.value)) == [
        "mem.many.9",
        "mem.many.10",
        "mem.z.0",
    ]


def test_of_many_partitions_the_first_checkpoints_are_shown(ip: Shell) -> None:
    ip.run("%stream streams create mem.wide --partitions 101")
    ip.run("%stream create Count --config inputs --inputs mem.wide")
    ip.run("%stream show --static")
    shown = ip.run("%stream checkpoints").splitlines()
    assert len(shown) == 1 + 100 + 1 and len(ip.value) == 101
    assert shown[-1].startswith("the first 100 of 101; the value has all of them")
    assert ip.value._repr_html_().count("<tr>") == 1 + 100
