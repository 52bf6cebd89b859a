"""The status of a deployment service, for others to see: a file, and an HTTP server on this machine."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from streambench.errors import StreamSystemError
from streambench.fsync import write_durably
from streambench.spark.service import ServiceStatus


class StatusFile:
    """A file that holds the last status as JSON, whole at any moment."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, status: ServiceStatus) -> None:
        """Replace the content. Raises StreamSystemError where it cannot; it stays as it was then."""
        try:
            write_durably(self._path, msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n")
        except OSError as error:
            what = f"the status file {self._path} cannot be written: {error.strerror}"
            raise StreamSystemError(f"{what}; mend that, or give another file") from error


class HealthServer:
    """``/healthz`` answers 200 where all is well, else 503, with the status and the problems as JSON. It
    listens on the loopback interface only."""

    def __init__(self, port: int) -> None:
        """``port`` 0: a free one. Raises StreamSystemError where it is taken."""
        try:
            self._server = _Server(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise StreamSystemError(
                f"port {port} cannot be listened on: {error.strerror}; give another"
            ) from error
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="healthz", daemon=True).start()

    def show(self, status: ServiceStatus) -> None:
        """Answer with this status from now on."""
        # A copy: this one changes, while requests are answered on other threads.
        self._server.status = msgspec.convert(msgspec.to_builtins(status), ServiceStatus)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    status: ServiceStatus | None = None  # replaced as a whole, by another thread

    def answer(self) -> tuple[int, bytes]:
        """The status code and the body, as of now: a round that hangs reports nothing."""
        if self.status is None:
            return 503, msgspec.json.encode({"problems": ["the service has not begun yet"]})
        problems = self.status.problems(time.time_ns() // 1_000_000)
        body = {**msgspec.to_builtins(self.status), "problems": problems}
        return 503 if problems else 200, msgspec.json.encode(body)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    # Each connection has a thread: one that sends no request must not keep its own for ever.
    timeout = 5.0

    def do_GET(self) -> None:
        code, body = self.server.answer()
        if self.path != "/healthz":
            code, body = 404, b'{"error":"there is only /healthz"}'
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Stay quiet."""
