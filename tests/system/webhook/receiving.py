"""An HTTP server of the standard library, for tests of what is posted."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from tests.surroundings import missing


class Request(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = tuple[int, dict[str, str], bytes]
TAKEN: Answer = (200, {}, b"")


class Receiver:
    """Answers requests as ``answer`` says of each, and keeps them in ``requests``. With a certificate it
    speaks https."""

    def __init__(
        self,
        answer: Callable[[Request], Answer | None] = lambda request: TAKEN,
        certificate: Path | None = None,
    ) -> None:
        self.requests: list[Request] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                request = Request(
                    self.path, {name.lower(): value for name, value in self.headers.items()}, body
                )
                receiver.requests.append(request)
                answer_now = answer(request)
                if answer_now is None:
                    self.close_connection = True  # without a word
                    return
                status, headers, told = answer_now
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(told))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(told)

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                pass

        self._server = Quiet(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Receiver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.requests]


def certificate(directory: Path) -> Path:
    """A file with a key and a certificate of its own for 127.0.0.1."""
    if shutil.which("openssl") is None:
        missing("openssl", remedy="apt-get install openssl")
    key, found, both = directory / "key.pem", directory / "cert.pem", directory / "both.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            key,
            "-out",
            found,
        ],
        check=True,
        capture_output=True,
    )
    both.write_bytes(key.read_bytes() + found.read_bytes())
    return both
