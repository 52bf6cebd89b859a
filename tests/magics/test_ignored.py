"""Failures that are ignored, as a notebook tells of them."""

from __future__ import annotations

from tests.magics.conftest import CONFIG, Shell


def test_a_notebook_is_told_where_ignored_failures_were(ip: Shell) -> None:
    ip.run("%%streamtask Picky\ndef process(envelope, collector, coordinator):\n    int(envelope.message)\n")
    ip.run(CONFIG.replace("inputs\n", "picky\n", 1) + "task.ignored.exceptions=ValueError\n")
    ip.run("%stream create Picky --config picky")
    ip.run("%stream run --until caught-up")
    told = ip.run("%stream wait")
    assert "4 failures ignored (ValueError)" in told
    assert (
        "\n  ignored 4 ValueError, the first: Partition 0 failed at mem.clicks.0@0" in told
        and "(line 3)" in told
    )
    ip.run("%stream show")
    assert "ignored 4 ValueError" in ip.displayed[-1]["text/plain"]
    assert "ignored 4 ValueError" in ip.run("%stream stop")
