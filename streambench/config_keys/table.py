"""The table of the known configuration keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

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


_JOBS = """
job.name: text
    the job's name; together with job.id it owns the checkpoints. Default: the name of the file or task
job.id: text = 1
    distinguishes two runs of one job at the same time
job.container.count: integer = 1, at least 1
    over how many containers (processes, Spark tasks) the tasks are spread
job.container.balance: tasks | partitions | lag = tasks
    deploy gives each container equally many tasks, or about equally many partitions, or (lag) work of about
    equal time, as earlier rounds have measured it, else equally many messages to read; tasks stay where they
    were where that is possible
job.container.max.messages: integer, at least 1
    deploy: a round ends after about so many messages in each container, and the next one follows at once.
    Default: a round has no such bound
job.container.live.counts: boolean = true
    deploy: on clusters, Spark's metrics show the messages of a container while it runs, which leaves it no
    main thread. false: at its end, and tasks may set handlers of signals
job.group.session.ms: integer = 10000, at least 100
    run --join: how long a member may be silent before its tasks go to others; one that dies is missed at once
job.group.rebalance.ms: integer = 30000, at least 0
    run --join: how long the others wait for a member that is to commit and close its tasks, before it is
    fenced
job.default.system: text
    the system of checkpoints and changelogs that name none. Default: the only log system
job.changelog.system: text
    the system of changelogs that name none. Default: job.default.system
job.systemstreampartition.grouper.factory: class = partition
    how partitions become tasks: partition, ssp, or a class
cluster-manager.container.retry.count: integer = 8
    how often in quick succession a container whose process died is started again; 0: never, negative: without
    end
cluster-manager.container.retry.window.ms: integer = 300000
    deaths of a container that lie further apart than this do not count as in quick succession
cluster-manager.container.retry.delay.ms: integer = 200
    the pause before a container is started again; it doubles with each time in quick succession, up to 30
    seconds
job.logged.store.base.dir: path
    where stores with a changelog keep files. Default: beside the checkpoints
job.non-logged.store.base.dir: path
    where stores without a changelog keep files. Default: beside the checkpoints
task.class: class
    the task: package.module.Class, or file.py:Class relative to the configuration file
task.inputs: names
    the input streams, as system.stream, separated by commas
task.broadcast.inputs: names
    partitions that every task gets, as system.stream#3 or system.stream#[1-4]
task.window.ms: integer = -1
    milliseconds between calls of window(), counted on from run to run; 0 or less: never
task.window.at.end: boolean = false
    call window() once more at the end of a run that has an end: --until caught-up, --messages, a deployment
task.commit.ms: integer = 60000
    milliseconds between commits; 0 or less: only when asked for, and at a clean stop
task.chooser.class: class = round-robin
    which message comes next: round-robin, or a chooser (__main__.Class in a notebook)
task.consumer.batch.size: integer = 1, at least 1
    how many in a row come from one partition
task.batch.messages: integer = 10000, at least 1
    how many messages process_batch gets at most
task.capture: on | off = on
    a container that fails writes a capture
task.capture.mb: integer = 64, at least 1
    the size of a capture in megabytes, at most
task.capture.path: text
    where captures are written; else beside the checkpoints
task.output.suffix: text
    is put behind the name of each stream that tasks send to, as a backfill does to write beside a job
task.poll.interval.ms: integer = 50
    how long a partition that ran dry waits while others are busy; longer if 250 did
task.max.idle.ms: integer = 10
    how long the event loop sleeps when there is nothing to do; with many partitions longer
task.shutdown.ms: integer = 30000
    how long a stop waits for threads and processes
task.ignored.exceptions: names
    exceptions of the task that are counted and passed over: class names, or *
task.ignored.exceptions.dead.letter: boolean = false
    messages at which such an exception was raised go to task.dead.letter.stream, as they are and with the
    traceback
task.drop.deserialization.errors: boolean = false
    pass over messages that cannot be decoded, and count them
task.drop.serialization.errors: boolean = false
    pass over messages that cannot be sent, and count them
task.dead.letter.stream: text
    where messages go, as they are and with the reason, that cannot be decoded or sent
task.checkpoint.system: text
    where checkpoints are kept: a system, or file. Default: the only log system
task.checkpoint.path: path = checkpoints
    the directory of file checkpoints, relative to the configuration file
task.checkpoint.history: integer = 100, at least 1
    how many commits of each container are kept to rewind to
task.processing.guarantee: at-least-once | exactly-once = at-least-once
    at-least-once: after a crash outputs may be written twice; exactly-once: outputs, state and checkpoints
    are one atomic commit
task.commit.max.output.mb: integer = 16
    exactly-once: a commit is due when so many MiB of output wait for it
task.lifecycle.listeners: names
    the lifecycle listeners in force, in order
task.lifecycle.listener.<n>.class: class
    the class or factory of a lifecycle listener
"""
"""The keys of a job: its name, containers, groups, task, commits and errors.

An entry is ``key: kind = default, at least N``, with the meaning below. Where a text has only certain values,
these stand in place of the kind: ``key: one | other``."""

_NAMED = """
systems.<s>.samza.factory: class
    the kind of system: log, memory, file, ... or a SystemFactory class
systems.<s>.samza.key.serde: text
    the serde of keys; none: bytes as they are
systems.<s>.samza.msg.serde: text
    the serde of messages; none: bytes as they are
systems.<s>.samza.offset.default: oldest | newest | upcoming = upcoming
    where to begin without a checkpoint
systems.<s>.samza.landing: text
    the log system in which a system that keeps nothing is landed: received, durable, acknowledged, and read
    from there
systems.<s>.samza.landing.receive: boolean = true
    whether the job receives what is landed; false: 'streambench land' or another job does, this one only
    reads
systems.<s>.samza.landing.linger.ms: integer = 2, at least 0
    how long a message that was received waits for others to be forced to the disk with it
systems.<s>.samza.landing.strict: boolean = false
    true: a message that is too large for the log ends the receiver; false: it is a dead letter
    (task.dead.letter.stream, else the stream <s>.<t>.dead-letters of the log), or dropped where
    task.drop.deserialization.errors says so
systems.<s>.samza.fetch.threshold: integer = 10000, at least 1
    how many messages of one partition may wait in memory
systems.<s>.streams.<t>.samza.key.serde: text
    as for the system, for one stream
systems.<s>.streams.<t>.samza.msg.serde: text
    as for the system, for one stream
systems.<s>.streams.<t>.samza.offset.default: oldest | newest | upcoming
    as for the system, for one stream
systems.<s>.streams.<t>.samza.reset.offset: text = false
    true: begin at samza.offset.default, not at the checkpoint. What is neither true nor false counts as
    false, with a warning
systems.<s>.streams.<t>.samza.bounded: boolean = false
    all of the stream is there when the job starts: where it ends then, the input is at its end (see
    end_of_stream)
systems.<s>.streams.<t>.samza.priority: integer = -1
    higher comes first; negative: after all that have one
systems.<s>.streams.<t>.samza.bootstrap: boolean = false
    read this stream to its end before any other
systems.<s>.streams.<t>.partitions: integer = 1, at least 1
    how many partitions the stream gets when the job creates it; one that is there keeps its own
stores.<n>.factory: class = memory
    what keeps the state: memory, rocksdb, or a store factory
stores.<n>.key.serde: text = string
    the serde of the store's keys
stores.<n>.msg.serde: text = json
    the serde of the store's values
stores.<n>.serde.check: boolean = true
    refuse state that other serdes have written; false: the current ones can read it, and it counts as theirs
stores.<n>.changelog: text
    the stream that makes the store durable, or none. Default: one of the changelog system, or beside the
    checkpoints, if those are files
stores.<n>.changelog.min.compaction.lag.ms: integer = 14400000
    how long a new changelog keeps all, before compaction
stores.<n>.changelog.delete.retention.ms: integer = 86400000
    how long a new changelog keeps the mark of a deleted key
stores.<n>.changelog.max.message.size.bytes: integer = 1048576, at least 1
    the size from which on a value counts as large
stores.<n>.snapshot.changes: integer = 10000, at least 0
    a snapshot of the state is written beside a changelog in a log after so many changes, or as many as there
    are entries; 0: none is written or used
stores.<n>.disallow.large.messages: boolean = false
    a large value is an error when it is put, not at the commit
stores.<n>.drop.large.messages: boolean = false
    a large value is not put; it is counted, and the first one logged
stores.<n>.ttl.ms: integer, at least 0
    an entry that was not written for so many milliseconds is gone; 0: none ever is
stores.<n>.rocksdb.ttl.ms: integer
    Samza's name for stores.<n>.ttl.ms; 0 or less: none ever is
stores.<n>.object.cache.size: integer, at least 0
    how many entries are cached; 0: none. Default: 1000, for memory 0
stores.<n>.write.batch.size: integer = 500, at least 1
    how many changed entries of the cache are written to the store at once
stores.<n>.clean.on.container.start: boolean = false
    restore from the changelog, not from local files of a former run
stores.<n>.container.cache.size.bytes: integer = 104857600
    rocksdb: a container's memory for blocks that were read
stores.<n>.container.write.buffer.size.bytes: integer = 33554432
    rocksdb: a container's memory for what was written
metrics.reporters: names
    the metrics reporters in force
metrics.reporter.<n>.class: class
    snapshot, prometheus (not on Spark), log, or a MetricsReporter class
metrics.reporter.<n>.interval: text
    seconds between two reports, such as 60 or 0.5. Default: 60; prometheus: 5
metrics.reporter.<n>.blacklist: text
    a regular expression: metrics whose whole group.name it matches are left out
metrics.reporter.<n>.stream: text
    of a snapshot reporter: the stream that it writes to, as system.stream
metrics.reporter.<n>.host: text = 127.0.0.1
    of a prometheus reporter: the address that it listens on
metrics.reporter.<n>.port: integer = 0
    of a prometheus reporter: the port of container 0, the next of 1; 0: any free one
metrics.timer.enabled: true | false | sampled = sampled
    true: every call of process(), of the chooser and of stores is timed; sampled: some calls of process(), at
    no cost; false: none
serializers.registry.<n>.class: class
    what a serde is: avro, json, ..., or a Serde class or factory of one's own
serializers.registry.<n>.encoding: text = utf-8
    of a string serde: the encoding of texts
serializers.registry.<n>.type: class
    of a json or msgpack serde: a msgspec Struct, pydantic model, ... for messages
serializers.registry.<n>.schema: text
    of an avro serde: the schema, as JSON or a file relative to the configuration
serializers.registry.<n>.reader.schema: text
    of an avro serde: the schema to read by, where it is another
serializers.registry.<n>.confluent.schema.id: integer
    of an avro serde: the id in the header of each message
"""
"""The keys of streams and of what has a name of its own: systems, stores, metrics and serdes."""

_HEAD = re.compile(r"(\S+): (.+?)(?: = (.+?))?(?:, at least (\d+))?")


def _read(table: str) -> Iterator[Key]:
    for entry in re.split(r"\n(?=\S)", table.strip()):
        head, meaning = entry.split("\n", 1)
        found = _HEAD.fullmatch(head)
        assert found is not None, head
        pattern, kind, default, least = found.groups()
        values = tuple(kind.split(" | ")) if "|" in kind else ()
        checked = msgspec.convert("text" if values else kind, Kind)
        smallest = None if least is None else int(least)
        yield Key(pattern, checked, default, " ".join(meaning.split()), values, smallest)


KEYS = (*_read(_JOBS), *_read(_NAMED))
