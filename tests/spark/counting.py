"""The archive of the function that counts messages in Spark's JVM: ``--write`` makes it from its source."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark

from streambench.spark.counted import JAR

SOURCE = JAR.with_name("CountMessages.java")
_FOLDER = "streambench"


def write() -> None:
    """Compile it. The same compiler makes the same archive."""
    jars = Path(pyspark.__file__).parent / "jars"
    with TemporaryDirectory() as directory:
        command = ["javac", "--release", "17", "-g:none", "-cp", f"{jars}/*", "-d", directory, str(SOURCE)]
        subprocess.run(command, check=True)
        compiled = Path(directory, _FOLDER, "CountMessages.class").read_bytes()
    with zipfile.ZipFile(JAR, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in ((f"{SOURCE.stem}.class", compiled), (SOURCE.name, SOURCE.read_bytes())):
            entry = zipfile.ZipInfo(f"{_FOLDER}/{name}", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def source() -> str:
    """The source that the archive was made from."""
    with zipfile.ZipFile(JAR) as archive:
        return archive.read(f"{_FOLDER}/{SOURCE.name}").decode()


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        write()
    else:
        print("it is made from its source" if source() == SOURCE.read_text() else "run it with --write")
