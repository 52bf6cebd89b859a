"""The lease of a job in Kafka: it outlives whatever its client raises."""

from __future__ import annotations

import logging
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors as kafka_errors

from streambench.config import Config
from streambench.system.kafka import job_lease
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.job_lease import JobLease, holder_of, new_lease_name
from streambench.system.kafka.settings import Settings


class Joined:
    """The coordinator of a client that is a member."""

    heartbeat = SimpleNamespace(session_timeout_expired=lambda: False)

    def stable(self) -> bool:
        return True

    def need_rejoin(self) -> bool:
        return False


class Consumers:
    """Consumers that raise one error each, and then one that stays."""

    _coordinator = Joined()

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.stays = threading.Event()

    def __call__(self, *settings: Any, **options: Any) -> Consumers:
        return self

    def subscribe(self, topics: list[str]) -> None:
        pass

    def poll(self, timeout_ms: int) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.stays.set()

    def group_metadata(self) -> Any:
        return SimpleNamespace(member_id="member")

    def close(self, **options: Any) -> None:
        pass


class Joining(Consumers):
    """Consumers whose join takes long. ``asked``: how often the broker was asked for the members of the
    group, among which it shows this one or not."""

    def __init__(self, *, is_shown: bool) -> None:
        super().__init__()
        self.asked = 0
        self._is_shown = is_shown
        self._coordinator: Any = SimpleNamespace(stable=lambda: self.asked > 2, need_rejoin=lambda: False)
        self._coordinator.heartbeat = Joined.heartbeat
        self._coordinator.request_rejoin = lambda: None

    def describe_groups(self, groups: list[str]) -> dict[str, Any]:
        self.asked += 1
        members = [{"client_id": "name", "member_id": "member"}] if self._is_shown else []
        return {groups[0]: {"members": members}}


@pytest.fixture
def lease_with(monkeypatch: pytest.MonkeyPatch) -> Any:
    def lease(consumers: Consumers) -> JobLease:
        settings: Any = None
        monkeypatch.setattr(job_lease, "new_consumer", consumers)
        monkeypatch.setattr(job_lease, "new_admin", consumers)
        monkeypatch.setattr(job_lease, "_AGAIN_S", 0.001)
        return JobLease(settings, "group", "topic", "name")

    return lease


def reports(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """The first words of the warnings, when there are so many."""
    while len(caplog.records) < count:
        time.sleep(0.002)
    return [each.getMessage().split(",")[0].split(" after")[0] for each in caplog.records]


LOST, BACK = "group: the lease of the job is lost", "group: the lease of the job was lost"


def test_a_lease_is_taken_again_whatever_the_client_raises(
    lease_with: Any, caplog: pytest.LogCaptureFixture
) -> None:
    consumers = Consumers(RuntimeError("one"), kafka_errors.KafkaConnectionError(), AttributeError("two"))
    with caplog.at_level(logging.WARNING):
        lease = lease_with(consumers)
        assert consumers.stays.wait(20)
        assert reports(caplog, 2) == [LOST, BACK]
        lease.release()
    assert "RuntimeError: one" in caplog.text and "AttributeError: two" not in caplog.text
    assert not lease.is_refused


def test_a_broker_that_stays_away_is_reported_once(
    lease_with: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_lease, "_LOST_S", 0)
    with caplog.at_level(logging.WARNING):
        lease = lease_with(Consumers(*[kafka_errors.KafkaConnectionError() for _ in range(5)]))
        assert reports(caplog, 2) == [LOST, BACK]
        lease.release()


@pytest.mark.parametrize(("is_shown", "reported"), [(True, []), (False, [LOST, BACK])])
def test_a_join_that_takes_long_is_no_loss_while_the_broker_shows_it(
    lease_with: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_shown: bool,
    reported: list[str],
) -> None:
    monkeypatch.setattr(job_lease, "_LOST_S", 0)
    joining = Joining(is_shown=is_shown)
    with caplog.at_level(logging.WARNING):
        lease = lease_with(joining)
        while not lease._membership.was_held:
            time.sleep(0.002)
        lease.release()
    assert reports(caplog, len(reported)) == reported


def test_a_lease_that_is_not_allowed_is_known_to_be_refused(lease_with: Any) -> None:
    lease = lease_with(Consumers(kafka_errors.GroupAuthorizationFailedError()))
    lease._thread.join(20)
    assert lease.is_refused
    lease.release()


def test_a_lease_that_was_held_is_tried_again_where_rights_change(lease_with: Any) -> None:
    consumers = Consumers()
    lease = lease_with(consumers)
    assert consumers.stays.wait(20)
    lease._membership.report_held("member")
    consumers.stays.clear()
    consumers._errors.append(kafka_errors.GroupAuthorizationFailedError())
    assert consumers.stays.wait(20)
    assert not lease.is_refused
    lease.release()


def test_the_name_of_a_lease_says_who_holds_it() -> None:
    run, deploy = holder_of(new_lease_name("run", 3)), holder_of(new_lease_name("deploy"))
    assert run is not None and deploy is not None
    assert (run.work, run.container) == ("run", 3)
    assert (deploy.work, deploy.container) == ("deploy", None)
    assert holder_of("another-client") is None


@pytest.mark.parametrize(
    "error",
    [
        kafka_errors.CoordinatorLoadInProgressError,
        kafka_errors.CoordinatorNotAvailableError,
        kafka_errors.NotCoordinatorError,
    ],
)
def test_members_are_asked_for_again_while_a_broker_starts(
    error: type[kafka_errors.KafkaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [{"error": str(error()), "members": []}, {"error": None, "members": [{"client_id": "one"}]}]

    class Client:
        _manager = None

        def describe_groups(self, groups: list[str]) -> dict[str, Any]:
            return {groups[0]: answers.pop(0)}

    config = Config({"systems.k.samza.factory": "kafka", "systems.k.bootstrap.servers": "nowhere:1"})
    admin: Any = KafkaAdmin(Settings.from_config("k", config))
    admin._client = Client()
    monkeypatch.setattr(admin, "_admin", lambda: admin._client)
    monkeypatch.setattr(admin, "_forget", lambda: None)
    assert admin.members("group") == [{"client_id": "one"}]
