"""Secrets in clear in the files of a packaged job: what is found, and what is left alone."""

from __future__ import annotations

import pytest

from streambench import Config, StreambenchError
from streambench.spark.clear_secrets import clear_secrets
from streambench.spark.package import package
from tests.spark.conftest import Job
from tests.spark.test_package import with_code


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('db_password = "hunter2"', "db_password in clear"),
        ('PASSWORD: str = "hunter2"', "PASSWORD in clear"),
        ('self.api_key = "k-123"', "api_key in clear"),
        ('connect(host, password="hunter2")', "password in clear"),
        ('{"sasl.password": "hunter2"}', "sasl.password in clear"),
        ('os.environ["TOKEN"] = "abcd"', "TOKEN in clear"),
        ('def connect(host, password="hunter2"): ...', "password in clear"),
        ('def connect(*, host=None, token="hunter2"): ...', "token in clear"),
        ('user, password = "me", "hunter2"', "password in clear"),
        ('dict([("user", "me"), ("password", "hunter2")])', "password in clear"),
        ('os.environ.get("PASSWORD", "hunter")', "PASSWORD in clear"),
        ('os.getenv("db.password", "hunter")', "db.password in clear"),
        ('url = "amqp://me:hunter2@host/"', "a URL with a password"),
        ("# redis://:hunter2@host", "a URL with a password"),
        ('"https://ghp_0123456789abcdef@github.com/x"', "a URL with a token"),
        ('"-----BEGIN RSA PRIVATE KEY-----"', "a private key"),
        ('"AKIA0123456789ABCDEF"', "a key of AWS"),
    ],
)
def test_what_is_obvious_is_found_with_its_line(line: str, what: str) -> None:
    assert clear_secrets({"a/b.py": f"import os\n\n{line}\n".encode()}) == (f"a/b.py:3: {what}",)


@pytest.mark.parametrize(
    "line",
    [
        'password = os.environ["PASSWORD"]',
        'password = "${env:PASSWORD}"',
        'password = ""',
        'token = "token"',
        'token = "next_page"',
        'def read(page_token="start of page"): ...',
        'names = ("password", "user")',
        'secrets = {"db": "password"}',
        'def connect(host="localhost", password=None): ...',
        'os.environ.get("PASSWORD", "")',
        'os.environ.get("PASSWORD")',
        'print("password", "wrong")',
        "tokens = 'a b c'",
        'token_count = "abcd"',
        'f"amqp://{user}:{password}@host"',
        'url = "amqp://USER:<password>@host"',
        'url = "https://host:8080/a@b"',
        'url = "git+ssh://git@github.com/x"',
        "password = 12345",
        "this is no Python: password = 'hunter2'",
    ],
)
def test_what_is_no_secret_is_left_alone(line: str) -> None:
    assert clear_secrets({"b.py": line.encode()}) == ()


def test_a_file_that_is_no_text_is_left_alone() -> None:
    assert clear_secrets({"a.bin": b"\xff://me:hunter2@host"}) == ()


def test_a_package_with_a_secret_is_refused_unless_it_is_allowed(job: Job) -> None:
    with_code(job)
    (job.directory / "squares.py").write_text('password = "hunter2"\ndef squared(number): return 1\n')
    (job.directory / "requirements.txt").write_text("--index-url https://me:hunter2@host/simple\nmsgspec\n")
    found = package(Config.from_file(job.directory / "job.properties"))
    path = job.directory / "job.zip"
    places = "requirements.txt:1: a URL with a password, squares.py:1: password in clear: "
    options = "--allow-secrets requirements.txt:1 --allow-secrets squares.py:1 "
    with pytest.raises(StreambenchError, match=f"^{places}the archive .* with {options}") as caught:
        found.write(path)
    assert "hunter2" not in str(caught.value)
    assert not path.exists()
    with pytest.raises(StreambenchError, match=r"^squares\.py:1: password .* --allow-secrets squares\.py:1 "):
        found.write(path, allow_secrets=["requirements.txt:1"])
    both = ["requirements.txt:1", "squares.py:1"]
    with pytest.raises(StreambenchError, match=r"--allow-secrets squares\.py:2: nothing there looks like"):
        found.write(path, allow_secrets=[*both, "squares.py:2"])
    assert not path.exists()
    found.write(path, allow_secrets=both)
    assert path.exists()


@pytest.mark.timeout(20)
def test_a_line_of_a_megabyte_is_looked_through_in_linear_time() -> None:
    line = "a" * 1_000_000
    assert clear_secrets({"a.txt": f"{line}\n{line}://me:{'hunter2'}@host\n".encode()}) == (
        "a.txt:2: a URL with a password",
    )
