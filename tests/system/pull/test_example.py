"""The example of the documentation, used as its reader would."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.conftest import CHECKOUT

EXAMPLES = CHECKOUT / "docs" / "examples"
PAGE = (CHECKOUT / "docs" / "plugin.md").read_text()

DYING = """
import os
import signal

from tables_task import BigOnes


class Dying(BigOnes):
    def process(self, envelope, collector, coordinator):
        super().process(envelope, collector, coordinator)
        if envelope.offset == "{offset}":
            os.kill(os.getpid(), signal.SIGKILL)
"""


class Shop:
    """A directory with the example in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for file in EXAMPLES.iterdir():
            if file.is_file():
                shutil.copy(file, directory)
        for line in PAGE.splitlines():
            if line.startswith("$ sqlite3 "):
                self.sql(line.split('"')[1])

    def sql(self, statement: str, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        db = sqlite3.connect(self.directory / "shop.db")
        with db:
            found = db.executemany(statement, rows) if rows else db.execute(statement)
        fetched = found.fetchall()
        db.close()
        return fetched

    def order(self, *amounts: int) -> None:
        self.sql(
            "INSERT INTO orders (message) VALUES (?)", *((b'{"amount":%d}' % amount,) for amount in amounts)
        )

    def big(self) -> list[int]:
        return [
            orjson.loads(message)["amount"]
            for (message,) in self.sql("SELECT message FROM big_orders ORDER BY id")
        ]

    def streambench(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "streambench", *arguments]
        environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT}{os.pathsep}{CHECKOUT / 'magics'}"}
        return subprocess.run(
            command,
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.mark.parametrize("name", ["tables.py", "tables.properties", "tables_task.py"])
def test_the_page_shows_the_files_as_they_are(name: str) -> None:
    assert (
        f"`{name}`:\n\n```{'properties' if name.endswith('properties') else 'python'}\n"
        f"{(EXAMPLES / name).read_text()}```\n"
        in PAGE
    )


def test_the_commands_of_the_page_do_what_it_says(shop: Shop) -> None:
    commands = [
        line.removeprefix("$ streambench ") for line in PAGE.splitlines() if line.startswith("$ streambench ")
    ]
    assert len(commands) == 3
    results = []
    for command in commands:
        arguments, _, stdin = command.partition(" <<< ")
        results.append(shop.streambench(*arguments.split(), stdin=stdin.strip("'")))
    assert [result.returncode for result in results] == [0, 0, 0], results
    assert "250" in results[-1].stdout


def test_a_job_that_is_killed_again_and_again_loses_no_order(shop: Shop) -> None:
    shop.order(*range(200))
    file = shop.directory / "tables.properties"
    properties = file.read_text() + "task.commit.ms=10\njob.name=big\n"
    for number, offset in enumerate((120, 170)):
        (shop.directory / f"dying{number}.py").write_text(DYING.format(offset=offset))
        file.write_text(properties.replace("tables_task.py:BigOnes", f"dying{number}.py:Dying"))
        assert shop.streambench("run", file.name, "--until", "caught-up").returncode == -signal.SIGKILL
        shop.order(1000 + number)
    file.write_text(properties)
    last = shop.streambench("run", "tables.properties", "--until", "caught-up")
    assert last.returncode == 0, last.stderr
    big = shop.big()
    assert set(big) == {*range(100, 200), 1000, 1001}
    # The orders of before a kill that were committed are not copied again.
    assert len(big) < 2 * 102
    again = shop.streambench("run", "tables.properties", "--until", "caught-up")
    assert (again.returncode, len(shop.big())) == (0, len(big))
