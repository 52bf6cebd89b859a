"""Lines for ``spark-submit`` that deploy a packaged job on each kind of cluster."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal, get_args

from streambench.errors import ConfigError
from streambench.spark.dependencies import FOLDER
from streambench.spark.package import NEEDS, Package

Target = Literal["local", "standalone", "yarn", "k8s"]

_MASTERS: dict[Target, str] = {
    "local": "local[*]",
    "standalone": "spark://HOST:7077",
    "yarn": "yarn",
    "k8s": "k8s://https://HOST:6443",
}
_BEGINNINGS: dict[Target, str] = {"local": "local", "standalone": "spark://", "yarn": "yarn", "k8s": "k8s://"}
_ENVIRONMENT = "environment.tar.gz"
_PYTHON = "./environment/bin/python"
_IN_IMAGE = Path("/opt/streambench")


def target_named(text: str) -> Target:
    """Raises ConfigError for what is no target."""
    for target in get_args(Target):
        if text == target:
            return target  # type: ignore[no-any-return]
    raise ConfigError(f"'{text}' is no target: give {', '.join(get_args(Target))}")


def submit_command(
    package: Package,
    archive: Path,
    target: Target,
    master: str | None = None,
    dependencies: Path | None = None,
) -> list[str]:
    """The words of the command. ``dependencies``: the archive of the packages, where there is one. Raises
    ConfigError where ``master`` is one of another kind of cluster, and where the executors of ``target``
    cannot be given packages."""
    if master is not None and not master.startswith(_BEGINNINGS[target]):
        raise ConfigError(f"'{master}' is no master of {target}: give one such as {_MASTERS[target]}")
    settings = {"spark.speculation": "false"}
    options: list[str] = []
    program = archive.with_name(package.launcher)
    places = str(archive), str(program)
    if dependencies is not None and target == "k8s":
        raise ConfigError("--with-dependencies: on k8s the packages are part of the image; leave it out")
    if dependencies is not None:
        settings["spark.executorEnv.PYTHONPATH"] = FOLDER
        options = ["--archives", f"{dependencies}#{FOLDER}"]
    if target == "yarn":
        settings["spark.executor.instances"] = str(package.containers)
        options += ["--deploy-mode", "cluster"]
        if dependencies is not None:
            settings["spark.yarn.appMasterEnv.PYTHONPATH"] = FOLDER
        else:
            settings |= {
                "spark.yarn.appMasterEnv.PYSPARK_PYTHON": _PYTHON,
                "spark.executorEnv.PYSPARK_PYTHON": _PYTHON,
            }
            options += ["--archives", f"{_ENVIRONMENT}#environment"]
    elif target == "k8s":
        settings |= {
            "spark.executor.instances": str(package.containers),
            "spark.kubernetes.container.image": "IMAGE",
        }
        options = ["--deploy-mode", "cluster"]
        places = f"local://{_IN_IMAGE / archive.name}", f"local://{_IN_IMAGE / program.name}"
    for key, value in settings.items():
        options += ["--conf", f"{key}={value}"]
    first = ["spark-submit", "--master", master or _MASTERS[target], "--name", package.name]
    return [*first, *options, "--py-files", places[0], places[1]]


def submit_lines(
    package: Package,
    archive: Path,
    target: Target,
    master: str | None = None,
    dependencies: Path | None = None,
) -> list[str]:
    """The command as lines for a shell, with what has to be done before it as comments. Raises as
    ``submit_command``."""
    lines = [f"# {each}" for each in _before(package, archive, target, dependencies)]
    return [*lines, shlex.join(submit_command(package, archive, target, master, dependencies))]


def _before(package: Package, archive: Path, target: Target, dependencies: Path | None) -> list[str]:
    lines = {
        "local": "Once: pip install -r requirements.txt, where spark-submit runs.",
        "standalone": "Once: pip install -r requirements.txt, here and on the workers, for PYSPARK_PYTHON.",
        "yarn": "Once: pip install -r requirements.txt venv-pack in a virtual environment, and in it "
        f"venv-pack -o {_ENVIRONMENT}",
        "k8s": "Once: an IMAGE of Spark with pip install -r requirements.txt, and with "
        f"{archive.name} and {package.launcher} in {_IN_IMAGE}.",
    }
    found = [f"unzip -p {shlex.quote(str(archive))} {NEEDS} > requirements.txt", lines[target]]
    if dependencies is not None:
        driver = "The driver" if target == "yarn" else "spark-submit runs here; the driver"
        has = "has them as the executors do" if target == "yarn" else "has the packages of this environment"
        found = [f"Executors have the packages in {dependencies.name}. {driver} {has}."]
    if variables := sorted(set(package.secrets.values())):
        found.append(f"Driver and executors take secrets from the environment: {', '.join(variables)}")
    return found
