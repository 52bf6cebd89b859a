"""The course of a request: its sender, size and content are checked; then it waits until that is
durable."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import count
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from streambench.model import SystemStreamPartition
from streambench.system.partitioner import partition_for
from streambench.system.webhook.body import BadBodyError, messages_of
from streambench.system.webhook.inbox import Inbox, Received, ReceivedRequest
from streambench.system.webhook.settings import Endpoint, Listening

IDEMPOTENCY_KEY = "idempotency-key"
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "x-api-key"})
_LONGEST_KEY = 255
_RETRY_AFTER = {"retry-after": "1"}
_WRONG_JOIN = "this Idempotency-Key came with another body before"

_Name = tuple[str, str]
"""A stream and an Idempotency-Key."""


class _Refused(Exception):
    """The answer to a request that is not taken."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers


class InFlightRequest(Struct, eq=False):
    """A request whose messages are not durable yet. Others with the same Idempotency-Key and body wait for
    the same. ``waiting``: how many."""

    digest: bytes
    done: asyncio.Future[None]
    received: ReceivedRequest
    waiting: int = 0


class Endpoints:
    """The ASGI application of one consumer. Everything here happens on the thread of the server, except for
    ``answered`` and ``refused``, which may be read anywhere. These count the requests that were answered, and
    those of them not with 200."""

    def __init__(self, endpoints: list[Endpoint], inbox: Inbox, listening: Listening) -> None:
        self.endpoints = endpoints
        self._inbox = inbox
        self._listening = listening
        self._keyless = {endpoint.stream: count() for endpoint in endpoints}
        self._in_flight: dict[_Name, InFlightRequest] = {}
        self._durable: OrderedDict[_Name, tuple[bytes, int]] = OrderedDict()
        self._waiting: set[asyncio.Future[None]] = set()
        self._reading: set[asyncio.Timeout] = set()
        self._stopping = False
        self.answered = self.refused = 0
        routes = [Route(endpoint.path, self._route(endpoint), methods=["POST"]) for endpoint in endpoints]
        routes.append(Route(listening.health_path, self._health, methods=["GET"]))
        # Not by a redirect, which many senders do not follow.
        routes += [
            Route(_other_slash(route.path), route.endpoint, methods=route.methods)
            for route in routes
            if route.path != "/"
        ]
        self._routed = Starlette(routes=routes, exception_handlers={HTTPException: _not_there})
        self._routed.router.redirect_slashes = False

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        names = {name for name, _ in scope["headers"]}
        if b"content-length" in names and b"transfer-encoding" in names:
            # A proxy between us and the sender may see another end of it than we do (RFC 9112, 6.1).
            self.answered += 1
            self.refused += 1
            reason = {"error": "a request has either Content-Length or Transfer-Encoding"}
            await JSONResponse(reason, 400, {"connection": "close"})(scope, receive, send)
        else:
            await self._routed(scope, receive, send)

    def stop(self) -> None:
        """Answer all requests that are under way, and those to come: 503."""
        self._stopping = True
        for done in self._waiting:
            if not done.done():
                done.cancel()
        now = asyncio.get_running_loop().time()
        for reading in self._reading:
            if not reading.expired():  # a sender that is too slow just now hears of it already
                reading.reschedule(now)

    def _route(self, endpoint: Endpoint) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            try:
                taken = await self._taken(endpoint, request)
            except _Refused as refused:
                response: Response = JSONResponse({"error": refused.reason}, refused.status, refused.headers)
            except ClientDisconnect:
                response = Response(status_code=400)  # there is no reader
            else:
                response = JSONResponse({"messages": taken})
            self.answered += 1
            self.refused += response.status_code != 200
            return response

        return answer

    async def _health(self, request: Request) -> Response:
        return JSONResponse(
            {"status": "stopping" if self._stopping else "ok"}, 503 if self._stopping else 200
        )

    async def _taken(self, endpoint: Endpoint, request: Request) -> int:
        """The number of messages of a request that are durable now. Raises _Refused."""
        self._check_head(endpoint, request)
        body = await self._body(endpoint, request)
        reserved = len(body)
        try:
            problem = endpoint.credentials.signature_problem(request.headers, body, time.time())
            if problem is not None:
                raise _Refused(401, problem)
            given = request.headers.get(IDEMPOTENCY_KEY)
            if given is not None and not 0 < len(given) <= _LONGEST_KEY:
                raise _Refused(400, f"an Idempotency-Key has 1 to {_LONGEST_KEY} characters")
            name = None if given is None else (endpoint.stream.stream, given)
            digest = b"" if name is None else hashlib.blake2b(body, digest_size=16).digest()
            known = None if name is None else self._durable.get(name)
            if known is not None:
                if known[0] != digest:
                    raise _Refused(422, _WRONG_JOIN)
                return known[1]
            in_flight = None if name is None else self._in_flight.get(name)
            if in_flight is None:
                in_flight = self._accepted(endpoint, request, body, name, digest)
                reserved = 0
            elif in_flight.digest != digest:
                raise _Refused(422, _WRONG_JOIN)
        finally:
            if reserved:
                self._inbox.release(reserved)
        return await self._durably(in_flight, name)

    def _check_head(self, endpoint: Endpoint, request: Request) -> None:
        headers = request.headers
        if self._stopping:
            raise _stopping()
        if not endpoint.credentials and "origin" in headers:
            # A page of any site can have a browser post to this machine; without a token nothing else
            # distinguishes that from a sender.
            raise _Refused(403, "requests of web pages are not taken without a token or a signature")
        problem = endpoint.credentials.token_problem(headers)
        if problem is not None:
            raise _Refused(401, problem, {"www-authenticate": "Bearer"})
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise _Refused(415, "bodies are taken uncompressed only")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > endpoint.form.max_body_bytes:
            raise self._too_large(endpoint)

    async def _body(self, endpoint: Endpoint, request: Request) -> bytes:
        """The body, whose bytes are then reserved in the inbox. It is counted as it comes, whatever the
        request says of its length."""
        chunks: list[bytes] = []
        size = 0
        kept = False
        reading = asyncio.timeout(self._listening.body_timeout_ms / 1000)
        try:
            async with reading:
                self._reading.add(reading)
                async for chunk in request.stream():
                    if size + len(chunk) > endpoint.form.max_body_bytes:
                        raise self._too_large(endpoint)
                    if chunk and not self._inbox.reserve(len(chunk)):
                        raise _busy()
                    size += len(chunk)
                    chunks.append(chunk)
            kept = True
        except TimeoutError:
            raise (
                _stopping()
                if self._stopping
                else _Refused(408, "the body took too long", {"connection": "close"})
            ) from None
        finally:
            self._reading.discard(reading)
            if not kept:
                self._inbox.release(size)
        if self._stopping:
            self._inbox.release(size)
            raise _stopping()
        return b"".join(chunks)

    def _accepted(
        self, endpoint: Endpoint, request: Request, body: bytes, name: _Name | None, digest: bytes
    ) -> InFlightRequest:
        """Put the messages of a body into the inbox. Raises _Refused."""
        messages = self._messages(endpoint, request, body)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def durable() -> None:
            if name is not None:
                self._in_flight.pop(name, None)
                self._remember(name, digest, len(messages))
            if not done.done():
                done.set_result(None)

        def on_done() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the connection
                loop.call_soon_threadsafe(durable)

        headers, now_ms = _kept_headers(endpoint, request), int(time.time() * 1000)
        received = ReceivedRequest(len(messages), len(body), headers, now_ms, on_done)
        if not self._inbox.put(received, self._by_partition(endpoint, messages)):
            raise _busy()
        in_flight = InFlightRequest(digest, done, received)
        if name is not None:
            self._in_flight[name] = in_flight
        return in_flight

    def _messages(self, endpoint: Endpoint, request: Request, body: bytes) -> list[Received]:
        """The messages of a body. Raises _Refused."""
        content_type, key = request.headers.get("content-type", ""), _key(endpoint, request)
        try:
            messages = messages_of(endpoint, body, content_type, key)
        except BadBodyError as error:
            raise _Refused(400, str(error)) from None
        most = self._inbox.most_messages
        if len(messages) > most:
            why = f"a request may have {most} messages at most, and this one has {len(messages)}"
            raise _Refused(413, why)
        return messages

    def _by_partition(
        self, endpoint: Endpoint, messages: list[Received]
    ) -> dict[SystemStreamPartition, list[Received]]:
        system, stream = endpoint.stream.system, endpoint.stream.stream
        parts: dict[SystemStreamPartition, list[Received]] = {}
        for each in messages:
            if each.key is None:
                partition = next(self._keyless[endpoint.stream]) % endpoint.partitions
            else:
                partition = partition_for(each.key, endpoint.partitions)
            parts.setdefault(SystemStreamPartition(system, stream, partition), []).append(each)
        return parts

    async def _durably(self, in_flight: InFlightRequest, name: _Name | None) -> int:
        """Wait until messages are durable, as long as a request may."""
        done = in_flight.done
        in_flight.waiting += 1
        self._waiting.add(done)
        try:
            await asyncio.wait([done], timeout=self._listening.acknowledge_timeout_ms / 1000)
        finally:
            in_flight.waiting -= 1
            if not in_flight.waiting:
                self._waiting.discard(done)
        if done.done() and not done.cancelled():
            return in_flight.received.count
        if not in_flight.waiting and self._inbox.withdraw(in_flight.received) and name is not None:
            # What was delivered stays under way: a sender that tries again joins it.
            self._in_flight.pop(name, None)
        if self._stopping:
            raise _stopping()
        raise _Refused(503, "the messages are not durable yet: send them again", _RETRY_AFTER)

    def _remember(self, name: _Name, digest: bytes, messages: int) -> None:
        self._durable[name] = digest, messages
        while len(self._durable) > self._listening.idempotency_keys:
            self._durable.popitem(last=False)

    @staticmethod
    def _too_large(endpoint: Endpoint) -> _Refused:
        return _Refused(413, f"a body may have {endpoint.form.max_body_bytes} bytes at most")


def _other_slash(path: str) -> str:
    """The same path with a slash at its end, or without that slash."""
    return path[:-1] if path.endswith("/") else f"{path}/"


async def _not_there(request: Request, error: Exception) -> Response:
    """The answer to what no route takes."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    reason = f"{request.method} is not taken at {path}"
    if error.status_code == 404:
        reason = f"nothing is received at {path}"
    return JSONResponse({"error": reason}, error.status_code, error.headers)


def _busy() -> _Refused:
    return _Refused(503, "too much waits to become durable: send it again later", _RETRY_AFTER)


def _stopping() -> _Refused:
    return _Refused(
        503, "this receiver is stopping: send it again later", {**_RETRY_AFTER, "connection": "close"}
    )


def _key(endpoint: Endpoint, request: Request) -> bytes | None:
    """The key that all messages of a request have."""
    # Latin-1 gives each byte back as it came, whatever it stands for.
    if endpoint.form.key_header is not None:
        what, name, found = "header", endpoint.form.key_header, request.headers.get(endpoint.form.key_header)
    elif endpoint.form.key_query is not None:
        what, name = "parameter of the URL", endpoint.form.key_query
        query: bytes = request.scope["query_string"]
        found = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")).get(
            name.encode().decode("latin-1")
        )
    else:
        return None
    if not found:
        raise _Refused(400, f"there is no {what} '{name}', which is to be the key of the message")
    return found.encode("latin-1")


def _kept_headers(endpoint: Endpoint, request: Request) -> dict[str, bytes] | None:
    wanted = [each.lower() for each in endpoint.form.headers]
    secret = _SECRET_HEADERS | endpoint.credentials.header_names
    names = request.headers.keys() if "*" in wanted else wanted
    kept = {
        name: request.headers[name].encode("latin-1")
        for name in names
        if name in request.headers and name not in secret
    }
    if IDEMPOTENCY_KEY in request.headers:
        kept[IDEMPOTENCY_KEY] = request.headers[IDEMPOTENCY_KEY].encode("latin-1")
    return kept or None
