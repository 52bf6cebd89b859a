"""The clients of kafka-python, and what their errors mean in the words of streambench."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

from streambench.errors import MessageTooLargeError, StreambenchError, StreamSystemError, UnknownStreamError
from streambench.model import SystemStream
from streambench.system.kafka import stall_detector
from streambench.system.kafka.settings import Settings

log = logging.getLogger(__name__)

# kafka-python reports every attempt to connect; our own errors and warnings name the outcome.
_theirs = logging.getLogger("kafka")
if _theirs.level == logging.NOTSET:
    _theirs.setLevel(logging.CRITICAL)

_AGAIN_S = 0.1
_SLOW_AFTER_S = 2.0
_LOST_MS = 20
_SLOW_AGAIN_S = 10.0

_CONNECT_MS = 10_000


class _LastFailure(logging.Filter):
    """Why the last attempt to connect failed: kafka-python only logs it, and then raises that it took too
    long."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 0.0
        self.why: object = ""

    def filter(self, record: logging.LogRecord) -> bool:
        why = next((each for each in record.args or () if isinstance(each, Exception)), None)
        if why is not None and not isinstance(why, kafka_errors.KafkaTimeoutError):
            self.at, self.why = time.monotonic(), why
        return record.levelno >= _theirs.getEffectiveLevel()


_last_failure = _LastFailure()
_connecting = logging.getLogger("kafka.net.manager")
_connecting.setLevel(logging.WARNING)
_connecting.addFilter(_last_failure)

# A refusal is reported with all of the request and the answer; this is what the broker says in it.
_SAID = re.compile(r"error_message=(['\"])(.+?)\1")


def new_consumer(settings: Settings, **changes: Any) -> Any:
    """A consumer without a group. Raises StreamSystemError where no broker answers."""
    ours = {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "allow_auto_create_topics": False,
    }
    return _made(settings, KafkaConsumer, {**settings.consumer, **ours, **changes})


def new_producer(settings: Settings, **changes: Any) -> Any:
    """An idempotent producer. Raises StreamSystemError where no broker answers."""
    ours = {"enable_idempotence": True, "acks": "all", "allow_auto_create_topics": False}
    return _made(settings, KafkaProducer, {**settings.producer, **ours, **changes})


def new_admin(settings: Settings) -> Any:
    """An admin client. Raises StreamSystemError where no broker answers."""
    return _made(settings, KafkaAdminClient, settings.admin)


class LookUps:
    """Asks where partitions begin and end, over connections of its own: on those of a consumer an answer
    waits behind its fetches."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._consumer: Any = None

    def oldest(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._asked("beginning_offsets", partitions, timeout_ms)

    def upcoming(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of each partition that cannot be read yet: behind the last message, or where an open
        transaction begins."""
        return self._asked("end_offsets", partitions, timeout_ms)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=0)

    def _asked(
        self, method: str, partitions: Iterable[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if not wanted:
            return {}
        patience_ms = self._settings.patience_ms if timeout_ms is None else timeout_ms
        end, stalled = time.monotonic() + patience_ms / 1000, False
        while True:
            try:
                return self._ask_once(method, wanted, end, is_patient=timeout_ms is None)
            except StreamSystemError as error:
                # A client that has not been answered by now may never be; but one that finds no broker at
                # first is not to wait.
                stalled = stalled or self._consumer is not None
                if (
                    not stalled
                    or not isinstance(error.__cause__, kafka_errors.KafkaTimeoutError)
                    or time.monotonic() > end - _AGAIN_S
                ):
                    raise
                self.close()
                time.sleep(_AGAIN_S)
            except KeyError as error:
                # A partition that is newer than what the client knows of its topic: it is simply left out.
                if time.monotonic() > end:
                    raise UnknownStreamError(
                        f"{self._settings.system}: there is no partition {error}"
                    ) from None
                self.close()
                time.sleep(0.05)

    def _ask_once(
        self, method: str, wanted: list[TopicPartition], end: float, *, is_patient: bool
    ) -> dict[TopicPartition, int]:
        if self._consumer is None:
            self._consumer = new_consumer(self._settings)
            _ask_for_leaders(self._consumer._fetcher)
        doing = "asking for offsets"
        slow = slow_logged(self._settings, doing) if is_patient else nullcontext()
        with translated(self._settings, doing), slow:
            left_s = max(0.001, min(end - time.monotonic(), stall_detector.STALLED_S))
            ask = getattr(self._consumer, method)
            found: dict[TopicPartition, int] = ask(wanted, timeout_ms=int(left_s * 1000))
        return found


def _ask_for_leaders(fetcher: Any) -> None:
    """Have a look-up ask for the leader when a broker says that it does not lead.

    kafka-python 3.0 asks the same broker again, some thousand times a second, until its time is over."""
    send = fetcher._send_list_offsets_requests

    async def sent(timestamps: Any) -> Any:
        found, refused = await send(timestamps)
        if refused:
            raise kafka_errors.StaleMetadata
        return found, refused

    fetcher._send_list_offsets_requests = sent


@contextmanager
def slow_logged(settings: Settings, doing: str) -> Iterator[None]:
    """Log that something takes long, and that it still does."""
    done, began = threading.Event(), time.monotonic()

    def warn() -> None:
        rest = _SLOW_AFTER_S
        while not done.wait(rest):
            seconds = time.monotonic() - began
            log.warning("%s: %s has taken %.0f seconds so far", settings.system, doing, seconds)
            rest = _SLOW_AGAIN_S

    threading.Thread(target=warn, name="kafka-slow", daemon=True).start()
    try:
        yield
    finally:
        done.set()


def abandon(producer: Any) -> None:
    """Close a producer without waiting for what it has not sent yet, which a plain close does for however
    long that takes."""
    producer._sender.force_close()
    with suppress(kafka_errors.KafkaError):
        producer.close(timeout=0)
    producer._closed = True  # else it is closed again, with a second's wait, when it is collected


def replacement(producer: Any, settings: Settings, until: float, **changes: Any) -> Any:
    """Another producer for one that is given up; ``changes`` as that had them.

    Raises as ``patiently`` does."""
    abandon(producer)
    return patiently(lambda: new_producer(settings, **changes), until)


def patiently(make: Callable[[], Any], until: float) -> Any:
    """The client that ``make`` makes.

    Raises StreamSystemError, where no broker answers only when it is later than
    ``until`` (of time.monotonic)."""
    while True:
        try:
            return make()
        except StreamSystemError as error:
            if not isinstance(error.__cause__, kafka_errors.KafkaTimeoutError) or time.monotonic() > until:
                raise
        time.sleep(_AGAIN_S)


@contextmanager
def translated(settings: Settings, doing: str) -> Iterator[None]:
    """Raise what kafka-python raises as an error of ours. ``doing``: for the sentence."""
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise as_ours(settings, doing, error) from error


def as_ours(settings: Settings, doing: str, error: BaseException) -> StreambenchError:
    """An error of kafka-python in our words."""
    name = type(error).__name__
    if isinstance(error, kafka_errors.UnknownTopicOrPartitionError):
        return UnknownStreamError(f"{doing}: Kafka has no such topic or partition ({settings.system})")
    if isinstance(error, (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)):
        return MessageTooLargeError(f"{doing}: {error}")
    if isinstance(error, (kafka_errors.KafkaTimeoutError, kafka_errors.KafkaConnectionError)):
        return unreachable(settings, doing)
    doing = f"{doing}: " if doing else ""
    if isinstance(error, (kafka_errors.AuthorizationError, kafka_errors.SaslAuthenticationFailedError)):
        return StreamSystemError(
            f"{doing}Kafka refuses it ({name}); check the user's rights, or "
            f"systems.{settings.system}.consumer.sasl.*"
        )
    said = _SAID.search(str(error))
    return StreamSystemError(f"{doing}{name}: {said[2] if said else _without_secrets(settings, str(error))}")


def no_topic(settings: Settings, stream: SystemStream) -> UnknownStreamError:
    """The error for a stream that the cluster does not have."""
    return UnknownStreamError(f"{stream}: there is no such topic at {','.join(settings.servers)}")


def unreachable(settings: Settings, doing: str = "", *, why: str = "") -> StreamSystemError:
    """The error for brokers that do not answer. ``why``: what kafka-python said of it."""
    key = f"systems.{settings.system}"
    where = ",".join(settings.servers)
    doing = f"{doing}: " if doing else ""
    if "SSL" in why and "certificate" in why.lower():
        return StreamSystemError(
            f"{doing}the certificate of {where} is not trusted: {why}; check {key}.consumer.ssl.cafile"
        )
    if "Sasl" in why or "SASL" in why:
        return StreamSystemError(
            f"{doing}{where} refuses user, password or mechanism: {why}; check {key}.consumer.sasl.*"
        )
    said = f" ({why})" if why else ""
    return StreamSystemError(
        f"{doing}no Kafka broker answers at {where}; is it running (streambench kafka start), and is "
        f"{key}.bootstrap.servers right? Where it wants TLS or a password, check "
        f"{key}.consumer.security.protocol, {key}.consumer.ssl.* and {key}.consumer.sasl.*{said}"
    )


def _made(settings: Settings, kind: Any, options: Mapping[str, Any]) -> Any:
    connections: list[Any] = []

    def connected(**given: Any) -> Any:
        # To connect may take no longer than an answer: a broker that is silent takes connections, too.
        given["socket_connection_setup_timeout_ms"] = min(_CONNECT_MS, given["request_timeout_ms"])
        client = kind.DEFAULT_CONFIG["kafka_client"](**given)
        connections.append(client)
        _ask_each(client._manager, int(options["bootstrap_timeout_ms"]))
        _keep_requests(client)
        return client

    began = time.monotonic()
    try:
        client = kind(**{**options, "bootstrap_servers": list(settings.servers), "kafka_client": connected})
    except BaseException as error:
        # A client that cannot be made leaves its thread and its sockets behind.
        for each in connections:
            each.close()
        if isinstance(error, kafka_errors.KafkaTimeoutError) and _last_failure.at >= began:
            said = _without_secrets(settings, str(_last_failure.why))
            raise unreachable(settings, f"connecting to {settings.system}", why=said) from error
        if isinstance(
            error, kafka_errors.KafkaConfigurationError | AssertionError | ValueError | TypeError | OSError
        ):
            what = _without_secrets(settings, f"{type(error).__name__}: {error}")
            raise StreamSystemError(
                f"systems.{settings.system}.*: kafka-python does not take these settings: {what}"
            ) from None
        if isinstance(error, kafka_errors.KafkaError):
            raise as_ours(settings, f"connecting to {settings.system}", error) from error
        raise
    # What it asks for first it asks for after 100 ms, whatever retry_backoff_ms says, as it has just asked
    # for the brokers.
    manager = getattr(client, "_manager", None) or client._sender._client._manager
    manager.cluster.config["retry_backoff_ms"] = client.config["retry_backoff_ms"]
    return client


def _keep_requests(client: Any) -> None:
    """Have a producer keep its request when the coordinator of its transactions cannot be connected to.

    kafka-python 3.0 then asks for another coordinator and loses the request. It would keep it if
    ``await_ready`` returned False, but that raises. Without this, a begin or a commit is waited for in vain.
    """
    await_ready = client.await_ready

    def is_ready(node: Any, timeout_ms: float = 30_000) -> bool:
        try:
            return bool(await_ready(node, timeout_ms=timeout_ms))
        except kafka_errors.KafkaError:
            client.poll(timeout_ms=_LOST_MS)
            return False

    client.await_ready = is_ready


def _ask_each(manager: Any, timeout_ms: int) -> None:
    """Give each server its share of the time in which the cluster is to be found.

    kafka-python 3.0 chooses one server by chance and gives it all of the time. Where one of three is silent,
    one client in three finds no broker."""
    connect, brokers = manager.get_connection, manager.cluster.bootstrap_brokers
    share_ms = timeout_ms / max(1, len(brokers()))

    def connected(node: Any, timeout_ms: float | None = None, **more: Any) -> Any:
        if timeout_ms is not None and manager.cluster.is_bootstrap(node):
            timeout_ms = min(timeout_ms, share_ms)
        return connect(node, timeout_ms=timeout_ms, **more)

    def next_ones() -> list[Any]:
        failures = [manager._backoff.get(each.node_id, (0,))[0] for each in brokers()]
        return [each for each, failed in zip(brokers(), failures, strict=True) if failed == min(failures)]

    manager.get_connection, manager.cluster.bootstrap_brokers = connected, next_ones


def _without_secrets(settings: Settings, text: str) -> str:
    for values in (settings.consumer, settings.producer):
        for key, value in values.items():
            if ("password" in key or "token" in key) and isinstance(value, str) and value:
                text = text.replace(value, "***")
    return text
