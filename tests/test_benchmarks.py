"""The command that prints the figures of the benchmarks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as command
from benchmarks.report import Figure


def test_ctrl_c_leaves_the_figures_that_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def measure(*_: object) -> Iterator[Figure]:
        yield Figure("copies per second", 12.5, "x", aim=10, note="[best] of 5")
        said.append(capsys.readouterr().out)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_module", lambda part: SimpleNamespace(measure=measure))
    with pytest.raises(KeyboardInterrupt):
        command.main(["log"], messages=12_000, rounds=1, json=tmp_path / "figures.json")
    (printed,) = said
    assert printed.startswith("streambench: Python ")
    assert printed.splitlines()[-1].split() == ["copies", "per", "second", "12.50", "x", "≥", "10", "✓",
                                                "[best]", "of", "5"]  # fmt: skip
    (figure,) = json.loads((tmp_path / "figures.json").read_text())["figures"]
    assert (figure["name"], figure["value"], figure["reached"]) == ("copies per second", 12.5, True)
