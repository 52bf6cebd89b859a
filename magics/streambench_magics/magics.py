"""``%%streamtask``, ``%%streamconfig`` and ``%stream``.

The sub-commands' arguments stand in ``commands.py``; here is what they do, one method each. What they print is short, and the same
whenever the same is done to the same streams.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand

from streambench.checkpoint.choice import checkpoint_manager
from streambench.config import masked
from streambench.container.container import Until
from streambench.container.snapshot import lag_between
from streambench.debug.view import counted
from streambench.errors import StreambenchError, StreamSystemError, TaskError, UnknownStreamError
from streambench.job.failure import user_frames
from streambench.model import SystemStream
from streambench.planning.model import natural
from streambench.planning.plan import job_name
from streambench.serde.streams import StreamSerdes
from streambench.system.listing import listing
from streambench.system.systems import Systems, builtin_kind
from streambench_magics.cell import task_from_cell
from streambench_magics.commands import CONFIG, PARSERS, TASK, Parser, overview, words
from streambench_magics.errors import Interrupted, MagicError, interrupted, task_failed
from streambench_magics.jobs import Job, Workbench, parsed_config, telling
from streambench_magics.panel import Panel, show, static
from streambench_magics.picture import still, to_do_again, why
from streambench_magics.streams import is_confirmed, messages_in, partitions_of, peek, send
from streambench_magics.tables import Records, message_text

_FOLD_ABOVE = 24
_SHOWN_STEPS = 10
_END_S = 2.0
_PATIENCE_S = 15.0
_AT_ONCE_S = 0.5
_MOMENT_S = 0.5
_STOPPED = "stopped"
_HERE = ("log", "memory", "file")
_TEXT_SERDES = ("string", None)


@magics_class
class StreamMagics(Magics):
    """The magics of one IPython shell, and the workbench that they work on."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.bench = Workbench(shell.user_ns)
        self.matcher: Any = None
        self._panels: dict[str, Panel] = {}

    @no_var_expand
    @cell_magic
    def streamtask(self, line: str, cell: str) -> None:
        args = TASK.parse_args(words(line))
        _check_name(args.name)
        task = task_from_cell(self.shell, args.name, line, cell, args.wanted)
        self.bench.tasks[args.name] = task
        self.shell.user_ns[args.name] = task
        print(f"{args.name} is a task" + (f", the class {task.__name__}" if task.__name__ != args.name else ""))
        for job in self.bench.jobs.values():
            if job.task_name == args.name and job.alive:
                give_up = f"give up its message with %stream stop --now {job.name}, and then " if job.busy else ""
                print(f"the job {job.name} goes on with the code of before; {give_up}%stream create {job.name} takes the new one")

    @no_var_expand
    @cell_magic
    def streamconfig(self, line: str, cell: str) -> None:
        args = CONFIG.parse_args(words(line))
        _check_name(args.name)
        self.bench.configs[args.name] = parsed_config(args.name, cell)
        number = len(self.bench.configs[args.name])
        print(f"{args.name} is a configuration with {counted(number, 'key')}")

    @no_var_expand
    @line_magic
    def stream(self, line: str) -> Any:
        command, _, rest = line.strip().partition(" ")
        if not command:
            return self._jobs()
        parser = PARSERS.get(command)
        if parser is None:
            raise MagicError(f"there is no %stream {command}; there is {', '.join(PARSERS)}")
        do: Callable[[Namespace], Any] = getattr(self, f"_{command}")
        try:
            return do(parser.parse_intermixed_args(words(rest)))
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise Interrupted([f"interrupted: %stream {command}"]) from None

    def end(self) -> None:
        """Freeze the panels and stop the jobs, as far as they let go in time: the next start does again what is not committed then."""
        for name in list(self._panels):
            self._close_panel(name, "the kernel has ended")
        for job in self.bench.jobs.values():
            with contextlib.suppress(StreambenchError):
                if job.pause(_END_S):
                    job.stop()

    def _create(self, args: Namespace) -> None:
        _check_name(args.name)
        replaced = self.bench.jobs.get(args.name)
        note = "closed to create the job anew"
        with contextlib.nullcontext() if replaced is None else self._running(replaced):
            job, old = self.bench.create(
                args.name, args.task, args.config, args.inputs, replaces=lambda: self._close_panel(args.name, note)
            )
        reads = f"reads {', '.join(job.inputs)}" if job.inputs else f"has no inputs yet: %stream attach {job.name} SYSTEM.STREAM"
        print(f"{job.name} is a job of the task {job.task_name}; it {reads}")
        if old is not None:
            print(f"it replaces the {job.name} of before" + (", which was stopped" if old.session is not None else ""))

    def _attach(self, args: Namespace) -> None:
        job, streams = self._job_and_streams(args.names)
        again = [each for each in streams if each in job.inputs]
        if again:
            raise MagicError(f"{job.name} reads {', '.join(again)} already")
        self._set_inputs(job, [*job.inputs, *streams])
        self._warn_of_missing(job, streams)

    def _detach(self, args: Namespace) -> None:
        job, streams = self._job_and_streams(args.names)
        unknown = [each for each in streams if each not in job.inputs]
        if unknown:
            raise MagicError(f"{job.name} does not read {', '.join(unknown)}; it reads {', '.join(job.inputs) or 'nothing'}")
        self._set_inputs(job, [each for each in job.inputs if each not in streams])

    def _warn_of_missing(self, job: Job, streams: list[str]) -> None:
        """A job that is not started takes any names; it would find out at its start. Systems elsewhere are not asked before that."""
        systems = Systems(job.config)
        try:
            for stream in map(SystemStream.parse, [] if job.alive else streams):
                try:
                    if builtin_kind(job.config, stream.system) in _HERE:
                        systems.metadata([stream])
                except UnknownStreamError:
                    print(f"there is no {stream} yet: %stream streams create {stream} --partitions N makes it")
        finally:
            systems.close()

    def _set_inputs(self, job: Job, inputs: list[str]) -> None:
        with self._running(job):
            started = job.set_inputs(inputs)
        went_on = ("; it has committed and goes on with them" if inputs else "; it has committed and stopped") if started else ""
        print(f"{job.name} reads {', '.join(inputs) or 'nothing'}{went_on}")

    def _send(self, args: Namespace) -> None:
        stream = SystemStream.parse(args.stream)
        config = self.bench.config_with(stream.system, args.config)
        if (args.message is None) == (args.source is None):
            raise MagicError(f"give one message, or --from a variable; {PARSERS['send'].usage_line()}")
        if args.key is not None and args.key_field is not None:
            raise MagicError("give --key or --key-field, not both")
        key_serde = config.text(config.stream_key(stream.system, stream.stream, "samza.key.serde"))
        key = args.key if key_serde in _TEXT_SERDES else _json_or_text(args.key)
        value = _json_or_text(args.message) if args.source is None else self._value(args.source)
        StreamSerdes(config)
        with self._known_stream(stream):
            number = send(
                config, stream, messages_in(value, key, args.key_field) if args.source or args.key_field else [(key, value)], args.partition
            )
        note = "" if is_confirmed(config, stream) else "; nobody says whether it was taken"
        print(f"sent {counted(number, 'message')} to {stream}{note}")
        if args.source is None and _is_variable(self.shell.user_ns, args.message):
            print(f"that was the word '{args.message}'; the messages of the variable {args.message} are sent with --from {args.message}")

    def _peek(self, args: Namespace) -> Records:
        stream = SystemStream.parse(args.stream)
        config = self.bench.config_with(stream.system, args.config)
        with self._known_stream(stream):
            found = peek(config, stream, limit=args.limit, partition=args.partition, begin=args.begin)
        return Records(
            ["partition", "offset", "key", "message", *(["reason"] if any("reason" in each for each in found) else [])],
            found,
            right=["partition", "offset"],
            note="" if found else f"{stream} is empty there" if args.begin in ("oldest", "newest") else f"{stream} ends at {args.begin}",
        )

    def _streams(self, args: Namespace) -> Records | None:
        if args.what[:1] == ["create"]:
            self._create_streams(args)
            return None
        if args.partitions is not None:
            raise MagicError("--partitions goes with create: %stream streams create STREAM --partitions N")
        records: list[dict[str, Any]] = []
        problems: list[str] = []
        for what in args.what or self._systems():
            config = self.bench.config_with(what.partition(".")[0], args.config)
            if "." in what:
                with self._known_stream(stream := SystemStream.parse(what)):
                    records += partitions_of(config, [stream])
                continue
            found = listing(config, [what], patience_s=_PATIENCE_S)
            problems += map(str, found.problems)
            try:
                records += partitions_of(config, found.streams, all_there=False)
            except StreamSystemError as error:
                problems.append(str(error))
        for problem in problems:
            print(problem)
        if len(records) > _FOLD_ABOVE:
            return _folded(records)
        figures = ["partition", "oldest", "newest", "upcoming"]
        return Records(["stream", *figures], records, right=figures, note="" if records or problems else "there are no streams")

    def _create_streams(self, args: Namespace) -> None:
        names = args.what[1:]
        if not names:
            raise MagicError("which stream? %stream streams create STREAM --partitions N")
        for name in names:
            stream = SystemStream.parse(name)
            systems = Systems(self.bench.config_with(stream.system, args.config))
            try:
                made = systems.create(stream, args.partitions)
                number = len(systems.metadata([stream])[stream])
            finally:
                systems.close()
            print(f"{stream} {'is created' if made else 'is there already'}, with {counted(number, 'partition')}")

    def _step(self, args: Namespace) -> None:
        name, number = _name_and_number(args.what, PARSERS["step"])
        job = self.bench.job(name)
        with self._running(job):
            self._start(job)
            done = job.step(number)
        snapshot = job.snapshot()
        if job.state == "stopped":
            print(f"{job.name} has shut itself down")
        elif not done:
            print(f"{job.name}: nothing to read, it has caught up with its inputs")
        elif done < number:
            print(f"{job.name}: {counted(done, 'message')}, then it had caught up with its inputs")
        chosen = snapshot.choices[-min(done, _SHOWN_STEPS) :] if done else ()
        if done > len(chosen):
            print(f"{job.name}: {done:,} messages, the last {len(chosen)} of them:")
        for choice in chosen:
            key = "" if choice.key is None else f"  key {message_text(choice.key, 60)}"
            print(f"{choice.number:>6,}  {choice.ssp}@{choice.offset}{key}" + (f"  ({choice.rule})" if choice.rule else ""))

    def _run(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        until: Until = args.messages if args.messages is not None else args.until
        with self._running(job):
            self._start(job)
            job.run(until)
        how = f"for {counted(until, 'message')}" if isinstance(until, int) else "until it has caught up" if until else "until paused"
        print(f"{job.name} runs {how}")

    def _wait(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        with self._running(job):
            try:
                still_now = job.wait(args.timeout)
            except KeyboardInterrupt:
                print(f"stopped waiting; {job.name} runs on")
                return
        if not still_now:
            print(f"{job.name} still runs after {args.timeout:g} s")
            return
        snapshot = job.snapshot()
        said = f"{snapshot.passed_over}, " if snapshot.passed_over else ""
        print(f"{job.name} is {job.state}: {counted(snapshot.processed, 'message')} processed, {said}{why(snapshot)}")

    def _pause(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        with self._running(job):
            job.pause()
            job.wait()
        print(f"{job.name} is {job.state}")

    def _stop(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        with self._running(job):
            if args.now and not job.pause(_MOMENT_S):
                self._give_up(job)
                return
            job.pause()
            failed = job.state == "failed"
            job.stop()
        self._close_panel(job.name, "failed" if failed else _STOPPED)
        print(
            f"{job.name} has failed: nothing since its last checkpoint is committed"
            if failed
            else f"{job.name} is stopped, with everything committed"
        )

    def _give_up(self, job: Job) -> None:
        ended = job.give_up()
        self._close_panel(job.name, "failed")
        print(
            f"{job.name} has given up its message: nothing since its last checkpoint is committed. Mend the task, run its cell, and "
            f"%stream create {job.name}: it goes on from there"
        )
        if not ended:
            print(
                "its task has not ended all the same; what it still does has no effect on streams, state and checkpoints (a call such as "
                "time.sleep() ends only when it returns)"
            )

    def _show(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        with self._running(job):
            if job.state == "new":
                self._start(job)
            self._show_it(job, args)

    def _show_it(self, job: Job, args: Namespace) -> None:
        _say_if_busy(job)
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
        show(static(still(job)))

    def _commit(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        with self._running(job):
            job.commit()
        print(f"{job.name} is committed")

    def _checkpoints(self, args: Namespace) -> Records:
        job = self.bench.job(args.name)
        if args.history:
            return self._history(job)
        records: list[dict[str, Any]] = []
        with self._running(job):
            _say_if_busy(job)
            partitions = job.snapshot().partitions
        for each in partitions:
            last = {"checkpoint": each.checkpointed, "position": each.position, "to do again": to_do_again([each])}
            records += [{"task": task, "partition": str(each.ssp), **last} for task in each.tasks]
        if not records:
            return self._history(job, last=True)
        records.sort(key=lambda record: natural(record["task"]))
        figures = ["checkpoint", "position", "to do again"]
        return Records(["task", "partition", *figures], records, right=figures)

    def _history(self, job: Job, *, last: bool = False) -> Records:
        manager = checkpoint_manager(job.config, job_name(job.config, job.task))
        try:
            kept = {task: [each] for task, each in manager.read_last().items()} if last else manager.history()
        finally:
            manager.close()
        records = [
            {"task": task, "number": number, "partition": str(ssp), "checkpoint": offset}
            for task in sorted(kept, key=natural)
            for number, checkpoint in enumerate(kept[task], start=1)
            for ssp, offset in sorted(checkpoint.offsets.items())
        ]
        columns = ["task", "partition", "checkpoint"] if last else ["task", "number", "partition", "checkpoint"]
        return Records(columns, records, right=["number", "checkpoint"], note="" if records else f"{job.name} has no checkpoint yet")

    def _deploy(self, args: Namespace) -> Records:
        job = self.bench.job(args.name)
        deploy = importlib.import_module("streambench.spark").deploy
        if job.alive:
            with self._running(job):
                job.pause()
                job.stop()
            self._close_panel(job.name, "stopped, and deployed on Spark")
            print(f"{job.name} is stopped here, with everything committed")
        with _line(f"deploying {job.name} on {masked('master', args.master)}") as tell:
            result = deploy(
                job.config, task=job.task, master=args.master,
                progress=lambda now: tell(f"{now.messages:,} of {counted(now.total or 0, 'message')}, {now.done} of {now.containers} done"),
            )  # fmt: skip
        print(f"{job.name}: {counted(result.messages, 'message')} in {counted(len(result.containers), 'container')}")
        records = [{"container": each.number, "tasks": len(each.tasks), "messages": each.messages} for each in result.containers]
        return Records(["container", "tasks", "messages"], records, right=["container", "tasks", "messages"], source=result)

    def _help(self, args: Namespace) -> None:
        if args.command is None:
            print(overview())
        elif args.command in PARSERS:
            print(PARSERS[args.command].full_help())
        else:
            raise MagicError(f"there is no %stream {args.command}; there is {', '.join(PARSERS)}")

    def _jobs(self) -> Records:
        records = []
        for job in self.bench.jobs.values():
            figures: dict[str, Any] = {"processed": None, "lag": None}
            try:
                snapshot = job.snapshot(_AT_ONCE_S)
            except StreambenchError as error:
                print(f"{job.name}: {error}")
            else:
                figures = {"processed": snapshot.processed, "lag": snapshot.lag}
            state = f"{job.state}, {job.busy}" if job.busy else job.state
            records.append({"job": job.name, "state": state, "task": job.task_name, "inputs": ", ".join(job.inputs), **figures})
        hint = "" if records else "there is no job yet: %stream create NAME --task TASK makes one, %stream help tells what else there is"
        return Records(["job", "state", "task", "inputs", "processed", "lag"], records, right=["processed", "lag"], note=hint)

    def _start(self, job: Job) -> None:
        before = job.state
        if job.start():
            print(f"{job.name} had {before}; it goes on from its last checkpoint")

    def _job_and_streams(self, names: list[str]) -> tuple[Job, list[str]]:
        name = names[0] if names[0] in self.bench.jobs or "." not in names[0] else None
        job = self.bench.job(name)
        streams = [str(SystemStream.parse(each)) for each in (names if name is None else names[1:])]
        if not streams:
            raise MagicError(f"which streams? For example: %stream attach {job.name} log.clicks")
        return job, list(dict.fromkeys(streams))

    def _systems(self) -> list[str]:
        """The systems of the nearest configuration."""
        return self.bench.all_configs()[0].names_below("systems.")

    def _value(self, expression: str) -> Any:
        try:
            return eval(expression, self.shell.user_ns)
        except Exception as error:
            raise MagicError(f"--from {expression}: {type(error).__name__}: {error}") from None

    def _close_panel(self, name: str, note: str) -> None:
        panel = self._panels.pop(name, None)
        if panel is not None:
            panel.close(note)
            if panel.reloaded and note == _STOPPED:
                show(static(still(panel.job), note))

    @contextlib.contextmanager
    def _running(self, job: Job) -> Iterator[None]:
        """Show a failure, or where the task was when it was interrupted, with the user's own frames alone; tell what is waited for."""
        try:
            with telling(_say):
                yield
        except TaskError as error:
            raise task_failed(self.shell, error, job.name) from error.__cause__
        except StreambenchError as error:
            # A serde or a chooser of the user's, in a cell.
            if (frames := user_frames(error)) and frames not in getattr(error, "__notes__", []):
                error.add_note(frames)
            raise
        except KeyboardInterrupt as error:
            raise interrupted(self.shell, error, job.name, job.state) from None

    @contextlib.contextmanager
    def _known_stream(self, stream: SystemStream) -> Iterator[None]:
        try:
            yield
        except UnknownStreamError as error:
            raise MagicError(f"{error}. %stream streams create {stream} --partitions N makes it") from None


@contextlib.contextmanager
def _line(text: str) -> Iterator[Callable[[str], None]]:
    """A line of output with what goes on behind it, for as long as it does: at the end it says the same as at the beginning."""
    handle = show({"text/plain": text}, display_id=True)
    said = text

    def tell(news: str) -> None:
        nonlocal said
        if f"{text}: {news}" != said:
            said = f"{text}: {news}"
            handle.update({"text/plain": said}, raw=True)

    try:
        yield tell
    finally:
        if said != text:
            handle.update({"text/plain": text}, raw=True)


def _say(text: str) -> None:
    print(text, flush=True)


def _say_if_busy(job: Job) -> None:
    if job.busy:
        _say(f"{job.name} has been {job.busy}: this is how it was before. %stream stop --now {job.name} gives the message up")


def _check_name(name: str) -> None:
    if not name.isidentifier():
        raise MagicError(f"'{name}' cannot be a name: use letters, digits and underscores")


def _name_and_number(what: list[str], parser: Parser) -> tuple[str | None, int]:
    name, number = None, "1"
    if what and what[-1].removeprefix("-").isdecimal():
        *what, number = what
    if what:
        name, *what = what
    if what:
        raise MagicError(f"a job and a number of messages, at most; {parser.usage_line()}")
    if int(number) < 1:
        raise MagicError(f"'{number}' is not a number of 1 or more; {parser.usage_line()}")
    return name, int(number)


def _is_variable(names: Mapping[str, Any], word: str | None) -> bool:
    """Whether a message that is sent as a word is the name of messages."""
    value = names.get(word or "")
    return isinstance(value, (list, tuple, dict)) or hasattr(value, "columns")


def _json_or_text(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _folded(records: list[dict[str, Any]]) -> Records:
    streams: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        streams.setdefault(record["stream"], []).append(record)
    lines = [
        {
            "stream": stream,
            "partitions": len(parts),
            "messages": sum(lag_between(part["oldest"], part["upcoming"]) or 0 for part in parts if part["oldest"] is not None),
        }
        for stream, parts in streams.items()
    ]
    return Records(["stream", "partitions", "messages"], lines, right=["partitions", "messages"])


StreamMagics.streamtask.__doc__ = TASK.full_help()
StreamMagics.streamconfig.__doc__ = CONFIG.full_help()
StreamMagics.stream.__doc__ = overview()
