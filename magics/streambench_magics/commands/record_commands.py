"""The sub-commands of ``%stream`` that record a job, and open recordings as jobs."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streambench.config import Config
from streambench.container.container import Until
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.counts import counted
from streambench.debug.control.recorder import Recorded
from streambench.debug.control.session import Session
from streambench.debug.replay.replay import code_note, codes_of
from streambench.debug.replay.replay import open as open_recording
from streambench.debug.replay.replay_summary import summary_lines
from streambench.debug.stopping.conditions import Conditional
from streambench.errors import ConfigError
from streambench.recording import Recording
from streambench.recording.captures import shown_path
from streambench_magics.commands.commands import PARSERS
from streambench_magics.commands.job_commands import JobCommands
from streambench_magics.commands.status_messages import late_status, late_status_line
from streambench_magics.errors import MagicError
from streambench_magics.jobs.jobs import Job
from streambench_magics.jobs.task_code import file_stamp
from streambench_magics.panel.figures import bytes_text

_NAME = "replay"


class ReplayJob(Job):
    """A job that is the replay of a recording. Started again, it is opened again."""

    is_replay = True
    _begins_again = "where the recording was opened"

    def __init__(
        self, name: str, open_again: Callable[[Any], Session], find_task: Callable[[], Any], task_name: str,
        namespace: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._open_again, self._task_given = open_again, find_task
        session = open_again(find_task())
        super().__init__(
            name, session.container.config, lambda: find_task() or session.container.factory, task_name,
            namespace,
        )  # fmt: skip
        session.name = name
        session.on_change(self._changed)
        self._stamp = file_stamp(session.container.factory)
        self.session = self._former = session

    @property
    def elsewhere(self) -> str:
        """Nothing: it has no streams and checkpoints but its own."""
        return ""

    def check(self) -> None:
        """Nothing to check: it is open."""

    def nothing_to_read(self, snapshot: ContainerSnapshot) -> str:
        """Nothing: no message that is sent would come to it."""
        return ""

    def run(self, until: Until | Conditional = None, *, speed: float | None = None) -> None:
        super().run("caught-up" if until is None else until, speed=speed)

    def set_inputs(self, inputs: list[str]) -> bool:
        raise MagicError(f"{self.name} is a replay: it reads what was recorded")

    def _new_session(self) -> Session:
        session = self._open_again(self._task_given())
        self._stamp = file_stamp(session.container.factory)
        session.name = self.name
        if self._former is not None:
            session.take_over(self._former)
        return session

    def renewed(self, config: Config | None = None) -> ReplayJob:
        """The same recording, opened once more, with the breakpoints and watches that it has. Its
        configuration is the recorded one."""
        job = ReplayJob(self.name, self._open_again, self._task_given, self.task_name, self._namespace)
        if job.session is not None and self._former is not None:
            job.session.take_over(self._former)
        return job


def _since(job: Job, session: Session) -> str:
    """From when on a job is recorded."""
    if session.recorded_to is not None:
        return "until it stops, or %stream record --stop"
    if session.state == "new":
        is_first = job.session is None
        return "from its start on" if is_first else "from its next start on: %stream step begins it"
    if session.can_resume:
        return "from its first commit on after it goes on: %stream step runs the failed message again"
    return "from its next commit on: %stream commit begins it now"


def _is_followed(recording: Recording) -> bool:
    """True where the code of a recording was swapped, and all of it is here."""
    try:
        return bool(codes_of(recording)[1])
    except ConfigError:
        return False


def recorded_line(job: Job, recorded: Recorded) -> str:
    """A recording that has ended."""
    if not recorded.size:
        return (
            f"nothing was recorded to {shown_path(recorded.path)}: no commit came before the stop; %stream "
            "commit begins a recording"
        )
    messages = counted(recorded.messages, "message")
    file = shown_path(recorded.path)
    return f"{job.name} is recorded to {file}: {messages}, {bytes_text(recorded.size)}"


class RecordCommands(JobCommands):
    """Methods of the magics, one per sub-command."""

    def _record(self, args: Namespace) -> None:
        if args.stop:
            self._stop_recording(args.what)
            return
        if not args.what:
            print("\n".join(self._recorded()) or "nothing is being recorded: %stream record FILE begins it")
            return
        *names, file = args.what
        if len(names) > 1:
            raise MagicError(f"one job, and one file; {PARSERS['record'].usage_line()}")
        job = self.bench.job(names[0] if names else None)
        replaced = ", in place of the recording there," if Path(file).exists() else ""
        session = job.record(file)
        print(f"{job.name} is recorded to {file}{replaced} {_since(job, session)}")

    def _stop_recording(self, names: list[str]) -> None:
        """End the recording of a job, else the only one that there is."""
        if len(names) > 1:
            raise MagicError(f"--stop needs no file: a job, at most; {PARSERS['record'].usage_line()}")
        found = [
            job
            for job in self.bench.jobs.values()
            if (session := job.marked_already) is not None and (session.recorded_to or session.to_record)
        ]
        job = found[0] if not names and len(found) == 1 else self.bench.job(names[0] if names else None)
        session = job.marked_already
        if session is None or job not in found:
            why = "is not being recorded" if session is None else session.not_recorded
            raise MagicError(f"{job.name} {why}: %stream record {job.name} FILE begins it")
        with self._running(job):
            print(recorded_line(job, session.stop_recording()))

    def _recorded(self) -> list[str]:
        """The recordings of all jobs, by line."""
        lines = []
        for job in self.bench.jobs.values():
            session = job.marked_already
            if session is None:
                continue
            if session.recorded_to is not None:
                lines.append(
                    f"{job.name} is being recorded to {shown_path(session.recorded_to)}, until it stops or "
                    "%stream record --stop"
                )
            elif session.to_record is not None:
                file = shown_path(session.to_record)
                lines.append(f"{job.name} will be recorded to {file} {_since(job, session)}")
        return lines

    def _replay(self, args: Namespace) -> None:
        with late_status(f"reading {args.file}") as update:
            recording = Recording.read(
                args.file, lambda done, total: update(f"{done / max(total, 1):.0%}")
            )
            len(recording)  # its messages are made of the rows now
        code = recording.header.task
        wanted = args.task or self._task_of(code.name)
        # Recorded code runs, unless other code is given, or mended later: where the code was swapped, too.
        follows = args.task is None and (args.recorded_source or _is_followed(recording))
        known = self.bench.tasks.get(wanted or "") if follows else None
        if args.to_test is not None:
            # A task of a cell stands in the test as the notebook has it now.
            given = wanted if args.task or not (code.file or follows) else None
            task = given if given is None or ".py:" in given else self.bench.task(given)
            _write_test(recording, task, args)
            return

        def find_task() -> Any:
            if wanted is None:
                return None
            task = wanted if ".py:" in wanted else self.bench.task(wanted)
            return None if task is known else task

        def open_again(task: Any) -> Session:
            with late_status_line(f"running {args.file} up to its end", "messages") as progress:
                return open_recording(
                    recording, task, recorded_source=args.recorded_source and task is None,
                    namespace=self.shell.user_ns, progress=progress,
                )  # fmt: skip

        name = args.name or _NAME
        job = ReplayJob(name, open_again, find_task, wanted or code.name, self.shell.user_ns)
        self.bench.put(job, lambda: self._close_panel(name, "closed to open another recording"))
        lines = summary_lines(recording, find_task(), recorded_source=args.recorded_source)
        print("\n".join(lines))
        assert job.session is not None
        held = job.session.container.held
        if held is not None:
            print(f"{name} stands before it, at {job.session.position:,}: %stream step runs it")
        elif job.session.position:
            print(f"{name} stands at {job.session.position:,}: %stream back leads into it")
        else:
            print(f"{name} stands before its first message: %stream step runs it")

    def _task_of(self, code: str) -> str | None:
        """The name of the ``%%streamtask`` whose class or function has this name; None for none."""
        found = [name for name, task in self.bench.tasks.items() if getattr(task, "__qualname__", "") == code]
        return code if code in found else next(iter(found), None)


def _write_test(recording: Recording, task: Any, args: Namespace) -> None:
    with late_status(f"running its {counted(len(recording), 'message')} for {args.to_test}"):
        test = recording.to_test(args.to_test, task=task, recorded_source=args.recorded_source)
    if note := code_note(recording, task, recorded_source=args.recorded_source):
        print(f"note: {note}")
    print(f"written: {test}, with its messages in {test.with_suffix('.recording')}")
