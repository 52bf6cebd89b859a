"""The clients of kafka-python, and what their errors mean in the words of streambench."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors

from streambench.errors import MessageTooLargeError, OffsetError, StreambenchError, StreamSystemError, UnknownStreamError
from streambench.system.kafka.settings import Settings

# kafka-python reports every attempt to connect; what comes of them is told by our own errors and warnings.
_theirs = logging.getLogger("kafka")
if _theirs.level == logging.NOTSET:
    _theirs.setLevel(logging.CRITICAL)

# A refusal is told with all of the request and the answer; this is what the broker says in it.
_SAID = re.compile(r"error_message=(['\"])(.+?)\1")


def new_consumer(settings: Settings, **changes: Any) -> Any:
    """A consumer without a group. Raises StreamSystemError where no broker answers."""
    return _made(
        settings,
        lambda: KafkaConsumer(
            **{
                **settings.consumer, "bootstrap_servers": list(settings.servers), "group_id": None, "enable_auto_commit": False,
                "auto_offset_reset": "none", "allow_auto_create_topics": False, **changes,
            }
        ),
    )  # fmt: skip


def new_producer(settings: Settings, **changes: Any) -> Any:
    """An idempotent producer. Raises StreamSystemError where no broker answers."""
    return _made(
        settings,
        lambda: KafkaProducer(
            **{
                **settings.producer, "bootstrap_servers": list(settings.servers), "enable_idempotence": True, "acks": "all",
                "allow_auto_create_topics": False, **changes,
            }
        ),
    )  # fmt: skip


def new_admin(settings: Settings) -> Any:
    """An admin client. Raises StreamSystemError where no broker answers."""
    return _made(settings, lambda: KafkaAdminClient(**{**settings.admin, "bootstrap_servers": list(settings.servers)}))


class LookUps:
    """Asks where partitions begin and end, over connections of its own: on those of a consumer an answer waits behind its fetches."""

    def __init__(self, settings: Settings, **changes: Any) -> None:
        self._settings = settings
        self._changes = changes
        self._consumer: Any = None

    def oldest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._asked("beginning_offsets", partitions)

    def upcoming(self, partitions: Iterable[TopicPartition], *, timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        """The offset of each partition that cannot be read yet: behind the last message, or where an open transaction begins."""
        return self._asked("end_offsets", partitions, timeout_ms)

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=0)

    def _asked(self, method: str, partitions: Iterable[TopicPartition], timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if not wanted:
            return {}
        end = time.monotonic() + (self._settings.patience_ms if timeout_ms is None else timeout_ms) / 1000
        while True:
            if self._consumer is None:
                self._consumer = new_consumer(self._settings, **self._changes)
            try:
                with translated(self._settings, "asking for offsets"):
                    left_ms = max(1, int((end - time.monotonic()) * 1000))
                    found: dict[TopicPartition, int] = getattr(self._consumer, method)(wanted, timeout_ms=left_ms)
                return found
            except KeyError as error:
                # A partition that is newer than what the client knows of its topic: it is simply left out.
                if time.monotonic() > end:
                    raise UnknownStreamError(f"{self._settings.system}: there is no partition {error}") from None
                self.close()
                time.sleep(0.05)


def let_go(producer: Any) -> None:
    """Close a producer without waiting for what it has not sent yet, which a plain close does for however long that takes."""
    producer._sender.force_close()
    with suppress(kafka_errors.KafkaError):
        producer.close(timeout=0)
    producer._closed = True  # else it is closed again, with a second's wait, when it is collected


@contextmanager
def translated(settings: Settings, doing: str, **more: type[StreambenchError]) -> Iterator[None]:
    """Raise what kafka-python raises as an error of ours. ``doing``: for the sentence; ``more``: other errors, by the names of its own."""
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise as_ours(settings, doing, error, more) from error


def to_number(offset: str, where: str) -> int:
    """An offset of Kafka as a number. Raises OffsetError where it is none."""
    if not (offset.isascii() and offset.isdecimal()):
        raise OffsetError(f"{where}: '{offset}' is no offset of Kafka; its offsets are whole numbers from 0 on")
    return int(offset)


def as_ours(
    settings: Settings, doing: str, error: BaseException, more: Mapping[str, type[StreambenchError]] | None = None
) -> StreambenchError:
    """An error of kafka-python in our words."""
    name = type(error).__name__
    if more and name in more:
        return more[name](f"{doing}: {error}")
    if isinstance(error, kafka_errors.UnknownTopicOrPartitionError):
        return UnknownStreamError(f"{doing}: Kafka has no such topic or partition ({settings.system})")
    if isinstance(error, (kafka_errors.MessageSizeTooLargeError, kafka_errors.RecordListTooLargeError)):
        return MessageTooLargeError(f"{doing}: {error}")
    if isinstance(error, (kafka_errors.KafkaTimeoutError, kafka_errors.KafkaConnectionError)):
        return unreachable(settings, doing)
    doing = f"{doing}: " if doing else ""
    if isinstance(error, (kafka_errors.AuthorizationError, kafka_errors.SaslAuthenticationFailedError)):
        return StreamSystemError(
            f"{doing}Kafka refuses it ({name}); see to the user's rights, or to systems.{settings.system}.consumer.sasl.*"
        )
    said = _SAID.search(str(error))
    return StreamSystemError(f"{doing}{name}: {said[2] if said else _without_secrets(settings, str(error))}")


def unreachable(settings: Settings, doing: str = "") -> StreamSystemError:
    """The error for brokers that do not answer."""
    key = f"systems.{settings.system}"
    return StreamSystemError(
        f"{doing}{': ' if doing else ''}no Kafka broker answers at {','.join(settings.servers)}; is it running (streambench kafka start), "
        f"and is {key}.bootstrap.servers right? Where it wants TLS or a password, see to {key}.consumer.* and {key}.producer.*"
    )


def _made(settings: Settings, make: Callable[[], Any]) -> Any:
    try:
        client = make()
    except (kafka_errors.KafkaConfigurationError, AssertionError, ValueError, TypeError, OSError) as error:
        what = _without_secrets(settings, f"{type(error).__name__}: {error}")
        raise StreamSystemError(f"systems.{settings.system}.*: kafka-python does not take these settings: {what}") from None
    except kafka_errors.KafkaError as error:
        raise as_ours(settings, f"connecting to {settings.system}", error) from error
    # What it asks for first it asks for after 100 ms, whatever retry_backoff_ms says, as it has just asked for the brokers.
    manager = getattr(client, "_manager", None) or client._sender._client._manager
    manager.cluster.config["retry_backoff_ms"] = client.config["retry_backoff_ms"]
    return client


def _without_secrets(settings: Settings, text: str) -> str:
    for values in (settings.consumer, settings.producer):
        for key, value in values.items():
            if ("password" in key or "token" in key) and isinstance(value, str) and value:
                text = text.replace(value, "***")
    return text
