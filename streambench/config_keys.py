"""Every configuration key that streambench itself knows: its type, its default and its meaning, once.

Config reads defaults from here, wrong keys are found by comparing with it, and the reference in the docs is
printed from it. ``<s>`` stands for a system, ``<t>`` for a stream (which may contain dots), ``<n>`` for a
name that the configuration chooses.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal, NamedTuple

from streambench.suggestions import closest

Kind = Literal["text", "integer", "boolean", "names", "path", "class"]


class Key(NamedTuple):
    """A known key. ``default`` is text as it would stand in a file; None: there is none. ``values``: all that
    may be written; ``least``: the smallest number that may be."""

    pattern: str
    kind: Kind
    default: str | None
    meaning: str
    values: tuple[str, ...] = ()
    least: int | None = None


KEYS = (
    Key(
        "job.name",
        "text",
        None,
        "the job's name; together with job.id it owns the checkpoints. Default: the name of the file or task",
    ),
    Key("job.id", "text", "1", "distinguishes two runs of one job at the same time"),
    Key(
        "job.container.count",
        "integer",
        "1",
        "over how many containers (processes, Spark tasks) the tasks are spread",
        least=1,
    ),
    Key(
        "job.group.session.ms",
        "integer",
        "10000",
        "run --join: how long a member may be silent before its tasks go to others; one that dies is missed "
        "at once",
        least=100,
    ),
    Key(
        "job.group.rebalance.ms",
        "integer",
        "30000",
        "run --join: how long the others wait for a member that is to commit and close its tasks, "
        "before it is fenced",
        least=0,
    ),
    Key(
        "job.default.system",
        "text",
        None,
        "the system of checkpoints and changelogs that name none. Default: the only log system",
    ),
    Key(
        "job.changelog.system",
        "text",
        None,
        "the system of changelogs that name none. Default: job.default.system",
    ),
    Key(
        "job.systemstreampartition.grouper.factory",
        "class",
        "partition",
        "how partitions become tasks: partition, ssp, or a class",
    ),
    Key(
        "cluster-manager.container.retry.count",
        "integer",
        "8",
        "how often in quick succession a container whose process died is started again; 0: never, negative: "
        "without end",
    ),
    Key(
        "cluster-manager.container.retry.window.ms",
        "integer",
        "300000",
        "deaths of a container that lie further apart than this do not count as in quick succession",
    ),
    Key(
        "cluster-manager.container.retry.delay.ms",
        "integer",
        "200",
        "the pause before a container is started again; it doubles with each time in quick succession, up "
        "to 30 seconds",
    ),
    Key(
        "job.logged.store.base.dir",
        "path",
        None,
        "where stores with a changelog keep files. Default: beside the checkpoints",
    ),
    Key(
        "job.non-logged.store.base.dir",
        "path",
        None,
        "where stores without a changelog keep files. Default: beside the checkpoints",
    ),
    Key(
        "task.class",
        "class",
        None,
        "the task: package.module.Class, or file.py:Class relative to the configuration file",
    ),
    Key("task.inputs", "names", None, "the input streams, as system.stream, separated by commas"),
    Key(
        "task.broadcast.inputs",
        "names",
        None,
        "partitions that every task gets, as system.stream#3 or system.stream#[1-4]",
    ),
    Key(
        "task.window.ms",
        "integer",
        "-1",
        "milliseconds between calls of window(), counted on from run to run; 0 or less: never",
    ),
    Key(
        "task.window.at.end",
        "boolean",
        "false",
        "call window() once more at the end of a run that has an end: --until caught-up, --messages, a "
        "deployment",
    ),
    Key(
        "task.commit.ms",
        "integer",
        "60000",
        "milliseconds between commits; 0 or less: only when asked for, and at a clean stop",
    ),
    Key(
        "task.chooser.class",
        "class",
        "round-robin",
        "which message comes next: round-robin, or a chooser (__main__.Class in a notebook)",
    ),
    Key("task.consumer.batch.size", "integer", "1", "how many in a row come from one partition", least=1),
    Key("task.batch.messages", "integer", "10000", "how many messages process_batch gets at most", least=1),
    Key("task.capture", "text", "on", "a container that fails writes a capture", values=("on", "off")),
    Key("task.capture.mb", "integer", "64", "the size of a capture in megabytes, at most", least=1),
    Key("task.capture.path", "text", None, "where captures are written; else beside the checkpoints"),
    Key(
        "task.poll.interval.ms",
        "integer",
        "50",
        "how long a partition that ran dry waits while others are busy; longer if 250 did",
    ),
    Key(
        "task.max.idle.ms",
        "integer",
        "10",
        "how long the event loop sleeps when there is nothing to do; with many partitions longer",
    ),
    Key("task.shutdown.ms", "integer", "30000", "how long a stop waits for threads and processes"),
    Key(
        "task.ignored.exceptions",
        "names",
        None,
        "exceptions of the task that are counted and passed over: class names, or *",
    ),
    Key(
        "task.ignored.exceptions.dead.letter",
        "boolean",
        "false",
        "messages at which such an exception was raised go to task.dead.letter.stream, as they are and with "
        "the traceback",
    ),
    Key(
        "task.drop.deserialization.errors",
        "boolean",
        "false",
        "pass over messages that cannot be decoded, and count them",
    ),
    Key(
        "task.drop.serialization.errors",
        "boolean",
        "false",
        "pass over messages that cannot be sent, and count them",
    ),
    Key(
        "task.dead.letter.stream",
        "text",
        None,
        "where messages go, as they are and with the reason, that cannot be decoded or sent",
    ),
    Key(
        "task.checkpoint.system",
        "text",
        None,
        "where checkpoints are kept: a system, or file. Default: the only log system",
    ),
    Key(
        "task.checkpoint.path",
        "path",
        "checkpoints",
        "the directory of file checkpoints, relative to the configuration file",
    ),
    Key(
        "task.checkpoint.history",
        "integer",
        "100",
        "how many commits of each container are kept to rewind to",
        least=1,
    ),
    Key(
        "task.processing.guarantee",
        "text",
        "at-least-once",
        "at-least-once: after a crash outputs may be written twice; exactly-once: outputs, state and "
        "checkpoints are one atomic commit",
        ("at-least-once", "exactly-once"),
    ),
    Key(
        "task.commit.max.output.mb",
        "integer",
        "16",
        "exactly-once: a commit is due when so many MiB of output wait for it",
    ),
    Key("task.lifecycle.listeners", "names", None, "the lifecycle listeners in force, in order"),
    Key("task.lifecycle.listener.<n>.class", "class", None, "the class or factory of a lifecycle listener"),
    Key(
        "systems.<s>.samza.factory",
        "class",
        None,
        "the kind of system: log, memory, file, ... or a SystemFactory class",
    ),
    Key("systems.<s>.samza.key.serde", "text", None, "the serde of keys; none: bytes as they are"),
    Key("systems.<s>.samza.msg.serde", "text", None, "the serde of messages; none: bytes as they are"),
    Key(
        "systems.<s>.samza.offset.default",
        "text",
        "upcoming",
        "where to begin without a checkpoint",
        ("oldest", "newest", "upcoming"),
    ),
    Key(
        "systems.<s>.samza.landing",
        "text",
        None,
        "the log system in which a system that keeps nothing is landed: received, durable, acknowledged, "
        "and read from there",
    ),
    Key(
        "systems.<s>.samza.landing.receive",
        "boolean",
        "true",
        "whether the job receives what is landed; false: 'streambench land' or another job does, this one "
        "only reads",
    ),
    Key(
        "systems.<s>.samza.landing.linger.ms",
        "integer",
        "2",
        "how long a message that was received waits for others to be forced to the disk with it",
        least=0,
    ),
    Key(
        "systems.<s>.samza.landing.strict",
        "boolean",
        "false",
        "true: a message that is too large for the log ends the receiver; false: it is a dead letter "
        "(task.dead.letter.stream, else the "
        "stream <s>.<t>.dead-letters of the log), or dropped where task.drop.deserialization.errors says so",
    ),
    Key(
        "systems.<s>.samza.fetch.threshold",
        "integer",
        "10000",
        "how many messages of one partition may wait in memory",
        least=1,
    ),
    Key("systems.<s>.streams.<t>.samza.key.serde", "text", None, "as for the system, for one stream"),
    Key("systems.<s>.streams.<t>.samza.msg.serde", "text", None, "as for the system, for one stream"),
    Key(
        "systems.<s>.streams.<t>.samza.offset.default",
        "text",
        None,
        "as for the system, for one stream",
        ("oldest", "newest", "upcoming"),
    ),
    Key(
        "systems.<s>.streams.<t>.samza.reset.offset",
        "text",
        "false",
        "true: begin at samza.offset.default, not at the checkpoint. What is neither true nor false "
        "counts as false, with a warning",
    ),
    Key(
        "systems.<s>.streams.<t>.samza.bounded",
        "boolean",
        "false",
        "all of the stream is there when the job starts: where it ends then, the input is at its end (see "
        "end_of_stream)",
    ),
    Key(
        "systems.<s>.streams.<t>.samza.priority",
        "integer",
        "-1",
        "higher comes first; negative: after all that have one",
    ),
    Key(
        "systems.<s>.streams.<t>.samza.bootstrap",
        "boolean",
        "false",
        "read this stream to its end before any other",
    ),
    Key(
        "systems.<s>.streams.<t>.partitions",
        "integer",
        "1",
        "how many partitions the stream gets when the job creates it",
        least=1,
    ),
    Key("stores.<n>.factory", "class", "memory", "what keeps the state: memory, rocksdb, or a store factory"),
    Key("stores.<n>.key.serde", "text", "string", "the serde of the store's keys"),
    Key("stores.<n>.msg.serde", "text", "json", "the serde of the store's values"),
    Key(
        "stores.<n>.serde.check",
        "boolean",
        "true",
        "refuse state that other serdes have written; false: those of now can read it, and it counts as "
        "theirs",
    ),
    Key(
        "stores.<n>.changelog",
        "text",
        None,
        "the stream that makes the store durable, or none. Default: one of the changelog system, or beside "
        "the "
        "checkpoints, if those are files",
    ),
    Key(
        "stores.<n>.changelog.min.compaction.lag.ms",
        "integer",
        "14400000",
        "how long a new changelog keeps all, before compaction",
    ),
    Key(
        "stores.<n>.changelog.delete.retention.ms",
        "integer",
        "86400000",
        "how long a new changelog keeps the mark of a deleted key",
    ),
    Key(
        "stores.<n>.changelog.max.message.size.bytes",
        "integer",
        "1048576",
        "the size from which on a value counts as large",
        least=1,
    ),
    Key(
        "stores.<n>.disallow.large.messages",
        "boolean",
        "false",
        "a large value is an error when it is put, not at the commit",
    ),
    Key(
        "stores.<n>.drop.large.messages",
        "boolean",
        "false",
        "a large value is not put; it is counted, and the first one logged",
    ),
    Key(
        "stores.<n>.ttl.ms",
        "integer",
        None,
        "an entry that was not written for so many milliseconds is gone; 0: none ever is",
        least=0,
    ),
    Key(
        "stores.<n>.rocksdb.ttl.ms",
        "integer",
        None,
        "Samza's name for stores.<n>.ttl.ms; 0 or less: none ever is",
    ),
    Key(
        "stores.<n>.object.cache.size",
        "integer",
        None,
        "how many entries are cached; 0: none. Default: 1000, for memory 0",
        least=0,
    ),
    Key(
        "stores.<n>.write.batch.size",
        "integer",
        "500",
        "how many changed entries of the cache are written to the store at once",
        least=1,
    ),
    Key(
        "stores.<n>.clean.on.container.start",
        "boolean",
        "false",
        "restore from the changelog, not from local files of a former run",
    ),
    Key(
        "stores.<n>.container.cache.size.bytes",
        "integer",
        "104857600",
        "rocksdb: a container's memory for blocks that were read",
    ),
    Key(
        "stores.<n>.container.write.buffer.size.bytes",
        "integer",
        "33554432",
        "rocksdb: a container's memory for what was written",
    ),
    Key("metrics.reporters", "names", None, "the metrics reporters in force"),
    Key(
        "metrics.reporter.<n>.class",
        "class",
        None,
        "snapshot, prometheus (not on Spark), log, or a MetricsReporter class",
    ),
    Key(
        "metrics.reporter.<n>.interval",
        "text",
        None,
        "seconds between two reports, such as 60 or 0.5. Default: 60; prometheus: 5",
    ),
    Key(
        "metrics.reporter.<n>.blacklist",
        "text",
        None,
        "a regular expression: metrics whose whole group.name it matches are left out",
    ),
    Key(
        "metrics.reporter.<n>.stream",
        "text",
        None,
        "of a snapshot reporter: the stream that it writes to, as system.stream",
    ),
    Key(
        "metrics.reporter.<n>.host",
        "text",
        "127.0.0.1",
        "of a prometheus reporter: the address that it listens on",
    ),
    Key(
        "metrics.reporter.<n>.port",
        "integer",
        "0",
        "of a prometheus reporter: the port of container 0, the next of 1; 0: any free one",
    ),
    Key(
        "metrics.timer.enabled",
        "text",
        "sampled",
        "true: every call of process(), of the chooser and of stores is timed; sampled: some calls of "
        "process(), at no cost; false: none",
        ("true", "false", "sampled"),
    ),
    Key(
        "serializers.registry.<n>.class",
        "class",
        None,
        "what a serde is: avro, json, ..., or a Serde class or factory of one's own",
    ),
    Key("serializers.registry.<n>.encoding", "text", "utf-8", "of a string serde: the encoding of texts"),
    Key(
        "serializers.registry.<n>.type",
        "class",
        None,
        "of a json or msgpack serde: a msgspec Struct, pydantic model, ... for messages",
    ),
    Key(
        "serializers.registry.<n>.schema",
        "text",
        None,
        "of an avro serde: the schema, as JSON or a file relative to the configuration",
    ),
    Key(
        "serializers.registry.<n>.reader.schema",
        "text",
        None,
        "of an avro serde: the schema to read by, where it is another",
    ),
    Key(
        "serializers.registry.<n>.confluent.schema.id",
        "integer",
        None,
        "of an avro serde: the id in the header of each message",
    ),
)

# A plug-in's keys below systems.<s>., serializers.registry.<n>., stores.<n>.engine. and metrics.reporter.<n>.
# are its own; it checks them.
_OPEN = re.compile(
    r"(systems\.[^.]+\.(?!samza\.|streams\..+\.samza\.).+|serializers\.registry\.[^.]+\.(?!class$).+|"
    r"stores\.[^.]+\.engine\..+|"
    r"spark\..+|metrics\.reporter\.[^.]+\..+)"
)

_KNOWN_PREFIXES = ("job.", "task.", "systems.", "stores.", "serializers.", "metrics.", "cluster-manager.")

# Samza's keys that have no meaning in this runtime: a configuration that comes from Samza should not fail on
# them.
_WITHOUT_MEANING = re.compile(
    r"yarn\..*|cluster-manager\.(?!container\.retry\.).*|app\..*|job\.(factory\.class|coordinator\..*|"
    r"host-affinity\..*|jmx\..*|"
    r"standbytasks\..*|elasticity\..*|container\.thread\.pool\.size|checkpoint\.validation\.enabled|"
    r"startpoint\.enabled|config\..*|container\.(commit|restore)\..*|drain-monitor\..*|"
    r"systemstreampartition\.(input|matcher)\..*)|"
    r"task\.(opts|execute|command\.class|max\.concurrency|async\.commit|callback\..*|transactional\..*|"
    r"checkpoint\.(factory|"
    r"replication\.factor|segment\.bytes|write\.versions|read\.versions)|live\..*|watermark\..*|"
    r"name\.grouper\..*|commit\..*|"
    r"drop\.producer\.errors)|systems\.[^.]+\.samza\.fetch\.threshold\.bytes|stores\.[^.]+\.(rocksdb|"
    r"leveldb|accesslog|backup|restore|"
    r"compaction|side)\..*|stores\.[^.]+\.changelog\.replication\..*|metrics\.timer\.debug\.enabled"
)


# What is only read of inputs: of any other stream, these settings do nothing.
_OF_INPUT = re.compile(
    r"systems\.([^.]+)\.streams\.(.+)\.samza\.(offset\.default|reset\.offset|bounded|priority|bootstrap)"
)


@cache
def find(key: str) -> Key | None:
    """The table's entry for a key as it stands in a configuration, None where it has none."""
    return next((known for known in KEYS if _matcher(known.pattern).fullmatch(key)), None)


def is_open(key: str) -> bool:
    """Return True where the key belongs to a plug-in, or to the user: it begins unlike any key of
    streambench."""
    if key.startswith(_KNOWN_PREFIXES):
        return bool(_OPEN.fullmatch(key))
    heads = [prefix.rstrip(".") for prefix in _KNOWN_PREFIXES]
    is_mistyped = closest(key.split(".")[0], heads, cutoff=0.7) and closest_key(key)
    return not is_mistyped


def respelled_prefix(key: str) -> str | None:
    """Return the prefix that a key almost begins with, where its keys are a plug-in's (``systems.log.`` of
    ``system.log.path``). Only the plug-in knows whether it has this one. None for any other key."""
    first, dot, rest = key.partition(".")
    heads = [prefix.rstrip(".") for prefix in _KNOWN_PREFIXES]
    near = closest(first, heads, cutoff=0.7)
    meant = f"{near}{dot}{rest}" if near else ""
    return ".".join(meant.split(".")[:2]) + "." if meant != key and _OPEN.fullmatch(meant) else None


def input_named(key: str) -> tuple[str, str] | None:
    """The system and the stream of a key that only means something for an input; None for any other key."""
    found = _OF_INPUT.fullmatch(key)
    return (found[1], found[2]) if found else None


def is_without_meaning(key: str) -> bool:
    """Return True for a key of Samza that does nothing here."""
    return bool(_WITHOUT_MEANING.fullmatch(key))


def closest_key(key: str) -> str | None:
    """The known key most like an unknown one, with the names that the unknown one gives in place of the
    placeholders."""
    return closest(key, [_fill(known.pattern, key) for known in KEYS], cutoff=0.75)


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    escaped = re.escape(pattern)
    return re.compile(escaped.replace("<s>", r"[^.]+").replace("<n>", r"[^.]+").replace("<t>", r".+"))


def _fill(pattern: str, key: str) -> str:
    """The pattern with the key's own names where it has placeholders: systems.<s>.x and systems.log.y give
    systems.log.x."""
    names = key.split(".")
    parts = pattern.split(".")
    for at, part in enumerate(parts):
        if part.startswith("<") and at < len(names):
            parts[at] = names[at]
    return ".".join(parts)
