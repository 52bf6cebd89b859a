"""``%%streamtask``, ``%%streamconfig`` and ``%stream``.

The sub-commands' arguments stand in ``commands.py``; here is what they do, one method each. What they print
is short, and the same whenever the same is done to the same streams.
"""

from __future__ import annotations

import contextlib
import importlib
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from streambench.container.observe.snapshot import PartitionSnapshot
from streambench.counts import counted
from streambench.debug.view.panel_state import static_view, status_text
from streambench.errors import StreambenchError, UnknownStreamError
from streambench.model import SystemStream, SystemStreamPartition
from streambench.recording.captures import shown_path
from streambench.suggestions import suggest
from streambench.system.systems import Systems, abilities_of
from streambench.wording import speaking
from streambench_magics.commands.checkpoint_commands import CheckpointCommands
from streambench_magics.commands.command_parser import split_words, stream_names
from streambench_magics.commands.commands import CONFIG, PARSERS, TASK, overview
from streambench_magics.commands.compare_commands import CompareCommands
from streambench_magics.commands.debug_commands import DebugCommands
from streambench_magics.commands.deploy_commands import DeployCommands
from streambench_magics.commands.endings import ended_text, replaced_text
from streambench_magics.commands.job_commands import name_and_number
from streambench_magics.commands.last_value import show_if_dropped
from streambench_magics.commands.record_commands import RecordCommands, recorded_line
from streambench_magics.commands.status_messages import print_ignored, print_stop, say, say_if_busy
from streambench_magics.commands.stream_commands import StreamCommands
from streambench_magics.commands.time_commands import TimeCommands, print_position
from streambench_magics.errors import Interrupted, MagicError
from streambench_magics.jobs.cell import task_from_cell
from streambench_magics.jobs.jobs import Job, require_no_branch
from streambench_magics.jobs.workbench import Workbench, parsed_config
from streambench_magics.panel.panel import STOPPED, Panel, show, static
from streambench_magics.tables import Records

_END_S = 2.0
_AT_ONCE_S = 0.5
_MOMENT_S = 0.5
_MOST_BEGINNINGS = 4
_BEHIND = "behind its last checkpoint"


@magics_class
class StreamMagics(
    CheckpointCommands,
    StreamCommands,
    DebugCommands,
    TimeCommands,
    CompareCommands,
    RecordCommands,
    DeployCommands,
    Magics,
):
    """The magics of one IPython shell, and the workbench that they work on."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.bench = Workbench(shell.user_ns)
        self.matcher: Any = None
        self._panels = {}

    @no_var_expand
    @cell_magic
    def streamtask(self, line: str, cell: str) -> None:
        args = TASK.parse_args(split_words(line))
        _check_name(args.name)
        task = task_from_cell(self.shell, args.name, line, cell, args.wanted)
        self.bench.tasks[args.name] = task
        self.shell.user_ns[args.name] = task
        print(
            f"{args.name} is a task" + (f", the class {task.__name__}" if task.__name__ != args.name else "")
        )
        if args.swap:
            with speaking("magics"):
                self._swap_all(args)
            return
        for job in self.bench.jobs.values():
            if job.task_name == args.name and job.alive:
                give_up = (
                    f"give up its message with %stream stop --now {job.name}, and then %stream create "
                    f"{job.name} takes the new one"
                )
                print(
                    f"the job {job.name} still runs the old code; "
                    + (give_up if job.busy else f"%stream swap {job.name} gives it the new one")
                )

    @no_var_expand
    @cell_magic
    def streamconfig(self, line: str, cell: str) -> None:
        args = CONFIG.parse_args(split_words(line))
        _check_name(args.name)
        self.bench.configs[args.name] = parsed_config(args.name, cell)
        config = self.bench.configs[args.name]
        print(f"{args.name} is a configuration with {counted(len(config), 'key')}")
        for job in self.bench.jobs.values():
            if job.config_name == args.name and not job.has_config(config):
                print(
                    f"the job {job.name} still has the old one; %stream create {job.name} gives it this one"
                )

    @no_var_expand
    @line_magic
    def stream(self, line: str) -> Any:
        command, _, rest = line.strip().partition(" ")
        if not command:
            return self._jobs()
        parser = PARSERS.get(command)
        if parser is None:
            raise MagicError(_no_command(command))
        do: Callable[[Namespace], Any] = getattr(self, f"_{command}")
        try:
            if "--help" in rest.split():
                print(parser.full_help())
                return None
            with speaking("magics"):
                value = do(parser.parse_intermixed_args(parser.words(rest)))
            show_if_dropped(value)
            return value
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted([f"interrupted: %stream {command}"]) from None

    def end(self) -> None:
        """Freeze the panels and stop the jobs, those that stop in time: the next start does again what
        is not committed then."""
        for name in list(self._panels):
            self._close_panel(name, "the kernel has ended")
        for job in self.bench.jobs.values():
            with contextlib.suppress(StreambenchError):
                if job.pause(_END_S):
                    job.stop()

    def _create(self, args: Namespace) -> None:
        _check_name(args.name)
        replaced = self.bench.jobs.get(args.name)
        had_branch = replaced is not None and replaced.session is not None and replaced.session.branched
        note, became = "closed to create the job again", ""

        def close() -> None:
            nonlocal became
            assert replaced is not None
            self._close_panel(args.name, note)
            replaced.pause()
            became = replaced_text(replaced.session)

        with contextlib.nullcontext() if replaced is None else self._running(replaced):
            job, old = self.bench.create(
                args.name,
                args.task,
                args.config,
                stream_names(args.inputs),
                history=args.history,
                replaces=close,
            )
        reads = (
            f"reads {', '.join(job.inputs)}"
            if job.inputs
            else f"has no inputs yet: %stream attach {job.name} SYSTEM.STREAM"
        )
        print(f"{job.name} is a job of the task {job.task_name}; it {reads}")
        self._warn_of_missing(job, job.inputs)
        if over := job.takeover_notice(is_created=True):
            print(over)
        if old is not None:
            print(f"it replaces the former {job.name}{became}{'; its branch is dropped' * had_branch}")

    def _attach(self, args: Namespace) -> None:
        job, streams = self._job_and_streams(stream_names(args.names))
        require_no_branch(job, "attach")
        again = [each for each in streams if each in job.inputs]
        if again:
            raise MagicError(f"{job.name} reads {', '.join(again)} already")
        self._set_inputs(job, [*job.inputs, *streams])
        self._warn_of_missing(job, streams)

    def _detach(self, args: Namespace) -> None:
        job, streams = self._job_and_streams(stream_names(args.names))
        require_no_branch(job, "detach")
        unknown = [each for each in streams if each not in job.inputs]
        if unknown:
            raise MagicError(
                f"{job.name} does not read {', '.join(unknown)}; it reads "
                f"{', '.join(job.inputs) or 'nothing'}"
            )
        self._set_inputs(job, [each for each in job.inputs if each not in streams])

    def _warn_of_missing(self, job: Job, streams: list[str]) -> None:
        """A job that is not started takes any names; it would find out at its start. Systems elsewhere are
        not asked before that."""
        with closing(Systems(job.config)) as systems:
            for stream in map(SystemStream.parse, [] if job.alive else streams):
                try:
                    if abilities_of(job.config, stream.system).is_local:
                        systems.metadata([stream])
                except UnknownStreamError:
                    print(
                        f"there is no {stream} yet: %stream streams create {stream} --partitions N makes it"
                    )

    def _set_inputs(self, job: Job, inputs: list[str]) -> None:
        former, session = set(job.inputs), job.session
        had_failed = session is not None and session.can_resume
        try:
            with self._running(job):
                started = job.set_inputs(inputs)
        except UnknownStreamError as error:
            raise MagicError(f"{error}. %stream streams create STREAM --partitions N makes one") from None
        went_on = (
            ("; it has committed and goes on with them" if inputs else "; it has committed and stopped")
            if started
            else ""
        )
        if had_failed:
            went_on = "; it had failed, and its next step goes on from its last checkpoint"
        print(f"{job.name} reads {', '.join(inputs) or 'nothing'}{went_on}")
        for stream in (each for each in inputs if each not in former):
            if job.alive:
                parts = [each for each in job.snapshot().partitions if str(each.ssp.system_stream) == stream]
                print(f"{stream} begins {_beginning(parts)}")
            elif job.has_begun and (begins := job.committed_begins(stream)):
                print(f"{stream} begins {_places(list(begins.items()))}: {_BEHIND}")

    def _wait(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        with self._running(job):
            try:
                still_now = job.wait(args.timeout)
            except KeyboardInterrupt:
                if job.state != "running":  # its task raised this
                    raise
                print(f"stopped waiting; {job.name} runs on")
                return
        if not still_now:
            print(f"{job.name} still runs after {args.timeout:g} s")
            return
        if job.session is not None and not job.session.live:
            print_position(job, job.session)
            return
        snapshot = job.snapshot()
        said = f"{snapshot.error_counts}, " if snapshot.error_counts else ""
        print(
            f"{job.name} is {job.state}: {counted(snapshot.processed, 'message')} processed, "
            f"{said}{status_text(snapshot)}"
        )
        if job.session is not None:
            print_stop(job, job.session)
        print_ignored(snapshot.error_counts)

    def _pause(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        if job.state == "new":
            print(f"{job.name} is not started: there is nothing to pause")
            return
        with self._running(job):
            job.pause()
            job.wait()
        print(f"{job.name} is {job.state}")

    def _stop(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        if job.state in ("new", "stopped"):
            is_new = job.state == "new"
            self._close_panel(job.name, STOPPED)
            print(f"{job.name} is {'not started: there is nothing to stop' if is_new else 'stopped already'}")
            return
        if not args.now:
            require_no_branch(job, "stop")
        with self._running(job):
            # First of all: a report waits for a close() that may never return.
            if args.now and not job.pause(_MOMENT_S):
                self._give_up(job)
                return
            job.report_takeover()
            job.pause()
            failed = job.state == "failed"
            session = job.session
            assert session is not None
            not_recorded, was_recorded = session.to_record, session.recorded_to is not None
            ended = ended_text(session, has_failed=failed, is_abandoned=args.now)
            dropped = "; its branch is dropped" if session.branched else ""
            if args.now:
                job.give_up()
            else:
                job.stop()
        self._close_panel(job.name, "as it was when the job failed" if failed else STOPPED)
        print(f"{job.name} {ended}{dropped}")
        if was_recorded and session.recorded is not None:
            print(recorded_line(job, session.recorded))
        if not_recorded is not None:
            print(f"nothing was recorded to {shown_path(not_recorded)}: no commit came before the stop")
        print_ignored(job.snapshot().error_counts)

    def _give_up(self, job: Job) -> None:
        session = job.session
        was_recorded = session is not None and session.recorded_to is not None
        ended = job.give_up()
        self._close_panel(job.name, "failed")
        print(
            f"{job.name} has given up its message: nothing since its last checkpoint is committed. Mend the "
            "task, run its cell, and "
            f"%stream create {job.name}: it goes on from there"
        )
        if not ended:
            print(
                "its task has not ended all the same; what it still does has no effect on streams, state "
                "and checkpoints (a call such as "
                "time.sleep() ends only when it returns)"
            )
        if was_recorded and session is not None and session.recorded is not None:
            print(recorded_line(job, session.recorded))

    def _show(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        with self._running(job):
            if job.state == "new":
                self._start(job)
            self._show_it(job, args)

    def _show_it(self, job: Job, args: Namespace) -> None:
        say_if_busy(job)
        if job.deployed is not None and not job.alive:
            print(f"this is how it was here, before it {job.deployed}")
        self._close_panel(job.name, "shown again below")
        if not args.static and job.state not in ("stopped", "failed") and hasattr(self.shell, "kernel"):
            panel = Panel(job)
            try:
                panel.open()
            except ImportError:
                print("a live panel needs an optional dependency: pip install 'streambench[jupyter]'")
            else:
                self._panels[job.name] = panel
                return
        show(static(static_view(job)))

    def _export(self, args: Namespace) -> None:
        *named, directory = args.names
        job = self.bench.job(name_and_number(named, PARSERS["export"])[0])
        # It needs what packs a job for Spark, which takes long to import.
        export = importlib.import_module("streambench_magics.jobs.export").export
        for line in export(
            job, self.shell.user_ns, Path(directory).expanduser(), runs=not args.no_run, say=say
        ):
            print(line)

    def _help(self, args: Namespace) -> None:
        if args.command is None:
            print(overview())
        elif args.command in PARSERS:
            print(PARSERS[args.command].full_help())
        else:
            raise MagicError(_no_command(args.command))

    def _jobs(self) -> Records:
        records = []
        for job in self.bench.jobs.values():
            figures: dict[str, Any] = {"processed": None, "lag": None}
            session = job.session
            try:
                snapshot = job.snapshot_now(_AT_ONCE_S)
            except StreambenchError as error:
                print(f"{job.name}: {error}")
            else:
                if snapshot is not None:
                    figures = {"processed": snapshot.processed, "lag": snapshot.lag}
                elif session is not None:
                    done = figures["processed"] = session.processed_now
                    print(f"{job.name} is running: {counted(done, 'message')}, {job.busy_now}")
            state = f"{job.state}, {job.busy}" if job.busy else job.state
            if job.deployed is not None and not job.alive:
                print(f"{job.name} {job.deployed}; its lag is that behind its last commit")
                state = f"{state} here"
                figures = {"processed": job.deployed.messages, "lag": job.committed_lag}
            elif not job.alive and (elsewhere := job.elsewhere):
                print(f"{elsewhere}; its lag here is that behind its last commit")
                figures["lag"] = job.committed_lag
            records.append(
                {
                    "job": job.name,
                    "state": state,
                    "task": job.task_name,
                    "inputs": ", ".join(job.inputs),
                    **figures,
                }
            )
        hint = (
            ""
            if records
            else "there is no job yet: %stream create NAME --task TASK makes one, "
            "%stream help lists all commands"
        )
        return Records(
            ["job", "state", "task", "inputs", "processed", "lag"],
            records,
            right=["processed", "lag"],
            note=hint,
        )

    def _job_and_streams(self, names: list[str]) -> tuple[Job, list[str]]:
        name = names[0] if names[0] in self.bench.jobs or "." not in names[0] else None
        job = self.bench.job(name)
        streams = [str(SystemStream.parse(each)) for each in (names if name is None else names[1:])]
        if not streams:
            raise MagicError(f"which streams? For example: %stream attach {job.name} log.clicks")
        return job, list(dict.fromkeys(streams))


def _no_command(name: str) -> str:
    similar = suggest(name.lower(), PARSERS)
    return " ".join(
        filter(None, [f"there is no %stream {name};", similar, "%stream help lists what there is"])
    )


def _beginning(partitions: Sequence[PartitionSnapshot]) -> str:
    """The places where a job begins to read a stream, in words."""
    if all(each.checkpointed is None for each in partitions):
        why = "no checkpoint knows it"
    elif all(each.checkpointed is not None for each in partitions):
        why = _BEHIND
    else:
        why = f"{_BEHIND}, where there is one"
    return f"{_places([(each.ssp, each.position) for each in partitions])}: {why}"


def _places(begins: Sequence[tuple[SystemStreamPartition, str]]) -> str:
    shown = [f"{ssp}@{offset}" for ssp, offset in begins[:_MOST_BEGINNINGS]]
    more = "" if len(begins) <= len(shown) else f" and {len(begins) - len(shown):,} more"
    return f"at {', '.join(shown)}{more}"


def _check_name(name: str) -> None:
    if not name.isidentifier():
        raise MagicError(f"'{name}' cannot be a name: use letters, digits and underscores")


StreamMagics.streamtask.__doc__ = TASK.full_help()
StreamMagics.streamconfig.__doc__ = CONFIG.full_help()
StreamMagics.stream.__doc__ = overview()
