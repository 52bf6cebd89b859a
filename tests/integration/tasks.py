"""The tasks of these tests. They are copied beside the configuration of a job and loaded from there, as
a user's own would be."""

from __future__ import annotations

import re
from typing import Any

import streambench as sb

DELAYS = sb.SystemStream("log", "delays")
ARRIVALS = sb.SystemStream("log", "arrivals")
ZONES = sb.SystemStream("log", "zones")

_REQUEST = re.compile(
    r'(?P<host>\S+) \S+ \S+ \[(?P<day>[^:]+):(?P<hour>\d\d)[^\]]*\] "\S+ (?P<path>\S+) [^"]*" '
    r"(?P<status>\d{3}) (?P<bytes>\d+|-)"
)


class Weather(sb.StreamTask):
    """Per airport and month: how many hours were reported, how many of them with a temperature, and the sum
    of these."""

    def init(self, context: sb.TaskContext) -> None:
        self.months = context.store("months")

    def process(self, envelope: Any, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator) -> None:
        hour = envelope.message
        month = f"{hour['origin']}-{hour['month']}"
        so_far = self.months.get(month) or {"hours": 0, "measured": 0, "sum": 0.0}
        so_far["hours"] += 1
        if hour["temp"] != "NA":
            so_far["measured"] += 1
            so_far["sum"] += float(hour["temp"])
        self.months.put(month, so_far)


class WebLog(sb.StreamTask):
    """Per path: hits and bytes. Per hour: how many answers of each class of status."""

    def init(self, context: sb.TaskContext) -> None:
        self.paths = context.store("paths")
        self.hours = context.store("hours")

    def process(self, envelope: Any, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator) -> None:
        found = _REQUEST.match(envelope.message)
        if found is None:
            raise ValueError("this is no request")
        hits, size = self.paths.get(found["path"]) or (0, 0)
        self.paths.put(
            found["path"], (hits + 1, size + (0 if found["bytes"] == "-" else int(found["bytes"])))
        )
        hour, status = f"{found['day']} {found['hour']}", f"{found['status'][0]}xx"
        counts = self.hours.get(hour) or {}
        counts[status] = counts.get(status, 0) + 1
        self.hours.put(hour, counts)


class Zones(sb.StreamTask):
    """Tells of each flight in which time zone it leaves, from a table of airports that is read first."""

    def init(self, context: sb.TaskContext) -> None:
        self.zones: dict[str, str] = {}

    def process(self, envelope: Any, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator) -> None:
        message = envelope.message
        if envelope.ssp.stream == "airports":
            self.zones[message["faa"]] = message["tzone"]
        else:
            zone = self.zones.get(message["origin"], "unknown")
            collector.send(
                sb.OutgoingMessageEnvelope(ZONES, {"zone": zone, "delay": message["delay"]}, key=zone)
            )


class Delays(sb.StreamTask):
    """Keeps the delays of each airport; sends how it stands, into the partition it came from, and on to the
    place where the flight goes."""

    def init(self, context: sb.TaskContext) -> None:
        self.airports = context.store("airports")

    def process(self, envelope: Any, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator) -> None:
        flight, partition = envelope.message, envelope.ssp.partition
        flights, delay = self.airports.get(envelope.key) or (0, 0)
        self.airports.put(envelope.key, (flights + 1, delay + flight["delay"]))
        state = {"flights": flights + 1, "delay": delay + flight["delay"], "offset": envelope.offset}
        collector.send(sb.OutgoingMessageEnvelope(DELAYS, state, key=envelope.key, partition=partition))
        if flight["delay"] > 60:
            arrival = {"origin": envelope.key, "from": partition, "offset": envelope.offset}
            collector.send(sb.OutgoingMessageEnvelope(ARRIVALS, arrival, key=flight["destination"]))
