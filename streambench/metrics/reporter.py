"""Reporters: they get a container's metrics from time to time."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from streambench import imports as load
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.metrics.registry import Reading
from streambench.model import SystemStream
from streambench.suggestions import suggest

GROUP = "streambench.reporters"
"""The group of entry points by which a package adds reporters."""

BUILTIN = {
    "log": "streambench.metrics.log_reporter:LogReporter",
    "prometheus": "streambench.metrics.prometheus_reporter:PrometheusReporter",
    "snapshot": "streambench.container.observe.snapshot_reporter:SnapshotReporter",
}

_COMMON = ("class", "interval", "blacklist")


class MetricsReport(Struct, frozen=True):
    """The metrics of a container at ``time_ms``. ``job_name`` and ``job_id``: each for itself, as Samza has
    them. ``sources``: what has metrics, the container (``samza-container-0``) first, then its tasks
    (``TaskName-Partition 0``). ``reset_time_ms``: since when counters count."""

    job_name: str
    job_id: str
    container: int
    host: str
    version: str
    time_ms: int
    reset_time_ms: int
    sources: Mapping[str, Sequence[Reading]]

    @property
    def job(self) -> str:
        """The job with its id, as it owns its checkpoints: ``name-id``."""
        return f"{self.job_name}-{self.job_id}"

    @property
    def container_name(self) -> str:
        """The container as Samza names it."""
        return f"samza-container-{self.container}"


Write = Callable[[Sequence[tuple[str, bytes]]], None]
"""Sends messages, each with its key, to a stream; returns when they are durable. Raises what the stream's
system raises."""

OpenStream = Callable[[SystemStream, str], Write]
"""From a stream, and the key that names it, to what writes to it, outside of any commit. Raises ConfigError
where there is no such system."""


class ReporterContext(Struct, frozen=True):
    """The arguments of a reporter: its name in the configuration, the configuration, the job (``name-id``),
    and the number of the container."""

    name: str
    config: Config
    job: str
    container: int
    open_stream: OpenStream

    def key(self, setting: str) -> str:
        """The configuration key of one of the reporter's settings."""
        return f"metrics.reporter.{self.name}.{setting}"


class MetricsReporter(ABC):
    """Gets the metrics of one container.

    ``start`` is called once, before anything else of the container. ``report`` is called repeatedly, and once
    more at a stop or a failure (but not a crash). ``stop`` is called once. All on the thread of the event
    loop, which waits meanwhile: a reporter must be quick.

    The class is called with ReporterContext. What ``__init__`` and ``start`` raise fails the start of the
    container. What ``report`` raises is counted, and logged the first time, and the job goes on.

    ``interval_s``: the seconds between two reports where the configuration gives none. ``settings``: the
    reporter's own keys below ``metrics.reporter.<name>.``; None: whatever is there.
    """

    interval_s: ClassVar[float] = 60
    settings: ClassVar[frozenset[str] | None] = None

    def start(self) -> None:  # noqa: B027 - optional to override
        """Open what is needed."""

    @abstractmethod
    def report(self, report: MetricsReport) -> None:
        """Here are the metrics as they are now."""

    def stop(self) -> None:  # noqa: B027 - optional to override
        """Close what was opened."""


class Reporter(Struct):
    """A reporter in force: every so many nanoseconds it gets what its blacklist (a regular expression
    over ``group.name``) leaves."""

    name: str
    made: MetricsReporter
    every_ns: int
    blacklist: re.Pattern[str] | None
    due_ns: int = 0
    has_failed: bool = False

    def report(self, report: MetricsReport) -> None:
        """Call the reporter. Raises what it raises."""
        self.made.report(report if self.blacklist is None else _without(report, self.blacklist))


def reporters(config: Config, job: str, container: int, open_stream: OpenStream) -> list[Reporter]:
    """The reporters of ``metrics.reporters``. ``metrics.reporter.<n>.class`` names a builtin one, an entry
    point, or a class (or factory) that is called with a ReporterContext.

    Raises ConfigError, MissingExtraError."""
    return [
        _reporter(ReporterContext(name, config, job, container, open_stream))
        for name in dict.fromkeys(config.names("metrics.reporters"))
    ]


def is_builtin(config: Config, name: str, kind: str) -> bool:
    """Return True where the reporter of this name is of this builtin kind, named by name or by path."""
    named = (config.text(f"metrics.reporter.{name}.class") or "").replace(":", ".")
    return named in (kind, BUILTIN[kind].replace(":", "."))


def _reporter(context: ReporterContext) -> Reporter:
    config, key = context.config, context.key("class")
    if key not in config:
        kinds = f"{', '.join(BUILTIN)}, or package.module.Class"
        raise config.error(key, f"is missing, but metrics.reporters names {context.name}; there are {kinds}")
    made = _made(context, key)
    _check_settings(context, made)
    return Reporter(context.name, made, _interval_ns(context, made), _blacklist(context))


def _made(context: ReporterContext, key: str) -> MetricsReporter:
    config = context.config
    name = config.required(key)
    try:
        kind = load.resolve(config, key, group=GROUP, builtin=BUILTIN)
    except ConfigError:
        hint = suggest(name.lower(), BUILTIN)
        if hint and "." not in name and ":" not in name:
            raise config.error(key, f"there is no '{name}'; {hint}") from None
        raise
    made: Any = load.instantiate(config, key, kind, context)
    if not isinstance(made, MetricsReporter):
        raise config.error(key, f"{name} gave a {type(made).__name__}, not a MetricsReporter")
    return made


def _check_settings(context: ReporterContext, made: MetricsReporter) -> None:
    if made.settings is None:
        return
    known = [*_COMMON, *sorted(made.settings)]
    for setting in context.config.below(context.key("")):
        if setting not in known:
            hint = suggest(setting, known, f"it has {', '.join(known)}", prefix=context.key(""))
            raise context.config.error(
                context.key(setting), f"is not a setting of this kind of reporter; {hint}"
            )


def _interval_ns(context: ReporterContext, made: MetricsReporter) -> int:
    key = context.key("interval")
    text = context.config.text(key)
    try:
        seconds = made.interval_s if text is None else float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 1e9:
        raise context.config.error(key, f"'{text}' is not a number of seconds above 0")
    return int(seconds * 1e9)


def _blacklist(context: ReporterContext) -> re.Pattern[str] | None:
    key = context.key("blacklist")
    text = context.config.text(key)
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise context.config.error(key, f"'{text}' is not a regular expression: {error}") from None


def _without(report: MetricsReport, blacklist: re.Pattern[str]) -> MetricsReport:
    # A source stays, though all of its metrics may be left out.
    sources = {
        source: [each for each in readings if not blacklist.fullmatch(f"{each.group}.{each.name}")]
        for source, readings in report.sources.items()
    }
    return replace(report, sources=sources)
