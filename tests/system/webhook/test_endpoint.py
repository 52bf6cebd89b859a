"""The application behind an endpoint, without a server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from streambench.config import Config
from streambench.model import SystemStream
from streambench.system.webhook.endpoint import Endpoints
from streambench.system.webhook.inbox import Inbox
from streambench.system.webhook.settings import WebhookSettings


def test_a_stop_just_when_a_body_takes_too_long_is_a_stop_like_any_other() -> None:
    settings = WebhookSettings(
        "hook", Config({"systems.hook.samza.factory": "webhook", "task.inputs": "hook.events"})
    )
    endpoint, at_once = (
        settings.endpoint(SystemStream("hook", "events")),
        replace(settings.listening(), body_timeout_ms=0),
    )
    endpoints = Endpoints([endpoint], Inbox(10, 1_000), at_once)
    problems: list[object] = []
    answer: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        # The time is over already, and what tells it to the request is called before this.
        asyncio.get_running_loop().call_soon(endpoints.stop)
        return await asyncio.get_running_loop().create_future()

    async def send(message: dict[str, Any]) -> None:
        answer.append(message)

    async def post() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: problems.append(context["exception"])
        )
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/events",
            "root_path": "",
            "query_string": b"",
            "headers": [],
        }
        await endpoints.app(scope, receive, send)  # type: ignore[arg-type]

    asyncio.run(post())
    assert (problems, answer[0]["status"]) == ([], 503)
