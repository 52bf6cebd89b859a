"""A real RabbitMQ for tests, benchmarks and tutorials: started in a folder of its own, on this machine's
loopback only."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from streambench.errors import StreambenchError

PROGRAM = "STREAMBENCH_RABBITMQ"
"""The environment variable that names another ``rabbitmq-server``."""

# Not the one in /usr/sbin: that becomes the user rabbitmq, and refuses to be started by any but root.
_PROGRAMS = ("/usr/lib/rabbitmq/bin", "/usr/local/lib/rabbitmq/bin", "/opt/homebrew/sbin")
_UNPACKED = Path(__file__).parents[3] / ".tools" / "rabbitmq"

# Below the ports that a system hands out by itself, which another program could get during the slow start.
_PORTS = range(20_000, 32_000)
_PATIENCE_S = 90
_TRIES = 3
_LOOK_EVERY_S = 0.05


class RabbitServer:
    """One RabbitMQ node, with everything that belongs to it (Erlang's port mapper too) in one process group.

    ``program``: a ``rabbitmq-server`` script, 3.9 or newer. ``directory``: its data; a second start goes on
    with it. The ports stay the same for as long as the object lives, so that clients find the server again
    after ``kill`` and ``start``.
    """

    def __init__(self, program: str | Path, directory: Path) -> None:
        self.program = str(Path(program).absolute())
        self.directory = directory.absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._choose_ports()

    @classmethod
    def installed(cls, directory: Path) -> Self:
        """The RabbitMQ that this machine has (see ``find_server``), not started yet."""
        return cls(find_server(), directory)

    @property
    def url(self) -> str:
        """Its address, as ``systems.<s>.url`` wants it."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start it, and return when it accepts connections. Raises StreambenchError with the end of its log
        where it does not."""
        tries = 1 if (self.directory / "mnesia").exists() else _TRIES
        while True:
            self._launch()
            tries -= 1
            try:
                return self._wait_until_ready()
            except StreambenchError:
                self.kill()
                if not tries:
                    raise
                # Another program may have taken one of the ports meanwhile.
                self._choose_ports()

    def stop(self) -> None:
        """Have it stop in good order, as long as that does not take forever; nothing of it is left."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                self._process.terminate()
                self._process.wait(30)
        self.kill()

    def kill(self) -> None:
        """Kill it with all that belongs to it, as ``kill -9`` or a crash would."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate()

    def _choose_ports(self) -> None:
        self.port, self._distribution_port, self._mapper_port = free_ports(3)

    def _launch(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlog.console = true\nlog.file = false\n"
        )
        (self.directory / "plugins").write_text("[].\n")
        with (self.directory / "log").open("wb") as output:
            # The port mapper belongs to the group: started by Erlang, it would be a daemon that outlives
            # everything.
            self._process = subprocess.Popen(
                [
                    "/bin/sh",
                    "-c",
                    f'PATH="$MAPPER_PATH:$PATH" epmd -port {self._mapper_port} & exec "$0"',
                    self.program,
                ],
                env=self._environment(),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        # Whatever becomes of this process, the end of the pipe notifies the guard.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", f"cat >/dev/null; kill -KILL -{self._process.pid}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        here = self.directory
        unpacked = Path(self.program).resolve().parent / "root" / "usr" / "lib" / "erlang" / "bin"
        return {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("RABBITMQ_", "ERL_"))
            },
            "MAPPER_PATH": str(unpacked),
            "HOME": str(here),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": "rabbit@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"),
            "RABBITMQ_LOG_BASE": str(here),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(here / "generated"),
            "RABBITMQ_PID_FILE": str(here / "pid"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CTL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 "
            "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise StreambenchError(
                    f"{self.program} has ended with {self._process.returncode}: {self._end_of_log()}"
                )
            if _answers(self.port):
                return
            time.sleep(_LOOK_EVERY_S)
        raise StreambenchError(
            f"{self.program} did not accept connections within {_PATIENCE_S} seconds: {self._end_of_log()}"
        )

    def _end_of_log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-2_000:]


def find_server() -> str:
    """The path of a ``rabbitmq-server`` that any user can start: what STREAMBENCH_RABBITMQ names, else an
    installed one, else that which ``make rabbitmq`` unpacks. Raises StreambenchError that says how to get
    one."""
    named = os.environ.get(PROGRAM)
    if named:
        if not _is_program(named):
            raise StreambenchError(f"{PROGRAM}={named} is not a program")
        return named
    for folder in (*_PROGRAMS, str(_UNPACKED)):
        if _is_program(program := f"{folder}/rabbitmq-server"):
            return program
    raise StreambenchError(
        "there is no RabbitMQ here: unpack one with 'make rabbitmq' in a checkout of streambench, or "
        "install it (apt install rabbitmq-server, brew install rabbitmq), or name the program "
        f"rabbitmq-server, 3.9 or newer, in {PROGRAM}"
    )


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


def free_ports(count: int) -> list[int]:
    """Ports of the loopback without a listener, all odd.

    A client that asks a closed even one again and again may end up connected to itself."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().choice(_PORTS) | 1
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in found:
                found.append(port)
    return found


def _answers(port: int) -> bool:
    """True where an AMQP server greets: the port alone is open before it is ready."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(b"AMQP\0\0\x09\x01")
        return connection.recv(1) == b"\x01"
    return False
