"""The status of a deployment service, for others to see: a file, and an HTTP server on this machine."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from streambench.errors import StreamSystemError
from streambench.spark.service import ServiceStatus


class StatusFile:
    """A file that holds the last status as JSON, whole at any moment."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, status: ServiceStatus) -> None:
        """Replace the content."""
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            new.write_bytes(msgspec.json.format(msgspec.json.encode(status), indent=2) + b"\n")
            new.replace(self._path)
        except OSError as error:
            raise StreamSystemError(
                f"the status file {self._path} cannot be written: {error.strerror}"
            ) from error


class HealthServer:
    """``/healthz`` answers 200 where all is well, else 503, with the status as JSON. It listens on the
    loopback interface only."""

    def __init__(self, port: int) -> None:
        """``port`` 0: a free one. Raises StreamSystemError where it is taken."""
        self._lock = threading.Lock()
        self._answer = 503, b"{}"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer._respond(self)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Stay quiet."""

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise StreamSystemError(
                f"port {port} cannot be listened on: {error.strerror}; give another"
            ) from error
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="healthz", daemon=True).start()

    def show(self, status: ServiceStatus) -> None:
        """Answer with this status from now on."""
        with self._lock:
            self._answer = 200 if status.is_healthy else 503, msgspec.json.encode(status)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        with self._lock:
            code, body = self._answer
        if request.path != "/healthz":
            code, body = 404, b'{"error":"there is only /healthz"}'
        request.send_response(code)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
