"""``python -m streambench.spark [JOB.properties] [options]``: ``streambench deploy``, also of a packaged job.

A program that ``spark-submit`` starts has the archives of ``--py-files`` on its path. Where one of them is a
packaged job, that is deployed; the properties files that are given take the place of its configuration.
"""

from __future__ import annotations

import runpy
import sys

from streambench.spark.package import submitted


def main() -> None:
    """Deploy with the arguments of the process, and exit."""
    archive = submitted()
    code = [] if archive is None else ["--archive", str(archive)]
    # By its name: the command line stands above this package.
    sys.argv[1:] = ["deploy", *code, *sys.argv[1:]]
    runpy.run_module("streambench", run_name="__main__")


if __name__ == "__main__":
    main()
