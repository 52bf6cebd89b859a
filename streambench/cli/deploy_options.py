"""The options of one deployment, for ``streambench deploy`` and ``%stream deploy``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from streambench.cli.option_groups import Option, OptionError
from streambench.cli.running_option import RunningOption

if TYPE_CHECKING:
    from streambench.config import Config
    from streambench.spark.backfill import Backfill

_PLACES = ("oldest", "upcoming", "timestamp:")


class DeployOptions(RunningOption):
    """The options of one deployment. ``begin`` and ``end`` are those of the range of a backfill."""

    dry_run: Annotated[bool, Option(help="Only show what would be done.")] = False
    containers: Annotated[
        int | None,
        Option(metavar="N", least=1, help="Over so many containers, instead of job.container.count."),
    ] = None
    max_messages: Annotated[
        int | None,
        Option(
            metavar="N",
            least=1,
            help="At most so many messages in each container and round; rounds follow each other until all "
            "is processed that was there at the first.",
        ),
    ] = None
    by_lag: Annotated[
        bool,
        Option(
            help="Containers that take about equally long, as earlier rounds have measured it; else "
            "with about as many messages to read."
        ),
    ] = False
    by_partitions: Annotated[bool, Option(help="About as many partitions in each container.")] = False
    backfill: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Process a range of the inputs again, beside the job: as the job JOB-NAME, with empty "
            "state, into outputs with -NAME behind their names.",
        ),
    ] = None
    begin: Annotated[
        list[str] | None,
        Option(
            flag="--from",
            metavar="WHERE",
            completes=_PLACES,
            help="Where the range begins: oldest, upcoming, timestamp:TIME, or one of them or an offset for "
            "a stream or partition, log.in.0@15. May be repeated.",
            shown="oldest",
        ),
    ] = None
    end: Annotated[
        list[str] | None,
        Option(
            flag="--to",
            metavar="WHERE",
            completes=_PLACES,
            help="Where it ends; the message there is not read.",
            shown="upcoming",
        ),
    ] = None

    def configured(self, settings: Config) -> Config:
        """The configuration of the job with what the options say of its containers."""
        if self.containers is not None:
            settings = settings.with_values({"job.container.count": self.containers})
        if self.max_messages is not None:
            settings = settings.with_values({"job.container.max.messages": self.max_messages})
        if self.by_lag or self.by_partitions:
            balance = "lag" if self.by_lag else "partitions"
            settings = settings.with_values({"job.container.balance": balance})
        return settings

    def range(self) -> Backfill | None:
        """The range of a backfill; None where the job itself is deployed. Raises OptionError where options
        do not go together."""
        if self.by_lag and self.by_partitions:
            raise OptionError("--by-partitions", "--by-lag is given, too: give one of them")
        if self.backfill is not None:
            from streambench.spark.backfill import Backfill

            return Backfill(self.backfill, self.begin or (), self.end or ())
        if self.begin or self.end:
            what = "it is the range of a backfill: give --backfill NAME"
            raise OptionError("--from" if self.begin else "--to", what)
        return None
