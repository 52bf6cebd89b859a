"""The ``streambench`` command: its subcommands, and how it ends.

The exit code is 0 where the command did what was asked, 1 where it could not, 2 where it was called wrongly.
It is 130 after an interrupt, and 141 where the reader of its output has gone, as in shells.

The help, the version and the tab key need none of what commands share, a third of the time that they take. So
it is imported where a command begins, or ends in an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import streambench
from streambench.cli.commands import Commands

app = typer.Typer(
    name="streambench",
    cls=Commands,
    help=(
        "An interactive stream workbench: write a stream task, step it message by message, run it here or "
        "deploy it on Spark."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"streambench {streambench.__version__}")
        raise typer.Exit


# As other tools end in front of `head`, by SIGPIPE.
_PIPE_CLOSED = 141
# What typer exits with after a KeyboardInterrupt, as shells do.
_INTERRUPTED = 130
_COMMITTED = "what was committed stays committed"


@app.callback()
def _streambench(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """An interactive stream workbench."""
    if context.obj is not None:
        context.obj()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (``arguments``, else those of the process) and exit."""
    outcome, where = _COMMITTED, ""
    try:
        app(arguments, prog_name="streambench", obj=_log_to_stderr)
    except BrokenPipeError:
        code: object = _PIPE_CLOSED
    except Exception as error:
        from streambench.cli.output import print_error

        print_error(error)
        code = 1
    except SystemExit as end:
        # A broken pipe is 1 to click.
        code = _PIPE_CLOSED if isinstance(end.__context__, BrokenPipeError) else end.code
        interrupt = _interrupt_behind(end)
        if interrupt is not None:
            from streambench.job.failure import interrupted_at

            outcome, where = str(interrupt) or outcome, interrupted_at(interrupt)
    else:
        code = 0
    if code == _INTERRUPTED:
        print(f"interrupted; {outcome}", file=sys.stderr)
        if where:
            print(f"the task was here:\n{where}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of this output has gone. At its own end Python would try to write the rest once more, and
        # complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = _PIPE_CLOSED
    sys.exit(code if code is None or isinstance(code, (int, str)) else 1)


def _log_to_stderr() -> None:
    """Called before a command begins; within a program that has called ``app``, its logging stays."""
    from streambench.cli.output import log_to_stderr

    log_to_stderr()


def _interrupt_behind(end: BaseException) -> KeyboardInterrupt | None:
    """Return the Ctrl-C that ended a command, with its message; typer makes an exit of it."""
    error: BaseException | None = end
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error
