"""Outputs that are committed and not visible yet, as a notebook tells of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from unittest import mock

from streambench.errors import StreambenchError
from streambench.system.producers_applier import ProducersApplier
from tests.magics.conftest import Shell


def test_a_notebook_is_told_what_is_committed_and_not_visible_yet(ip: Shell, tmp_path: Path) -> None:
    ip.run(
        "%%streamtask Forward\nimport streambench as sb\n\ndef process(envelope, collector, coordinator):\n"
        "    collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream('log', 'out'), envelope.message))\n"
    )
    ip.run(
        "%%streamconfig "
        f"once\nsystems.log.samza.factory=log\nsystems.log.path={tmp_path}\n"
        f"systems.log.samza.offset.default=oldest\n"
        "task.inputs=log.in\ntask.processing.guarantee=exactly-once\n"
    )
    ip.run("%stream streams create log.in log.out --config once")
    ip.run("%stream send log.in hello --config once")
    ip.run("%stream create Forward --config once")
    ip.run("%stream step")
    with (
        mock.patch.object(
            ProducersApplier, "apply", side_effect=StreambenchError("the process ends here")
        ),
        suppress(StreambenchError),
    ):
        ip.run("%stream commit")
    for command in (
        "peek log.out --config once",
        "streams log.out --config once",
        "checkpoints",
        "checkpoints --history",
    ):
        assert "ended right after a commit" in ip.run(f"%stream {command}"), command
