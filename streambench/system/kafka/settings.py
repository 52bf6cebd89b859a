"""Settings: from ``systems.<s>.*`` to what the clients of kafka-python take.

``systems.<s>.bootstrap.servers`` says where the cluster is. ``consumer.*`` and ``producer.*`` take Kafka's
own settings under their usual names (``consumer.fetch.max.bytes``, ``producer.compression.type``). What
concerns the connection (``security.protocol``, ``sasl.*``, ``ssl.*``) needs to be given only once, under
either of the two. No value of theirs is ever put into an error or a log.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.suggestions import suggest_or_list
from streambench.system.settings import SettingsTable, SystemSettings, setting

log = logging.getLogger(__name__)

CHECKPOINTS = "__streambench_checkpoints_"
"""The beginning of the names of topics with the checkpoints of jobs."""
DEPLOYMENTS = "__streambench_deployments_"
"""The beginning of the names of topics with the history of a job's deployments."""
LEASES = "__streambench_lease_"
"""The beginning of the names of consumer groups, whose members work for a job."""

_BOOTSTRAP_MS = 5_000
# A client waits so long for what it does not know of a topic yet: by default five times as long.
_BACKOFF_MS = 20
_ADMIN_MS = 10_000  # what one broker does not answer in this time another may answer at once
_FETCHED_MS = 500  # how much longer than a fetch may be held back its answer may take
_BATCH_BYTES = 64 << 10
# A container goes from partition to partition: with 5 batches are sent half empty. A flush does not wait
# for it.
_LINGER_MS = 20
_REQUEST_BYTES = 16 << 20  # how large a message may be is for its topic to say
_LONGEST_TRANSACTION_MS = 900_000  # what brokers allow by default

# What the plug-in sets itself, and why.
_OURS = {
    "bootstrap_servers": "it stands in systems.<s>.bootstrap.servers",
    "group_id": "positions are kept in checkpoints, without a consumer group",
    "group_instance_id": "positions are kept in checkpoints, without a consumer group",
    "enable_auto_commit": "positions are kept in checkpoints",
    "auto_offset_reset": "systems.<s>.samza.offset.default says where reading begins",
    "allow_auto_create_topics": "streams are created by name, never by being read",
    "transactional_id": "streambench gives it",
    "enable_idempotence": "it is always on, so that a retry writes nothing twice",
    "acks": "it is always all: what is flushed must stay",
}


@dataclass(frozen=True, kw_only=True)
class Declared(SystemSettings):
    """The settings of a system as they are written. The repr shows no values."""

    bootstrap_servers: str | None = setting(
        None, "where the cluster is, as host:port, several separated by commas"
    )
    patience_ms: int = setting(120_000, "how long brokers may be away before it fails", least=1)
    buffer_bytes: int = setting(32 << 20, "how much is kept that is not acknowledged yet", least=1)
    replication_factor: int = setting(-1, "the copies of topics that are made here; -1: as the brokers say")
    consumer: dict[str, str] = setting(
        {}, "a setting of its consumer, or of how to connect; passwords by ${env:NAME}"
    )
    producer: dict[str, str] = setting({}, "a setting of its producer, or of how to connect")

    def __repr__(self) -> str:
        return "<settings of a Kafka system>"


SETTINGS = SettingsTable("kafka", system=(Declared,))

TOPIC_KEYS = frozenset(
    {
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "replication.factor",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)

_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of one system. The repr shows no values: there may be passwords among them.

    ``patience_ms``: how long brokers may be away before reading or writing gives up. ``buffer_bytes``: how
    much a producer keeps that is not acknowledged yet. ``streams``: per stream, the settings that its topic
    is created with.
    """

    system: str
    servers: tuple[str, ...]
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    admin: Mapping[str, Any]
    patience_ms: int
    buffer_bytes: int
    replication_factor: int
    streams: Mapping[str, Mapping[str, str]]

    def __repr__(self) -> str:
        return f"Settings({self.system} at {','.join(self.servers)})"

    @property
    def key(self) -> str:
        """The beginning of the keys of its configuration."""
        return f"systems.{self.system}"

    def deadline(self) -> float:
        """The time (of time.monotonic) until which brokers that are away from now on are waited for."""
        return time.monotonic() + self.patience_ms / 1000

    @property
    def cluster(self) -> str:
        """The name of the cluster: systems of one cluster can write in one transaction."""
        return f"Kafka at {','.join(sorted(self.servers))}"

    @classmethod
    def from_config(cls, system: str, config: Config) -> Settings:
        """Raises ConfigError that names the key."""
        from kafka import KafkaConsumer, KafkaProducer

        prefix = f"systems.{system}."
        SETTINGS.check_system(config, system)
        declared = Declared.read(config, system)
        given = {
            key: value
            for key, value in config.below(prefix).items()
            if not key.startswith("samza.") and value.strip()
        }
        servers = (
            declared.bootstrap_servers
            or given.get("producer.bootstrap.servers")
            or given.get("consumer.bootstrap.servers")
        )
        if servers is None:
            raise config.error(
                prefix + "bootstrap.servers", "is missing: the brokers as host:port, separated by commas"
            )
        streams: dict[str, dict[str, str]] = {}
        for key, value in given.items():
            if key.startswith("streams."):
                _add_stream(config, prefix, key, value, streams)
        consumer, producer, admin = _clients(
            _client(config, f"{prefix}consumer.", KafkaConsumer),
            _client(config, f"{prefix}producer.", KafkaProducer),
            declared.patience_ms,
        )
        return cls(
            system=system,
            servers=_servers(config, prefix + "bootstrap.servers", servers),
            consumer=consumer,
            producer=producer,
            admin=admin,
            patience_ms=declared.patience_ms,
            buffer_bytes=declared.buffer_bytes,
            replication_factor=declared.replication_factor,
            streams=streams,
        )

    def topic(self, stream: str, settings: Mapping[str, Any]) -> dict[str, str]:
        """The settings of a new topic: those of the configuration come before ``settings``. Raises
        ConfigError."""
        wanted = {key.replace("_", "."): str(value) for key, value in settings.items() if value is not None}
        for key in wanted:
            if key not in TOPIC_KEYS:
                raise ConfigError(
                    f"{key} is no setting of a topic; {suggest_or_list(key, TOPIC_KEYS)}", key=key
                )
        return {**wanted, **self.streams.get(stream, {})}


def largest_message(config: Config, stream: SystemStream, by_topic: int | None) -> int:
    """The most bytes of a message to a stream, by its topic and by the requests of a producer.

    ``by_topic``: the limit of the topic; None where it is not known. The one that the configuration gives to
    a new topic counts then, if there is one. Raises ConfigError."""
    key = f"systems.{stream.system}.streams.{stream.stream}.max.message.bytes"
    if by_topic is None and config.text(key) is not None:
        by_topic = _whole(config, key, config.required(key))
    by_request, prefix = _REQUEST_BYTES, f"systems.{stream.system}.producer."
    for each in config:
        if each.startswith(prefix) and each.removeprefix(prefix).replace(".", "_") == "max_request_size":
            by_request = _whole(config, each, config.required(each))
    return by_request if by_topic is None else min(by_topic, by_request)


def _servers(config: Config, key: str, text: str) -> tuple[str, ...]:
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    for server in servers:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or "@" in host:
            raise config.error(key, "must be host:port, several of them separated by commas")
    return servers


def _clients(
    consumer: Mapping[str, Any], producer: Mapping[str, Any], patience_ms: int
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the options of a consumer, a producer and an admin client: defaults, then what is configured
    (``consumer``, ``producer``). The keys for security hold for all of them."""
    from kafka import KafkaAdminClient, KafkaConsumer

    shared = {
        key: value
        for key, value in {**producer, **consumer}.items()
        if key.startswith(("security_", "sasl_", "ssl_"))
    }
    # What is asked of a broker that is silent must fail while there is time to ask another, or to say so.
    request_ms = min(30_000, patience_ms // 2)
    fetch_ms = int(consumer.get("fetch_max_wait_ms", KafkaConsumer.DEFAULT_CONFIG["fetch_max_wait_ms"]))
    quick = {
        "bootstrap_timeout_ms": _BOOTSTRAP_MS,
        "reconnect_backoff_max_ms": 1000,
        "retry_backoff_ms": _BACKOFF_MS,
    }
    of_consumer = {
        **quick,
        "request_timeout_ms": max(request_ms, fetch_ms + _FETCHED_MS),
        "isolation_level": "read_committed",
        "max_poll_records": 5000,
        **shared,
        **consumer,
    }
    of_producer = {
        **quick,
        "batch_size": _BATCH_BYTES,
        "linger_ms": min(_LINGER_MS, patience_ms // 4),
        "max_request_size": _REQUEST_BYTES,
        "max_block_ms": 15_000,
        "transaction_timeout_ms": min(patience_ms, _LONGEST_TRANSACTION_MS),
        "delivery_timeout_ms": patience_ms,
        "request_timeout_ms": request_ms,
        **shared,
        **producer,
    }
    known = KafkaAdminClient.DEFAULT_CONFIG
    of_admin = {key: value for key, value in {**shared, **consumer}.items() if key in known}
    return (
        of_consumer,
        of_producer,
        {**quick, "request_timeout_ms": min(request_ms, _ADMIN_MS), **of_admin},
    )


def _add_stream(
    config: Config, prefix: str, key: str, value: str, streams: dict[str, dict[str, str]]
) -> None:
    rest = key.removeprefix("streams.")
    if ".samza." in rest or rest.endswith(".partitions"):
        return
    name = max((each for each in TOPIC_KEYS if rest.endswith("." + each)), key=len, default=None)
    if name is None:
        raise config.error(
            prefix + key, f"is no setting of a topic; {suggest_or_list(rest.partition('.')[2], TOPIC_KEYS)}"
        )
    streams.setdefault(rest[: -len(name) - 1], {})[name] = value.strip()


def _client(config: Config, prefix: str, kind: Any) -> dict[str, Any]:
    """The settings of one kind of client, as it takes them."""
    known: dict[str, Any] = {key: value for key, value in kind.DEFAULT_CONFIG.items() if _is_text(key, value)}
    found: dict[str, Any] = {}
    for key in config.below(prefix):
        name = key.replace(".", "_")
        text = config.text(prefix + key)
        if text is None or name == "bootstrap_servers":
            continue
        if name == "zookeeper_connect":
            log.warning("%s%s means nothing here: Kafka has no ZooKeeper any more", prefix, key)
        elif name == "sasl_jaas_config":
            found.update(
                {
                    f"sasl_plain_{which}": re.sub(r"\\(.)", r"\1", value)
                    for which, value in _JAAS.findall(text)
                }
            )
        elif name in _OURS:
            raise config.error(prefix + key, f"cannot be set: {_OURS[name]}")
        elif name not in known:
            raise config.error(
                prefix + key,
                f"is no setting of a {kind.__name__}; "
                f"{suggest_or_list(key, [each.replace('_', '.') for each in known])}",
            )
        else:
            found[name] = _value(config, prefix + key, text, known[name])
    return found


def _is_text(key: str, default: Any) -> bool:
    """True where a setting can be written in a configuration."""
    objects = (
        "serializer",
        "deserializer",
        "kafka_client",
        "selector",
        "partitioner",
        "socket_options",
        "metric_reporters",
        "ssl_context",
    )
    return (
        not key.endswith(objects)
        and not callable(default)
        and not isinstance(default, (list, tuple, type))
        and key != "sasl_oauth_token_provider"
    )


def _value(config: Config, key: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise config.error(key, "must be true or false")
        return text.lower() == "true"
    if isinstance(default, (int, float)) or key.endswith(("buffer.bytes", "buffer_bytes")):
        return _whole(config, key, text)
    return text


def _whole(config: Config, key: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise config.error(key, "must be a whole number") from None
    if number < 0:
        raise config.error(key, "must be 0 or more")
    return number
