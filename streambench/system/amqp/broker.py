"""Questions to the broker, each on a connection of its own: connect, ask, and explain its refusals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pika
from pika import exceptions
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorException,
    AMQPConnectorStackTimeout,
)

from streambench.errors import (
    StreambenchError,
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
    described,
)
from streambench.masking import masked
from streambench.system.amqp.frames import Connection
from streambench.system.amqp.settings import MOST_AHEAD, Settings, StreamTopology

# What it logs on the way to an error, at length, stands in the error.
if logging.getLogger("pika").level == logging.NOTSET:
    logging.getLogger("pika").setLevel(logging.CRITICAL)

NOT_FOUND = 404
_OTHERWISE = 406
_ACCESS_REFUSED = 403
_NOT_ALLOWED = 530
_LIMITS_DELIVERIES = 4

STREAM_OFFSET = "x-stream-offset"
"""As an argument: from where a stream queue is read; as a header: where in it a message stands."""


class Bounds(NamedTuple):
    """Bounds of a stream queue: the first offset, and the one that the next message will get. They are equal
    where it is empty."""

    oldest: int
    upcoming: int


def parameters(settings: Settings) -> pika.ConnectionParameters:
    """The parameters of the connection. Raises ConfigError."""
    context = settings.tls()
    try:
        found = pika.URLParameters(settings.url)
    except Exception as error:
        shown = masked("url", settings.url)
        why = described(error)
        if urlsplit(settings.url).query not in shown:
            # The options have a secret among them, and what pika says of them may have it, too.
            why = f"pika does not take its options ({type(error).__name__})"
        raise settings.error("url", f"{shown}: {why}") from None
    if context is not None and "ssl_options" not in urlsplit(settings.url).query:
        found.ssl_options = pika.SSLOptions(context, settings.tls_name)
    found.connection_attempts = 1
    found.socket_timeout = found.stack_timeout = settings.connect_s
    found.client_properties = {"connection_name": "streambench"}
    return found


def explained(settings: Settings, error: BaseException) -> StreambenchError:
    """Translate an error of pika into one that says what is wrong and where."""
    error = _innermost(error)
    if isinstance(error, StreambenchError):
        return error
    where = f"the AMQP broker at {settings.name} (systems.{settings.system}.url)"
    refuses_host = f"{where} refuses the virtual host that the url gives"
    probable = (exceptions.ProbableAuthenticationError, exceptions.ProbableAccessDeniedError)
    if isinstance(error, probable) and exceptions.ConnectionClosedByBroker.__name__ not in str(error):
        what = "it has just stopped, or refuses the user, the password or the virtual host that the url gives"
        return StreamSystemError(f"{where} closed the connection at once, without a reason: {what}")
    if isinstance(error, (exceptions.AuthenticationError, exceptions.ProbableAuthenticationError)):
        return StreamSystemError(f"{where} refuses the user or the password that the url gives")
    if isinstance(error, exceptions.ConnectionClosedByBroker):
        if error.reply_code in (_NOT_ALLOWED, _ACCESS_REFUSED):
            return StreamSystemError(f"{refuses_host}: {error.reply_text}")
        return StreamSystemError(f"{where} has closed the connection: {error.reply_code} {error.reply_text}")
    if isinstance(error, (AMQPConnectorStackTimeout, exceptions.ConnectionOpenAborted)):
        limit = f"systems.{settings.system}.connect.timeout.ms"
        return StreamSystemError(
            f"{where} cannot be reached: it did not answer within {settings.connect_s:g} seconds ({limit})"
        )
    if isinstance(error, exceptions.ProbableAccessDeniedError):
        return StreamSystemError(f"{refuses_host}: {described(error)}")
    if isinstance(error, exceptions.ChannelClosedByBroker):
        hint = f": it is no stream queue: set systems.{settings.system}.queue.type"
        hint = hint if STREAM_OFFSET in error.reply_text else ""
        return StreamSystemError(f"{where} refuses: {error.reply_code} {error.reply_text}{hint}")
    if isinstance(
        error, (OSError, exceptions.AMQPError, AMQPConnectorException, AMQPConnectionWorkflowFailed)
    ):
        return StreamSystemError(f"{where} cannot be reached: {described(error)}. Is it running?")
    return StreamSystemError(f"{where}: {described(error)}")


def _innermost(error: BaseException) -> BaseException:
    """The error at the end of the chain in which pika wraps it."""
    while True:
        inner: Any = getattr(error, "exception", None)
        if isinstance(error, AMQPConnectionWorkflowFailed):
            inner = error.exceptions[-1]
        elif isinstance(error, exceptions.AMQPConnectionError) and not inner and error.args:
            inner = error.args[0]
        if not isinstance(inner, BaseException):
            return error
        error = inner


@contextmanager
def channel_to(settings: Settings) -> Iterator[Callable[[], BlockingChannel]]:
    """A connection for some questions; what it gives opens another channel (a refusal closes one). Raises
    StreamSystemError."""
    try:
        connection = pika.BlockingConnection(parameters(settings), _impl_class=Connection)
    except (exceptions.AMQPError, AMQPConnectorException, OSError) as error:
        raise explained(settings, error) from error
    try:
        yield connection.channel
    except (exceptions.AMQPError, OSError) as error:
        raise explained(settings, error) from error
    finally:
        # If it is lost now, that makes no difference to what was answered.
        with suppress(exceptions.AMQPError, OSError):
            if connection.is_open:
                connection.close()


Open = Callable[[], BlockingChannel]


def has_queue(open_channel: Open, queue: str) -> bool:
    """True if there is a queue of this name."""
    return _is_there(open_channel, lambda channel: channel.queue_declare(queue, passive=True))


def has_exchange(open_channel: Open, exchange: str) -> bool:
    """True if there is an exchange of this name."""
    return _is_there(open_channel, lambda channel: channel.exchange_declare(exchange, passive=True))


def _is_there(open_channel: Open, ask: Callable[[BlockingChannel], object]) -> bool:
    channel = open_channel()
    try:
        ask(channel)
    except exceptions.ChannelClosedByBroker as error:
        if error.reply_code == NOT_FOUND:
            return False
        # An exclusive queue of another program: it is there, but no stream for us.
        raise
    channel.close()
    return True


def present(settings: Settings, open_channel: Open, stream: str) -> int:
    """The number of partitions a stream has; 0: it is not there."""
    topology = settings.topology(stream, 1)
    if topology.exchange:
        return settings.partitions(stream) if has_exchange(open_channel, topology.exchange) else 0
    if has_queue(open_channel, topology.queues[0]):
        return 1 if settings.keeps else settings.partitions(stream)
    number = 0
    while settings.keeps and has_queue(open_channel, f"{topology.queues[0]}-{number}"):
        number += 1
    return number


def topology_of(settings: Settings, open_channel: Open, stream: str) -> StreamTopology:
    """The stream in the broker; of a stream queue, with as many partitions as there are."""
    partitions = present(settings, open_channel, stream) if settings.keeps else 0
    return settings.topology(stream, partitions or None)


def check(settings: Settings, open_channel: Open, topology: StreamTopology, *, reads: bool = False) -> None:
    """Raise UnknownStreamError unless the stream is there. ``reads``: of one that an exchange passes on, make
    the queue of its group."""
    name = f"{settings.system}.{topology.stream}"
    if topology.exchange:
        if not has_exchange(open_channel, topology.exchange):
            raise UnknownStreamError(
                f"there is no stream {name}: the broker at {settings.name} has no exchange "
                f"{topology.exchange}"
            )
        if reads:
            if not topology.queues:
                raise settings.no_group(topology.stream)
            declare(settings, open_channel, topology)
        return
    for queue in dict.fromkeys(topology.queues):
        if not has_queue(open_channel, queue):
            raise UnknownStreamError(
                f"there is no stream {name}: the broker at {settings.name} has no queue {queue}"
            )


def declare(settings: Settings, open_channel: Open, topology: StreamTopology) -> None:
    """Make what a stream consists of, durably, where it is not there. Raises StreamExistsError where it
    is, but made otherwise."""
    name = f"{settings.system}.{topology.stream}"
    channel = open_channel()
    try:
        if topology.dead_letters is not None and not has_queue(open_channel, topology.dead_letters):
            arguments = _without_limit(channel, {"x-queue-type": "quorum"})
            channel.queue_declare(topology.dead_letters, durable=True, arguments=arguments)
        if topology.exchange and not has_exchange(open_channel, topology.exchange):
            channel.exchange_declare(topology.exchange, topology.exchange_type, durable=True)
        for queue in dict.fromkeys(topology.queues):
            if not has_queue(open_channel, queue) or topology.dead_letters is not None:
                channel.queue_declare(
                    queue, durable=True, arguments=_without_limit(channel, topology.arguments)
                )
            for key in topology.binding_keys if topology.exchange else ():
                channel.queue_bind(queue, topology.exchange, key)
    except exceptions.ChannelClosedByBroker as error:
        if error.reply_code == _OTHERWISE:
            raise StreamExistsError(
                f"{name} is there already, but was made with other settings: {error.reply_text}. Set them "
                "alike, or delete it"
            ) from None
        raise
    channel.close()


def _without_limit(channel: BlockingChannel, arguments: dict[str, Any]) -> dict[str, Any]:
    return without_limit(arguments, channel.connection._impl.server_properties or {})


def without_limit(arguments: Mapping[str, Any], server: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with which this server (as it describes itself) makes such a queue, and keeps what is in
    it.

    RabbitMQ 4 drops what was delivered 20 times from a quorum queue, unless the queue says -1. Older servers
    have no such limit; there, -1 drops a message at its second delivery.
    """
    found = dict(arguments)
    version = str(server.get("version", "")).partition(".")[0]
    is_recent = version.isdigit() and int(version) >= _LIMITS_DELIVERIES
    is_limited = is_recent and server.get("product") == "RabbitMQ" and found["x-queue-type"] == "quorum"
    if is_limited and not {"x-delivery-limit", "x-dead-letter-exchange"} & found.keys():
        found["x-delivery-limit"] = -1
    return found


def bounds(open_channel: Open, queue: str) -> Bounds:
    """The bounds of a stream queue."""
    oldest = _probed(open_channel, queue, "first")
    newest = _probed(open_channel, queue, "last")
    return Bounds(0, 0) if oldest is None or newest is None else Bounds(oldest[0], newest[-1] + 1)


def _probed(open_channel: Open, queue: str, where: str) -> list[int] | None:
    """The offsets of the messages at one end of a stream queue (of a whole chunk of them at least); None
    where it is empty.

    The protocol has no request for offsets, but a reader gets a chunk as a whole. A second reader is
    answered behind the first one: then the chunk of the first one is complete.
    """
    channel = open_channel()
    found: list[int] = []

    def note(_: Any, __: Any, properties: pika.BasicProperties, ___: bytes) -> None:
        found.append(int(properties.headers[STREAM_OFFSET]))

    channel.basic_qos(prefetch_count=MOST_AHEAD)
    channel.basic_consume(queue, note, arguments={STREAM_OFFSET: where})
    for _ in range(2):
        channel.basic_consume(queue, _pass_over, arguments={STREAM_OFFSET: "next"})
        channel.queue_declare(queue, passive=True)
    channel.connection.process_data_events(0)
    channel.close()
    return found or None


def _pass_over(*_: Any) -> None:
    """Ignore a message: the reader only asks."""
