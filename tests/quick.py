"""The quick selection: tests that need no server, no browser and no JVM.

``pytest --quick`` (``make check``) runs them. A test is left out by the fixtures that it asks for, by its
parameters (one of which may be the name of such a fixture), or by its file. A selected test that starts a
server all the same fails, so that this list stays true. Tests with random examples try fewer of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.surroundings import QUICK

CHECKOUT = Path(__file__).resolve().parent.parent

#: Fixtures that start a server, a browser or a JVM, or ask for an installed one.
SERVERS = frozenset({"browser", "kafka", "kafka_doors", "lab", "rabbitmq", "spark", "spark_installed"})

#: Folders and files whose tests start servers by themselves, or use the whole product and take long.
ELSEWHERE = (
    "tests/browser/",
    "tests/faults/",
    "tests/integration/",
    "tests/magics/commands/test_deploy.py",
    "tests/spark/",
    "tests/system/amqp/test_kills.py",
    "tests/testing/brokers/test_kafka.py",
    "tests/system/kafka/test_secured.py",
    "tests/system/landing/test_faults.py",
    "tests/system/webhook/test_kills.py",
    "tests/testing/brokers/test_rabbitmq.py",
)

#: Files whose tests start many processes, kill them, or flood a system: too long for the quick selection.
LONG = (
    "tests/checkpoint/test_crashes.py",
    "tests/checkpoint/test_concurrency.py",
    "tests/checkpoint/test_interleavings.py",
    "tests/cli/test_commands.py",
    "tests/cli/test_metrics.py",
    "tests/cli/test_network.py",
    "tests/cli/test_secrets.py",
    "tests/cli/test_watch.py",
    "tests/debug/replay/test_generated_test.py",
    "tests/job/test_forks.py",
    "tests/job/test_frozen_members.py",
    "tests/job/test_group.py",
    "tests/job/test_run.py",
    "tests/job/test_signals.py",
    "tests/job/test_watchdog.py",
    "tests/magics/test_breakpoint.py",
    "tests/magics/jobs/test_export.py",
    "tests/magics/test_no_leaks.py",
    "tests/store/test_memory.py",
    "tests/system/net/test_chaos.py",
    "tests/system/pull/test_example.py",
    "tests/system/pull/test_pull_jobs.py",
    "tests/system/test_connection_floods.py",
    "tests/system/webhook/test_floods.py",
    "tests/system/webhook/test_jobs.py",
    "tests/test_config_fuzz_of_a_sound_job.py",
    "tests/test_descriptors.py",
    "tests/test_reaper.py",
)

#: Whether this run is the quick one.
_quick = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that need no server, browser or JVM")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Try fewer examples under ``--quick``, before the test files read how many there are."""
    if session.config.getoption("quick"):
        os.environ[QUICK] = "1"
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip, under ``--quick``, what is left out by folder or file: its imports alone take seconds."""
    if not config.getoption("quick") or CHECKOUT not in collection_path.parents:
        return None
    name = collection_path.relative_to(CHECKOUT).as_posix() + ("/" if collection_path.is_dir() else "")
    return name.startswith(ELSEWHERE + LONG) or None


def select_quick(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect, under ``--quick``, every test that the selection leaves out."""
    global _quick
    _quick = bool(config.getoption("quick"))
    if not _quick:
        return
    left_out = [item for item in items if not is_quick(item)]
    items[:] = [item for item in items if is_quick(item)]
    config.hook.pytest_deselected(items=left_out)


def is_quick(item: pytest.Item) -> bool:
    """Return whether the quick selection has this test."""
    return SERVERS.isdisjoint(asked_for(item))


def asked_for(item: pytest.Item) -> set[str]:
    """The fixtures that a test asks for, and the parameters that may name one."""
    parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
    kinds = {each.partition("-")[0] for each in parameters if isinstance(each, str)}
    return kinds | set(getattr(item, "fixturenames", ()))


def forbid_when_quick(server: str) -> None:
    """Fail a test of the quick selection that needs a server after all."""
    if _quick:
        pytest.fail(f"this test needs {server}: tests/quick.py must leave it out of --quick", pytrace=False)
