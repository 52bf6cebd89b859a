"""The thread that posts: requests, repeated until they are taken or given up."""

from __future__ import annotations

import asyncio
import email.utils
import logging
import random
import ssl
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable

import httpx
from msgspec import Struct, field

from streambench.errors import StreamSystemError, described
from streambench.model import SystemStream
from streambench.system.webhook.post_settings import Target
from streambench.system.webhook.settings import Posting

log = logging.getLogger("streambench.webhook")

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_MOST_OF_BODY = 200
_READ_OF_BODY = 4096
_THREAD = "webhook posts"
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


# httpx logs whole URLs, and those of webhooks are often secret.
logging.getLogger("httpx").addFilter(lambda record: record.threadName != _THREAD)

_Name = tuple[SystemStream, int]
"""A queue of a stream."""


class Message(Struct, gc=False):
    """A message to be posted. ``query``: what it adds to the URL."""

    target: Target
    body: bytes
    headers: dict[str, str]
    query: str | None = None


class _Attempt(Struct):
    """The end of an attempt that did not succeed. ``again``: a later one may; not before ``pause_s``, where
    the receiver said so."""

    what: str
    again: bool
    pause_s: float = 0


class _Queue(Struct):
    """Messages that are posted one request after the other. ``is_due``: they are being posted."""

    waiting: deque[Message] = field(default_factory=deque)
    is_due: bool = False


class HttpSender:
    """Posts what is put into it. A queue is posted one request after the other.

    ``posts``: how many requests were answered with success; ``repeated``: how many attempts were not the
    first."""

    def __init__(self, posting: Posting, certificates: ssl.SSLContext) -> None:
        self.posts = self.repeated = 0
        self._posting = posting
        self._certificates = certificates
        self._queues: dict[_Name, _Queue] = {}
        self._changed = threading.Condition()
        self._pending = 0
        self._failure: StreamSystemError | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._posts: set[asyncio.Task[None]] = set()
        self._is_ready = threading.Event()
        self._ending: asyncio.Event | None = None
        self._stopped = False

    def start(self) -> None:
        self._thread = threading.Thread(target=self._live, name=_THREAD, daemon=True)
        self._thread.start()
        self._is_ready.wait()
        self._raise_failure()

    def stop(self) -> None:
        """Give up what is under way, and end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None and self._loop is not None and self._ending is not None:
            self._loop.call_soon_threadsafe(self._ending.set)
            thread.join()

    def put(self, message: Message, queue: int) -> None:
        """Have a message posted, after those of its queue. Waits while too many are pending. Raises what has
        ended the posting."""
        name = message.target.stream, queue
        with self._changed:
            while self._pending >= self._posting.post_pending_messages and self._failure is None:
                self._notify(self._begin_all)
                self._changed.wait()
            self._raise_failure()
            self._pending += 1
            known = self._queues.setdefault(name, _Queue())
            known.waiting.append(message)
            count = len(known.waiting)
            if known.is_due or 1 < count < message.target.messages:
                return
            if count < message.target.messages:
                self._notify(self._begin_soon, name)
            else:
                known.is_due = True
                self._notify(self._begin, name)

    def flush(self) -> None:
        """Return when everything has been taken. Raises StreamSystemError."""
        with self._changed:
            if self._pending:
                self._notify(self._begin_all)
            while self._pending and self._failure is None:
                self._changed.wait()
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise StreamSystemError(str(self._failure)) from self._failure.__cause__

    def _live(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._fail(StreamSystemError(f"nothing can be posted: {described(error)}"))
        else:
            self._fail(StreamSystemError("the producer has been stopped"))
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        self._ending = asyncio.Event()
        posting = self._posting
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=posting.post_concurrency * 4)
        # Whatever proxy the environment names, this machine is not behind it.
        direct = {
            pattern: httpx.AsyncHTTPTransport(verify=self._certificates, limits=limits)
            for pattern in _LOOPBACK
        }
        async with httpx.AsyncClient(
            verify=self._certificates, timeout=posting.post_timeout_ms / 1000, limits=limits, mounts=direct
        ) as client:
            self._client = client
            self._loop = asyncio.get_running_loop()
            self._is_ready.set()
            await self._ending.wait()
            for task in self._posts:
                task.cancel()
            await asyncio.gather(*self._posts, return_exceptions=True)

    def _notify(self, what: Callable[..., object], *arguments: object) -> None:
        """Have the thread do something. With the lock held."""
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(what, *arguments)

    def _begin_soon(self, name: _Name) -> None:
        asyncio.get_running_loop().call_later(
            self._posting.post_linger_ms / 1000, self._begin_if_not_due, name
        )

    def _begin_all(self) -> None:
        for name in list(self._queues):
            self._begin_if_not_due(name)

    def _begin_if_not_due(self, name: _Name) -> None:
        with self._changed:
            queue = self._queues.get(name)
            if queue is None or queue.is_due:
                return
            queue.is_due = True
        self._begin(name)

    def _begin(self, name: _Name) -> None:
        task = asyncio.ensure_future(self._drain(name))
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def _drain(self, name: _Name) -> None:
        """Post all of a queue."""
        while self._failure is None:
            with self._changed:
                waiting = self._queues[name].waiting
                if not waiting:
                    del self._queues[name]
                    return
                messages = _together(waiting)
            try:
                await self._post(messages)
            except StreamSystemError as error:
                self._fail(error)
            except Exception as error:
                failure = StreamSystemError(f"{name[0]}: cannot be posted: {described(error)}")
                failure.__cause__ = error
                self._fail(failure)
            else:
                with self._changed:
                    self._pending -= len(messages)
                    self._changed.notify_all()

    def _fail(self, failure: StreamSystemError) -> None:
        with self._changed:
            self._failure = self._failure or failure
            self._changed.notify_all()

    async def _post(self, messages: list[Message]) -> None:
        """Post messages as one request until it is taken. Raises StreamSystemError."""
        target = messages[0].target
        body = b"\n".join(each.body for each in messages)
        kind = "application/json" if target.is_json else "application/octet-stream"
        if len(messages) > 1:
            kind = "application/x-ndjson"
        own = {name.lower(): value for name, value in messages[0].headers.items()}
        headers = {"idempotency-key": uuid.uuid4().hex, **own, "content-type": kind}
        url = httpx.URL(target.url)
        if messages[0].query is not None:
            url = url.copy_with(query=b"&".join(filter(None, (url.query, messages[0].query.encode()))))
        until = time.monotonic() + self._posting.post_retry_ms / 1000
        pause = self._posting.post_backoff_ms / 1000
        number = 1
        while (failed := await self._attempt(target, url, body, headers)) is not None:
            place = f"{target.stream}: POST to {target.place} {failed.what}"
            if not failed.again:
                raise StreamSystemError(f"{place}; nothing more is posted")
            # Chance keeps many senders from coming back all at once.
            rest = max(failed.pause_s, pause * random.uniform(0.5, 1))
            left = until - time.monotonic()
            if rest > left:
                asked = f" (it asks for {failed.pause_s:g} s more)" if failed.pause_s > max(left, 0) else ""
                system = target.stream.system
                raise StreamSystemError(
                    f"{place}{asked}; given up after {number} attempts (systems.{system}.post.retry.ms)"
                )
            if number == 1:
                log.warning("%s; it is tried again for %g s", place, self._posting.post_retry_ms / 1000)
            await asyncio.sleep(rest)
            pause = min(pause * 2, self._posting.post_backoff_max_ms / 1000)
            number += 1
            self.repeated += 1
        self.posts += 1

    async def _attempt(
        self, target: Target, url: httpx.URL, body: bytes, headers: dict[str, str]
    ) -> _Attempt | None:
        """Post once; None where it was taken."""
        signed = headers | target.credentials.proof(body)
        try:
            async with (
                asyncio.timeout(self._posting.post_timeout_ms / 1000),
                self._client.stream("POST", url, content=body, headers=signed) as response,
            ):
                if response.is_success:
                    return None
                answer = await _beginning(response)
        except TimeoutError:
            return _Attempt(f"had no answer within {self._posting.post_timeout_ms / 1000:g} s", again=True)
        except (httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            return _Attempt(f"cannot be done: {error}", again=False)
        except httpx.TransportError as error:
            what, cause = f"failed: {described(error)}", error.__cause__
            if isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
                hint = f"systems.{target.stream.system}.post.ca names certificates to trust"
                return _Attempt(f"{what} ({hint})", again=False)
            return _Attempt(what, again=True)
        status = response.status_code
        answer = target.credentials.without_secrets(answer)[:_MOST_OF_BODY]
        what = f"was answered {status} {response.reason_phrase}".rstrip() + (f": {answer}" if answer else "")
        return _Attempt(what, status in _AGAIN, _retry_after(response.headers.get("retry-after", "")))


def _together(waiting: deque[Message]) -> list[Message]:
    """Take the first messages of a queue, as many as go into one request: those that have nothing of their
    own but a line."""
    first = waiting.popleft()
    found = [first]
    if _is_plain(first):
        while waiting and len(found) < first.target.messages and _is_plain(waiting[0]):
            found.append(waiting.popleft())
    return found


def _is_plain(message: Message) -> bool:
    has_more = message.headers or message.query is not None or message.target.messages == 1
    return not has_more and b"\n" not in message.body and not message.body.isspace() and message.body != b""


async def _beginning(response: httpx.Response) -> str:
    """The first words of an answer, in one line."""
    found = b""
    async for chunk in response.aiter_bytes():
        found += chunk
        if len(found) >= _READ_OF_BODY:
            break
    text = " ".join(found[:_READ_OF_BODY].decode(errors="replace").split())
    return "".join(each if each.isprintable() else "?" for each in text)


def _retry_after(value: str) -> float:
    """Seconds from now, of what a Retry-After header says: seconds or a date; 0 where it says nothing that
    can be understood."""
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
