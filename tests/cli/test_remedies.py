"""Remedies of errors: a command that can be typed as it stands names its job."""

from __future__ import annotations

from pathlib import Path

import streambench as sb


def test_a_remedy_names_the_file_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "late.properties").write_text("job.name=late\n")
    command = sb.Config.from_file(tmp_path / "late.properties").command("checkpoints --rewind oldest")
    assert command == "streambench checkpoints --rewind oldest -c late.properties"


def test_no_remedy_rewinds_a_job_that_it_does_not_name() -> None:
    sources = Path(sb.__file__).parent.rglob("*.py")
    texts = [
        f"{path.name}: {line.strip()}"
        for path in sources
        if path.name != "checkpoints.py"
        for line in path.read_text().splitlines()
        if "streambench checkpoints --rewind" in line and "``" not in line
    ]
    assert texts == []
