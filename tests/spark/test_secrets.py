"""A deployment takes references to Spark, and not what they stand for."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import streambench as sb
from streambench.spark import DeployError, deploy
from streambench.spark import round as round_module
from tests.spark.conftest import Job
from tests.system.webhook.receiving import Receiver


class Posts(sb.StreamTask):
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("out", "alarms"), envelope.message))


@pytest.fixture
def token() -> str:
    """It stands in no source, as those of tasks are shipped."""
    return uuid.uuid4().hex


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that is handed to Spark."""
    found: list[bytes] = []
    pack = round_module.pack

    def kept(shipment: Any) -> Any:
        packed = pack(shipment)
        found.append(packed.shipment)
        return packed

    monkeypatch.setattr(round_module, "pack", kept)
    return found


def webhook(url: str, token: str) -> dict[str, Any]:
    own = {"samza.factory": "webhook", "samza.msg.serde": "json", "token": token, "streams.alarms.url": url}
    return {f"systems.out.{key}": value for key, value in own.items()}


def test_executors_resolve_references_that_the_plan_only_carries(
    job: Job, spark: Any, shipped: list[bytes], token: str
) -> None:
    (job.directory / "token").write_text(token)
    job.send(0, 4)
    with Receiver() as receiver:
        result = deploy(
            job.config.with_values(webhook(f"{receiver.url}/x", "${file:token}")), Posts, spark=spark
        )
    assert result.messages == 4
    assert {each.headers["authorization"] for each in receiver.requests} == {f"Bearer {token}"}
    assert shipped
    assert all(b"${file:token}" in each and token.encode() not in each for each in shipped)
    assert token not in repr(result)


def test_an_executor_that_lacks_a_variable_names_key_and_reference(
    job: Job, spark: Any, shipped: list[bytes], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.send(0, 4)
    monkeypatch.setenv(
        "ONLY_OF_THE_DRIVER", token
    )  # the executors' processes have the environment that Spark was started with
    settings = webhook("http://127.0.0.1:1/x", "${env:ONLY_OF_THE_DRIVER}")
    with pytest.raises(DeployError) as raised:
        deploy(job.config.with_values(settings), Posts, spark=spark)
    assert "systems.out.token: ${env:ONLY_OF_THE_DRIVER}: there is no environment variable" in str(
        raised.value
    )
    assert all(token.encode() not in each for each in shipped)
    assert token not in repr(raised.value) + repr(raised.value.result)
