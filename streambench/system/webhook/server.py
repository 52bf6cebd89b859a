"""The HTTP server of a consumer, on a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from streambench.config import Config
from streambench.system.address import Address, announce, listen, listening_socket
from streambench.system.webhook.acceptor import Acceptor
from streambench.system.webhook.endpoint import Endpoints
from streambench.system.webhook.settings import Listening

_KEEP_ALIVE_S = 15
_BACKLOG = 2048
_STOP_S = 1
_PAUSE_S = 0.005
_MOST_OF_HEAD = 32 << 10


class Server:
    """Serves ``endpoints`` from ``start`` to ``stop``. ``on_end`` is called, on the server's thread, with why
    it ended by itself."""

    def __init__(
        self,
        system: str,
        config: Config,
        listening: Listening,
        endpoints: Endpoints,
        on_end: Callable[[BaseException], object],
    ) -> None:
        self._system = system
        self._config = config
        self._listening = listening
        self._endpoints = endpoints
        self._on_end = on_end
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: _Server | None = None
        self._stopping = False
        self.port = listening.port

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._server.server_state.connections) if self._server is not None else 0

    def start(self) -> None:
        """Return when requests are taken. Raises ConfigError that names the key."""
        here = self._listening
        config = self._uvicorn_config()
        listener = self._listener()
        server = self._server = _Server(config)
        head_s = here.header_timeout_ms / 1000

        def connection() -> _Connection:
            return _Connection(config, server.server_state, server.acceptor, head_s)

        server.acceptor = Acceptor(listener, here.connections_max, connection, config.ssl, head_s)
        self._thread = threading.Thread(
            target=self._serve, args=(listener,), name=f"webhook {self._system}", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        root = f"{'https' if here.certificate else 'http'}://{Address(here.host, self.port)}"
        for endpoint in self._endpoints.endpoints:
            announce(endpoint.stream, f"{root}{endpoint.path}", asked=here.port)

    def _uvicorn_config(self) -> uvicorn.Config:
        here = self._listening
        config = uvicorn.Config(
            self._endpoints.app,
            interface="asgi3",
            lifespan="off",
            ws="none",
            http=H11Protocol,
            loop="asyncio",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            backlog=_BACKLOG,
            h11_max_incomplete_event_size=_MOST_OF_HEAD,
            ssl_certfile=here.certificate,
            ssl_keyfile=here.certificate_key,
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            key = f"systems.{self._system}.certificate"
            raise self._config.error(key, f"{here.certificate} and its key cannot be used: {error}") from None
        return config

    def stop(self) -> None:
        """Answer what is under way, close all connections, end the thread."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping = True
        with contextlib.suppress(RuntimeError):  # its loop has ended by itself
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._stop)
        thread.join()

    def _stop(self) -> None:
        assert self._server is not None
        self._endpoints.stop()
        self._server.ending.set()

    def _listener(self) -> socket.socket:
        address = Address(self._listening.host, self._listening.port)
        found = listen(
            lambda: listening_socket(address, _BACKLOG),
            self._listening.listen_timeout_ms / 1000,
            self._config,
            f"systems.{self._system}.port",
            address,
        )
        self.port = found.getsockname()[1]
        return found

    def _serve(self, listener: socket.socket) -> None:
        try:
            asyncio.run(self._live())
            if not self._stopping:
                raise RuntimeError("the server returned")
        except BaseException as error:
            self._on_end(error)
        finally:
            listener.close()
            self._ready.set()

    async def _live(self) -> None:
        assert self._server is not None
        self._loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._server.serve(sockets=[]))
        while not self._server.started and not serving.done():
            await asyncio.sleep(0)
        if not serving.done():
            self._server.acceptor.open()
        self._ready.set()
        await serving


class _Server(uvicorn.Server):
    """uvicorn's server, which ends as soon as it is asked to and has answered, and does not only look now and
    then whether it should."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ending = asyncio.Event()
        self.acceptor: Acceptor

    async def main_loop(self) -> None:
        tasks = {asyncio.ensure_future(super().main_loop()), asyncio.ensure_future(self.ending.wait())}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in tasks:
            each.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.acceptor.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=_STOP_S)
        until = time.monotonic() + _STOP_S
        while state.connections and time.monotonic() < until:
            await asyncio.sleep(_PAUSE_S)
        for connection in list(state.connections):
            connection.transport.abort()


class _Connection(H11Protocol):
    """A connection of uvicorn, which may not take its time over the head of a request."""

    def __init__(self, config: uvicorn.Config, state: ServerState, acceptor: Acceptor, head_s: float) -> None:
        """``head_s``: how long the head of a request may take."""
        super().__init__(config=config, server_state=state, app_state={})
        self._acceptor = acceptor
        self._head_s = head_s
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._time_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        before: Any = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._acceptor.begins_request(self)
        self._time_head()

    @property
    def is_idle(self) -> bool:
        return not self._is_answering()

    @property
    def is_unfinished(self) -> bool:
        return self._is_answering() and self.conn.their_state is h11.SEND_BODY

    def make_way(self) -> None:
        transport: Any = self.transport  # None during the handshake of TLS
        if transport is None or transport.is_closing():
            return
        if self.config.ssl is None and self.is_idle:
            self._refuse(b"503 Service Unavailable", b"retry-after: 1\r\n")
        else:
            transport.abort()  # a goodbye of TLS waits for an answer

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_timer()
        self._acceptor.forget(self)
        super().connection_lost(exc)

    def _time_head(self) -> None:
        """From the first byte to the end of a head, time runs, whatever trickles in."""
        if self._is_answering():
            self._forget_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_s, self._too_late)

    def _too_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing() and not self._is_answering():
            self._refuse(b"408 Request Timeout", b"")

    def _is_answering(self) -> bool:
        cycle: Any = self.cycle  # None before the first head
        return cycle is not None and not cycle.response_complete

    def _refuse(self, status: bytes, headers: bytes) -> None:
        self.transport.write(
            b"HTTP/1.1 %b\r\n%bconnection: close\r\ncontent-length: 0\r\n\r\n" % (status, headers)
        )
        self.transport.close()

    def _forget_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
