"""``streambench kafka``: a local Kafka to try things out with, and a repair for any Kafka."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streambench.cli.job import JobOption, complete_words, stream_in, systems_of
from streambench.counts import counted
from streambench.errors import MissingExtraError

if TYPE_CHECKING:
    from streambench.testing.brokers.kafka import KafkaNodes

kafka = typer.Typer(
    no_args_is_help=True, help="A Kafka of your own on this machine (127.0.0.1 only); and a repair for any."
)

Directory = Annotated[
    Path,
    typer.Option(
        "--dir", metavar="DIR", file_okay=False, help="Where it keeps its data, logs and process ids."
    ),
]
_DEFAULT = Path(".kafka")


@kafka.command()
def start(
    directory: Directory = _DEFAULT,
    nodes: Annotated[
        int | None,
        typer.Option(metavar="N", help="1 or 3 nodes. Default: 1, or as many as it has.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            min=0,
            max=65_535,
            help="The port of the first node; 0: any. Default: 9092, or as before.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start Kafka, and return when it is ready; the last word of the output is its bootstrap servers.

    It needs Java 17. Kafka itself is fetched once with Maven, or taken from KAFKA_HOME. It runs until
    "streambench kafka stop".

    Examples:

        streambench kafka start

        streambench kafka start --dir /tmp/three --nodes 3 --port 19092
    """
    cluster = _nodes(directory)
    was = len(cluster.running())
    began = time.monotonic()
    started = cluster.start(nodes, port)
    number = len(started.ports)
    how = "is running already" if was == number else f"is ready after {time.monotonic() - began:.1f} s"
    print(f"Kafka ({counted(number, 'node')}) {how}: {started.servers}")


@kafka.command()
def stop(directory: Directory = _DEFAULT) -> None:
    """Stop Kafka. Its data stays, and the next start continues with it. Without effect where none runs.

    Examples:

        streambench kafka stop

        streambench kafka stop --dir /var/tmp/kafka
    """
    stopped = _nodes(directory).stop()
    print(
        f"Kafka has stopped ({counted(len(stopped), 'node')})"
        if stopped
        else f"there is no Kafka running in {directory}"
    )


@kafka.command()
def status(directory: Directory = _DEFAULT) -> None:
    """Show whether Kafka runs. The exit code is 0 where all of its nodes do, else 1.

    Examples:

        streambench kafka status
    """
    nodes = _nodes(directory)
    cluster, running = nodes.cluster, nodes.running()
    if cluster is None:
        print(f"there is no Kafka in {directory}")
        raise typer.Exit(1)
    for number, port in enumerate(cluster.ports, 1):
        pid = running.get(number)
        what = f"runs on port {port} (process {pid})" if pid is not None else f"does not run (port {port})"
        print(f"node {number} {what}; its log: {nodes.log(number)}")
    print(f"{len(running)} of {counted(len(cluster.ports), 'node')}: {cluster.servers}")
    if len(running) < len(cluster.ports):
        raise typer.Exit(1)


@kafka.command()
def repair(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[JOB.properties] SYSTEM.STREAM", show_default=False, autocompletion=complete_words
        ),
    ],
    config: JobOption = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also end those that no broker reports: first make sure that their producers are gone.",
        ),
    ] = False,
) -> None:
    """End the transactions that hang in a stream of any Kafka, after a broker was killed while it ended them.

    Whether a transaction hangs is looked at twice, some seconds apart: those of producers that live are let
    alone. It needs a user who may describe all transactional ids, else it cannot know, says so, and ends
    nothing.

    What stands behind them can be read again then; what is in them is gone. Of a job that is exactly once
    these are all outputs, changes of state and checkpoints of its last commit. End them in all streams that
    it writes, before it is started again.

    Examples:

        streambench kafka repair kafka.orders -c job.properties
    """
    settings, stream = stream_in(config, words)
    with systems_of(settings) as systems:
        admin = systems.admin(stream.system)
        if not hasattr(admin, "abort_hanging"):
            raise typer.BadParameter(f"{stream.system} is no Kafka")
        ended, unknown = admin.abort_hanging(stream, force=force)
    for each in ended:
        print(f"{stream}.{each.partition.partition}: ended the transaction at offset {each.start}")
    for each in unknown:
        print(each.described(stream.system))
    if unknown:
        raise typer.Exit(1)
    if not ended:
        print(f"{stream}: no transaction hangs")


def _nodes(directory: Path) -> KafkaNodes:
    try:
        from streambench.testing.brokers.kafka import KafkaNodes
    except ModuleNotFoundError as error:
        raise MissingExtraError("Kafka", "kafka") from error
    return KafkaNodes(directory, report=lambda text: print(text, file=sys.stderr, flush=True))
