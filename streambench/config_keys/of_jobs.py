"""The keys of a job: its name, containers, groups, task, commits and errors."""

from __future__ import annotations

from streambench.config_keys.key import Key

JOB_KEYS = (
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
        "job.container.balance",
        "text",
        "tasks",
        "deploy gives each container equally many tasks, or about equally many partitions, or (lag) messages "
        "to read; tasks stay where they were where that is possible",
        values=("tasks", "partitions", "lag"),
    ),
    Key(
        "job.container.max.messages",
        "integer",
        None,
        "deploy: a round ends after about so many messages in each container, and the next one follows at "
        "once. Default: a round has no such bound",
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
        "task.output.suffix",
        "text",
        None,
        "is put behind the name of each stream that tasks send to, as a backfill does to write beside a job",
    ),
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
)
