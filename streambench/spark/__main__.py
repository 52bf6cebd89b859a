"""``python -m streambench.spark [JOB.properties] [options]``: ``streambench deploy``, also of a packaged job.

A program that ``spark-submit`` starts has the archives of ``--py-files`` on its path. Where one of them is a
packaged job, that is deployed; a properties file in the first place takes the place of its configuration.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from streambench.errors import StreambenchError
from streambench.redaction import redacted
from streambench.spark.package import submitted, with_configuration


def main() -> None:
    """Deploy with the arguments of the process, and exit."""
    arguments = sys.argv[1:]
    archive = submitted()
    try:
        if archive is not None and arguments and not arguments[0].startswith("-"):
            arguments[0] = str(with_configuration(archive, Path(arguments[0])))
        elif archive is not None:
            arguments.insert(0, str(archive))
    except StreambenchError as error:
        sys.exit(redacted(f"error: {error}"))
    # By its name: the command line stands above this package.
    sys.argv[1:] = ["deploy", *arguments]
    runpy.run_module("streambench", run_name="__main__")


if __name__ == "__main__":
    main()
