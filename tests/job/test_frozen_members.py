"""A member of a group that freezes is replaced, the coordinator included, and comes back when it goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.job.membership import Membership
from tests.conftest import SOAK
from tests.frozen import freeze
from tests.job.test_group import FREEZING, Group, group  # noqa: F401 (a fixture)


@pytest.fixture
def guarantee() -> str:
    return "exactly-once"


@pytest.fixture
def settings() -> dict[str, str]:
    return FREEZING


def freezing(real: Callable[..., Any], *, before: bool) -> Callable[..., Any]:
    """A function that stops this process at its first call, before or behind what it does."""
    calls = 0

    def step(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if before and calls == 1:
            freeze()
        result = real(*arguments, **named)
        if not before and calls == 1:
            freeze()
        return result

    return step


@pytest.mark.parametrize(
    ("owner", "name", "before"),
    [
        (Membership, "check_coordinator", False),
        (JournalCheckpointManager, "open_generation", True),
        *(
            [(Membership, "_begin", True), (JournalCheckpointManager, "open_generation", False)]
            if SOAK
            else []
        ),
    ],
)
def test_a_coordinator_that_freezes_is_replaced(
    group: Group,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    before: bool,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, freezing(getattr(owner, name), before=before))
        first = group.start()
    os.waitpid(first, os.WUNTRACED)
    second = group.start()
    group.send(20)
    group.await_outputs()
    os.kill(first, signal.SIGCONT)
    assert group.shares() == {first: 2, second: 2}
    group.send(20)
    group.await_outputs()
    assert sorted(group.project.outputs()) == list(range(1, 41))
