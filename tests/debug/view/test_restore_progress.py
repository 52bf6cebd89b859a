"""A start that takes long says so."""

from __future__ import annotations

import pytest

import streambench.debug.view.restore_progress as restoring
from streambench.container.container import Container
from streambench.container.restore import RestoreProgress
from streambench.debug.view.restore_progress import show_restore_progress
from tests.container.jobs import ignore


def test_a_long_restore_is_shown_on_one_line_and_a_short_one_not_at_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    container = Container.from_config({"task.inputs": "mem.in"}, ignore)
    now = 0.0
    monkeypatch.setattr(restoring.time, "monotonic", lambda: now)
    with show_restore_progress(container):
        assert container.on_start is not None
        for at, read in ((1.9, 1), (2.0, 20_000), (2.1, 21_000), (2.3, 100)):
            now, container.status.restoring = at, RestoreProgress(read, 50_000)
            container.on_start()
    first, second = (
        "restoring state: 20,000 of 50,000 entries read",
        "restoring state: 100 of 50,000 entries read",
    )
    assert capsys.readouterr().out == f"\r{first}\r{second:{len(first)}}\n"
    assert container.on_start is None
