"""environment.yml is for conda and cannot be run everywhere, so that it could go stale unseen: it is held to
pyproject.toml here."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import streambench

CHECKOUT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def conda() -> dict[str, Any]:
    return yaml.safe_load((CHECKOUT / "environment.yml").read_text())


def conda_packages(conda: dict[str, Any]) -> dict[str, str]:
    """What conda itself installs: name -> version."""
    found = (
        re.fullmatch(r"([a-z0-9-]+)(.*)", line) for line in conda["dependencies"] if isinstance(line, str)
    )
    return {match[1]: match[2] for match in found if match}


def pip_lines(conda: dict[str, Any]) -> list[str]:
    return [line for part in conda["dependencies"] if isinstance(part, dict) for line in part["pip"]]


def extras_of_all(project: dict[str, Any]) -> set[str]:
    (everything,) = (Requirement(line) for line in project["optional-dependencies"]["all"])
    assert everything.name == project["name"]
    return everything.extras


def test_both_want_the_same_python(project: dict[str, Any], conda: dict[str, Any]) -> None:
    assert SpecifierSet(conda_packages(conda)["python"]) == SpecifierSet(project["requires-python"])


def test_both_have_one_name(project: dict[str, Any], conda: dict[str, Any]) -> None:
    assert conda["name"] == project["name"]


def test_conda_brings_what_pip_cannot(conda: dict[str, Any]) -> None:
    assert conda_packages(conda) == {"python": ">=3.11", "openjdk": "=17", "maven": "", "pip": ""}


def test_pip_installs_this_checkout_and_versions_stand_in_pyproject_alone(
    project: dict[str, Any], conda: dict[str, Any]
) -> None:
    (line,) = pip_lines(conda)
    match = re.fullmatch(r"-e \.\[([a-z,]+)\]", line)
    assert match, f"{line!r}: versions belong into pyproject.toml"
    asked = set(match[1].split(","))
    assert asked <= set(project["optional-dependencies"])
    installed = asked | (extras_of_all(project) if "all" in asked else set())
    assert installed == set(project["optional-dependencies"])


def test_all_means_all(project: dict[str, Any]) -> None:
    assert extras_of_all(project) == set(project["optional-dependencies"]) - {"all", "test"}


def test_what_is_named_twice_has_the_same_bounds(project: dict[str, Any]) -> None:
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    bounds: dict[str, set[str]] = {}
    for requirement in (Requirement(line) for lines in lists for line in lines):
        bounds.setdefault(requirement.name, set()).add(str(requirement.specifier))
    assert {name: specifiers for name, specifiers in bounds.items() if len(specifiers) > 1} == {}


def test_the_package_knows_its_version(project: dict[str, Any]) -> None:
    assert streambench.__version__ == project["version"]


def test_the_product_imports_nothing_that_only_tests_install(project: dict[str, Any]) -> None:
    extras = project["optional-dependencies"]
    by_tests = {Requirement(line).name for line in extras["test"]}
    others = [lines for name, lines in extras.items() if name != "test"]
    installed = {Requirement(line).name for lines in [project["dependencies"], *others] for line in lines}
    # Pydantic is imported where a user's type is one of its own.
    of_tests = {name.replace("-", "_") for name in by_tests - installed - {"pydantic"}}
    found = {}
    for path in [*CHECKOUT.glob("streambench/**/*.py"), *CHECKOUT.glob("magics/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):  # also in functions
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if wrong := {name.partition(".")[0] for name in names} & of_tests:
                found[str(path.relative_to(CHECKOUT))] = wrong
    assert found == {}
