"""The keys of streams and of what has a name of its own: systems, stores, metrics and serdes."""

from __future__ import annotations

from streambench.config_keys.key import Key

STREAM_KEYS = (
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
        "refuse state that other serdes have written; false: the current ones can read it, and it counts as "
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
