"""``streambench package`` as a command."""

from __future__ import annotations

import json

from tests.job.project import Project


def test_package_writes_an_archive_and_prints_the_line_that_submits_it(project: Project) -> None:
    project.configure({"job.name": "up"})
    first, *rest = project.ok("package", "job.properties", "--target", "yarn").splitlines()
    assert first == "up.zip: 5 files; submit_up.py deploys it"
    assert rest[-1].startswith("spark-submit --master yarn --name up --deploy-mode cluster ")
    assert all(line.startswith("# ") for line in rest[:-1])
    assert (project.directory / "up.zip").exists()
    assert (project.directory / "submit_up.py").exists()
    assert project.ok("package", "up.zip", "--list") == project.ok("package", "job.properties", "--list")


def test_package_lists_without_writing(project: Project) -> None:
    listed = project.rows("package", "--list")
    assert "task.py" in {row["file"] for row in listed}
    assert not list(project.directory.glob("*.zip"))


def test_package_lists_what_it_leaves_out_and_includes(project: Project) -> None:
    words = project.directory / "helping" / "words.txt"
    words.parent.mkdir()
    (words.parent / "__init__.py").write_text("")
    words.write_text("one")
    task = project.directory / "task.py"
    task.write_text(f"import helping\n{task.read_text()}")
    assert {"file": "helping/words.txt", "bytes": None, "packed": False} in project.rows("package", "--list")
    said = project.ok("package", "job.properties")
    assert "left out: helping/words.txt; --include takes files that are no Python" in said
    rows = project.rows("package", "--list", "--include", "helping/*.txt")
    assert {"file": "helping/words.txt", "bytes": 3, "packed": True} in rows


def test_package_names_what_it_leaves_out(project: Project) -> None:
    hook = {"samza.factory": "webhook", "token": "brunhilde", "url": "${env:NOT_SET_HERE}"}
    project.configure({f"systems.hook.{key}": value for key, value in hook.items()})
    said = project.ok("package", "job.properties", "-o", "there/a.zip")
    assert "token is left out, and taken from the environment variable SYSTEMS_HOOK_TOKEN" in said
    assert "# Driver and executors take secrets from the environment: SYSTEMS_HOOK_TOKEN" in said
    assert b"brunhilde" not in (project.directory / "there" / "a.zip").read_bytes()


def test_package_for_programs_is_one_object(project: Project) -> None:
    found = json.loads(project.ok("package", "job.properties", "--json", "-o", "a.zip"))
    assert found["archive"] == "a.zip"
    assert found["command"].startswith("spark-submit --master ")


def test_package_refuses_another_target_and_a_master_of_another(project: Project) -> None:
    assert (
        "'mesos' is no target: give local, standalone, yarn, k8s"
        in project.run("package", "job.properties", "--target", "mesos").stderr
    )
    refused = project.run("package", "job.properties", "--target", "k8s", "--master", "yarn")
    assert (refused.returncode, "'yarn' is no master of k8s" in refused.stderr) == (1, True)
    assert not list(project.directory.glob("*.zip"))


def test_package_refuses_a_secret_in_code_unless_it_is_allowed(project: Project) -> None:
    task = project.directory / "task.py"
    task.write_text(f'{task.read_text()}\nTOKEN = "hunter2"\n')
    line = len(task.read_text().splitlines())
    refused = project.run("package", "job.properties")
    assert refused.returncode == 1
    assert f"error: task.py:{line}: TOKEN in clear: the archive would hold" in refused.stderr
    assert not list(project.directory.glob("*.zip"))
    project.ok("package", "job.properties", "--allow-secrets", f"task.py:{line}")
    assert list(project.directory.glob("*.zip"))


def test_package_refuses_packages_that_are_not_here_and_options_of_none(project: Project) -> None:
    refused = project.run("package", "job.properties", "--platform", "manylinux2014_x86_64")
    assert "it is for --with-dependencies" in refused.stderr
    (project.directory / "requirements.txt").write_text("no-such-package\n")
    refused = project.run("package", "job.properties", "--target", "standalone", "--with-dependencies")
    assert "requirements.txt names no-such-package, which is not installed here" in refused.stderr
    assert not list(project.directory.glob("*.zip")) + list(project.directory.glob("submit_*"))


def test_package_writes_nothing_where_one_of_its_files_is_not_its_own(project: Project) -> None:
    project.configure({"job.name": "up"})
    project.ok("package", "job.properties")
    archive = project.directory / "up.zip"
    before = archive.read_bytes()
    task = project.directory / "task.py"
    task.write_text(f"{task.read_text()}# changed\n")
    (project.directory / "up-packages.zip").write_text("mine")
    refused = project.run("package", "job.properties", "--target", "standalone", "--with-dependencies")
    assert "up-packages.zip is no archive of packages: name another file with --output" in refused.stderr
    assert archive.read_bytes() == before
    assert (project.directory / "up-packages.zip").read_text() == "mine"
    assert not list(project.directory.glob(".*.zip*"))
