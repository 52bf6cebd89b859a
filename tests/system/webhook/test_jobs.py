"""Jobs on webhooks, as their users have them: from a configuration, by the command line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from streambench.container.container import Container
from streambench.errors import TaskError
from tests.conftest import CHECKOUT
from tests.ports import free_port
from tests.surroundings import missing
from tests.system.webhook.listening import Posts, configured

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_documentation_does_what_it_says(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl", remedy="apt-get install curl")
    port = free_port()
    blocks = _FENCED.findall((CHECKOUT / "docs" / "webhook.md").read_text().replace("8080", str(port)))
    for _, text in blocks:
        if named := re.match(r"# (\w+\.\w+)\n", text):
            (tmp_path / named[1]).write_text(text)
    environment = {
        **os.environ,
        "HOOK_TOKEN": "hidden",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
    }
    job = subprocess.Popen(
        [sys.executable, "-m", "streambench", "run", "hooked.properties", "--container", "0"],
        cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        _wait_until_healthy(job, port)
        (shell,) = [text for language, text in blocks if language == "sh"]
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", shell],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith('{"messages":1}{"messages":2}')
        assert "sent 1 message to hook.events" in done.stdout
        assert [re.findall(r"[\d.]+", line)[-1] for line in done.stdout.splitlines()[-4:]] == [
            "21.5",
            "21.4",
            "19.0",
            "18.9",
        ]
    finally:
        job.terminate()
        _, told = job.communicate()
    assert job.returncode == 0, told
    assert "hidden" not in told + done.stdout + done.stderr


def _wait_until_healthy(job: subprocess.Popen[str], port: int) -> None:
    with httpx.Client(trust_env=False) as http:
        while True:
            with suppress(httpx.TransportError):
                assert http.get(f"http://127.0.0.1:{port}/health").status_code == 200
                return
            with suppress(subprocess.TimeoutExpired):
                job.wait(0.05)
                raise AssertionError("the job has ended")


def test_what_a_task_fails_at_is_not_taken(tmp_path: Path) -> None:
    port = free_port()
    kept = {
        "systems.kept.samza.factory": "log",
        "systems.kept.path": tmp_path / "kept",
        "job.name": "failing",
    }
    container = Container.from_config(configured({"port": port}, tmp_path).with_values(kept), _fails_at_two)
    container.start()
    url = f"http://127.0.0.1:{port}/events"
    first = Posts([lambda: httpx.post(url, content=b"1", trust_env=False, timeout=60)])
    container.run(1)
    container.commit()
    second = Posts([lambda: httpx.post(url, content=b"2", trust_env=False, timeout=60)])
    with pytest.raises(TaskError):
        container.run()
    assert [each.join()[0].status_code for each in (first, second)] == [200, 503]


def _fails_at_two(envelope, collector, coordinator):  # type: ignore[no-untyped-def]
    if envelope.message == b"2":
        raise ValueError("two")


def test_without_its_libraries_the_extra_is_named() -> None:
    for module, call in (("uvicorn", "consumer"), ("starlette", "consumer"), ("httpx", "producer")):
        program = (
            f"import sys; sys.modules['{module}'] = None\n"
            "from streambench.config import Config; from streambench.metrics.registry import "
            "MetricsRegistry\n"
            "from streambench.system.systems import Systems\n"
            f"Systems(Config({{'systems.h.samza.factory': 'webhook'}})).{call}('h', MetricsRegistry())"
        )
        surroundings = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        failed = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=surroundings
        )
        assert "pip install 'streambench[webhook]'" in failed.stderr.splitlines()[-1]
