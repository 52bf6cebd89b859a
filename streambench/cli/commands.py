"""The subcommands by name: each is imported when it is used, so that ``--help`` and the tab key do not wait
for all of them."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from streambench.cli.interrupts import end_imports

HELP = {
    "run": "Run a job on this machine.",
    "deploy": "Run a job on Apache Spark until it has caught up.",
    "package": "Write a job as one archive for spark-submit.",
    "runs": "List the deployments of a job.",
    "land": "Receive streams into the log in which they are landed.",
    "streams": "List, create, grow and delete streams.",
    "send": "Send messages to a stream.",
    "peek": "Show messages of a stream.",
    "checkpoints": "Show how far the tasks of a job have come, and go back.",
    "replay": "Run the messages of a recording, or of a failure, again.",
    "keys": "List the keys of a configuration.",
    "metrics": "List the metrics that every job has.",
    "doctor": "Look for what streambench needs on this machine.",
    "bench": "Measure throughput, latency and start-up.",
    "demo": "Flights and their delays: started here, finished on Spark.",
    "kafka": "A Kafka of your own on this machine; and a repair for any.",
}
"""Per subcommand, in the order of the help, its line there. Its module in this package has the same name."""


class Commands(TyperGroup):
    """All subcommands. Until one is used, only its name and its line of the help are known of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, line in HELP.items():
            self.commands.setdefault(name, TyperCommand(name, help=line))
        self._loaded: set[str] = set()

    def get_params(self, ctx: Any) -> list[Any]:
        """The options of the command line itself."""
        return _without_type_of_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the arguments name, imported now."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in HELP and name not in self._loaded:
            command = self.commands[name] = load(name)
            self._loaded.add(name)
        end_imports()
        return name, command, rest


def load(name: str) -> Any:
    """The subcommand of a name: the function, or the group of commands, that has this name in its module.
    The module may have ``OPTIONS`` for it."""
    alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
    alone.callback()(_alone)  # it makes a group of a single command, too
    module = importlib.import_module(f"streambench.cli.{name}")
    command = getattr(module, name)
    if isinstance(command, typer.Typer):
        alone.add_typer(command, name=name)
    else:
        alone.command(name=name, **getattr(module, "OPTIONS", {}))(command)
    made = typer.main.get_group(alone).commands[name]
    _tidy(made)
    return made


def _tidy(command: Any) -> None:
    """Have the help fit each terminal: typer keeps the line breaks of docstrings, and calls a flag <bool>."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    command.help = "\n\n".join(
        each if each.startswith(" ") else each.replace("\n", " ") for each in paragraphs
    )
    of_typer = command.get_params
    command.get_params = lambda context: _without_type_of_flags(of_typer(context))
    for each in getattr(command, "commands", {}).values():
        _tidy(each)


def _without_type_of_flags(parameters: list[Any]) -> list[Any]:
    for each in parameters:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return parameters


def _alone() -> None:
    pass
