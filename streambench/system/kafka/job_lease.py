"""The lease of a job whose checkpoints are in Kafka: a consumer group whose members work for the job.

The broker ends the membership of a process that died, or that cannot be reached, after ``SESSION_MS``. A
lease only says which processes are at work; the order of the checkpoint topic decides which may commit.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
import uuid
from contextlib import closing
from functools import partial
from typing import Any

from kafka import errors as kafka_errors
from kafka.admin import MemberToRemove
from kafka.coordinator.assignors.abstract import ConsumerProtocolAssignment
from kafka.coordinator.assignors.range import RangePartitionAssignor

from streambench.checkpoint.api import LeaseHolder, Work
from streambench.errors import StreambenchError
from streambench.system.kafka.clients import new_admin, new_consumer
from streambench.system.kafka.settings import Settings

log = logging.getLogger(__name__)

SESSION_MS = 10_000
_HEARTBEAT_MS = 2_000
# A look at the client costs some milliseconds of CPU.
_POLL_S, _JOINING_MS = 1.0, 250
_AGAIN_S = 1.0
# A join waits for members that were killed, up to their timeout.
_LOST_S = SESSION_MS / 1000 + 2
_LEFT_WITHIN_S = 0.5
_REMOVED_WITHIN_S = 1.5
_NAME = re.compile(
    r"streambench_(?P<work>deploy|run)(-(?P<container>\d+))?"
    r"_(?P<process>\d+)_(?P<since>\d+)_[0-9a-f]+_(?P<host>.*)"
)


class _NoPartitions(RangePartitionAssignor):  # type: ignore[misc]
    """Gives no partition to any member: the group is for its membership alone."""

    name = "streambench-lease"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> dict[str, Any]:
        return {each.member_id: ConsumerProtocolAssignment(cls.version, [], b"") for each in members}


class JobLease:
    """The membership of this process, from now on until ``release`` or its end. ``name``: of
    ``new_lease_name``."""

    def __init__(self, settings: Settings, group: str, topic: str, name: str) -> None:
        self.name = name
        self.is_refused = False
        """The user of the job may not be a member."""
        self._settings, self._group, self._topic = settings, group, topic
        self._make = partial(
            new_consumer,
            settings,
            group_id=group,
            client_id=self.name,
            partition_assignment_strategy=(_NoPartitions(),),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            max_poll_interval_ms=10 * SESSION_MS,
        )
        self._membership = _Membership(group)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="kafka-lease", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Leave the group. Where the broker does not answer, its timeout ends the membership."""
        self._ended.set()
        self._thread.join(_LEFT_WITHIN_S)
        if self._thread.is_alive():
            # Brokers let the first member of a group wait for others, and its connection with it.
            removal = threading.Thread(target=self._remove, name="kafka-lease-end", daemon=True)
            removal.start()
            removal.join(_REMOVED_WITHIN_S)

    def _remove(self) -> None:
        try:
            with closing(new_admin(self._settings)) as admin:
                ours = self._shown(admin)
                admin.remove_group_members(self._group, [MemberToRemove(member_id=each) for each in ours])
        except (kafka_errors.KafkaError, StreambenchError) as error:
            log.debug("the lease of the job ends by its timeout: %s", error)

    def _shown(self, admin: Any) -> list[str]:
        """The memberships of this lease that the broker shows to others."""
        members = admin.describe_groups([self._group])[self._group]["members"]
        return [each["member_id"] for each in members if each["client_id"] == self.name]

    def _is_shown(self) -> bool:
        with closing(new_admin(self._settings)) as admin:
            return bool(self._shown(admin))

    def _keep(self) -> None:
        while not self._ended.is_set():
            try:
                self._stay(self._make())
            except Exception as error:  # a job must not be without its lease for good
                if self._ended.is_set():
                    return
                if isinstance(error, kafka_errors.AuthorizationError) and not self._membership.was_held:
                    log.debug("no lease of the job: %s", error)
                    self.is_refused = True
                    return
                is_of_kafka = isinstance(error, kafka_errors.KafkaError | StreambenchError)
                self._membership.report_loss(error, is_unexpected=not is_of_kafka)
                self._ended.wait(_AGAIN_S)

    def _stay(self, consumer: Any) -> None:
        """Be a member until the end; raise ``_LostError`` where the client stays without membership, and the
        broker shows none."""
        coordinator = consumer._coordinator
        lost_at = time.monotonic() + _LOST_S
        try:
            consumer.subscribe([self._topic])
            while not self._ended.is_set():
                # A poll that does not wait begins to join, and the client drops the answer.
                consumer.poll(0 if _is_held(coordinator) else _JOINING_MS)
                if _is_held(coordinator):
                    lost_at = time.monotonic() + _LOST_S
                    self._membership.report_held(consumer.group_metadata().member_id)
                    self._ended.wait(_POLL_S)
                elif time.monotonic() >= lost_at:
                    # A join may wait for several members that were killed, one after the other. Until its end
                    # others see this one.
                    if not self._is_shown():
                        raise _LostError("the client has been without membership for too long")
                    lost_at = time.monotonic() + _AGAIN_S
                elif not coordinator.stable() and not coordinator.need_rejoin():
                    # It joined because its topic has changed, and lost the answer: it sends no heartbeat.
                    coordinator.request_rejoin()
        finally:
            consumer.close(autocommit=False, timeout_ms=1000 * _REMOVED_WITHIN_S)


class _LostError(StreambenchError):
    """The client is no member, and does not become one: another one takes its place."""


class _Membership:
    """The membership as last known. Logs a loss once, and its end."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._held_at, self._member = time.monotonic(), ""
        self._is_reported = False

    @property
    def was_held(self) -> bool:
        return bool(self._member)

    def report_held(self, member: str) -> None:
        """Note that the broker has confirmed the membership. Another ``member`` id than before: the broker
        had ended it in between."""
        now = time.monotonic()
        if self._is_reported or self._member not in ("", member):
            text = "%s: the lease of the job was lost, and is there again after %.0f s; another start of the "
            text += "job in between has not seen this process"
            log.warning(text, self._group, now - self._held_at)
        self._held_at, self._member, self._is_reported = now, member, False

    def report_loss(self, why: Exception, *, is_unexpected: bool) -> None:
        """Log a loss that has lasted for ``_LOST_S``, or has a cause that is not Kafka's."""
        log.debug("%s: the lease of the job is tried again: %s", self._group, why)
        is_long = time.monotonic() - self._held_at >= _LOST_S
        if (is_long or is_unexpected) and not self._is_reported:
            self._is_reported = True
            text = "%s: the lease of the job is lost, and tried again; until it is back, other starts of the "
            text += "job do not see this process, and its containers under Spark Connect may stop: %s: %s"
            log.warning(text, self._group, type(why).__name__, why)


def _is_held(coordinator: Any) -> bool:
    """True where the client has joined, and the broker answers its heartbeats."""
    is_joined = coordinator.stable() and not coordinator.need_rejoin()
    return is_joined and not coordinator.heartbeat.session_timeout_expired()


def new_lease_name(work: Work, container: int | None = None) -> str:
    """A unique name for a lease of this process, from which ``holder_of`` reads the holder."""
    host = re.sub(r"[^a-zA-Z0-9.-]", "-", socket.gethostname())
    what = work if container is None else f"{work}-{container}"
    return f"streambench_{what}_{os.getpid()}_{time.time_ns() // 10**6}_{uuid.uuid4().hex[:8]}_{host}"


def holder_of(client_id: str) -> LeaseHolder | None:
    """The holder of a lease, by the name with which it is a member; None for another kind of member."""
    found = _NAME.fullmatch(client_id)
    if found is None:
        return None
    work: Work = "deploy" if found["work"] == "deploy" else "run"
    container = None if found["container"] is None else int(found["container"])
    return LeaseHolder(client_id, work, int(found["process"]), found["host"], int(found["since"]), container)
