"""A job of a notebook: a session over a container that is made when it is first needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any

from msgspec.structs import replace

from streambench.checkpoint.journal_records import takeover_announced
from streambench.config import Config
from streambench.container.container import Container, Until
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.debug.control.driving import noticing
from streambench.debug.control.hot_swap import Swap
from streambench.debug.control.session import Session
from streambench.debug.stopping.conditions import Conditional
from streambench.debug.view.restore_progress import show_restore_progress
from streambench.debug.view.waiting import described_waits, nothing_to_read, sendable
from streambench.errors import StreambenchError
from streambench.job.running import work_elsewhere
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.plan import job_name
from streambench.system.systems import Systems
from streambench_magics.errors import MagicError
from streambench_magics.jobs.cell import file_name
from streambench_magics.jobs.deployed import Deployed, committed_begins, committed_lag
from streambench_magics.jobs.task_code import Stamp, code_now, file_stamp

CHOICES = 160
"""The number of the last choices that are remembered, to be shown."""

_SILENT_S = 2.0
_PATIENCE_S = 1.0

_notices: ContextVar[Callable[[str], object] | None] = ContextVar("notices", default=None)


def _send_line(stream: SystemStream) -> str:
    """A command that sends a message to a stream, for hints."""
    return f"%stream send {stream} MESSAGE"


@contextmanager
def showing_delay(job: Job, show: Callable[[str], object]) -> Iterator[None]:
    """Meanwhile, on this thread, show once what a job is waited for, when its task has been busy with one
    message for a second."""
    before = _notices.set(show)
    is_shown = False

    def notice() -> None:
        nonlocal is_shown
        session = job.session
        if session is not None and not is_shown and session.busy_s >= _PATIENCE_S:
            is_shown = True
            show(job.waited_for)

    try:
        with noticing(notice):
            yield
    finally:
        _notices.reset(before)


class Job:
    """A job by name: a task, a configuration, and the session over its container.

    The container is made when it is first needed. It is made again when the job continues after a stop, a
    failure or a change of its inputs. It is the same job then, and continues from its last checkpoint.
    ``find_task`` gives the task as it is now. All methods may be called from any thread.
    """

    is_replay = False
    """True where it is the replay of a recording."""
    _begins_again = "from its last checkpoint"

    def __init__(
        self,
        name: str,
        config: Config,
        find_task: Callable[[], Any],
        task_name: str | None,
        namespace: Mapping[str, Any] | None = None,
    ) -> None:
        """``task_name``: None where ``task.class`` of its configuration says it. ``namespace``: the user's
        variables, which conditions may use."""
        self.name = name
        self._task_name = task_name
        self.session: Session | None = None
        self.on_change: list[Callable[[], None]] = []
        self._base = config
        self._find_task = find_task
        self._inputs = config.names("task.inputs")
        self.history: int | bool | None = None
        """The memory in MB for going back in time, as for ``Session``."""
        self._until: Until | Conditional = None
        self._speed: float | None = None
        self._lock = threading.RLock()
        self._namespace = {} if namespace is None else namespace
        # Its breakpoints and watches are those of the next session, too.
        self._former: Session | None = None
        self._stamp: Stamp | None = None
        self.deployed: Deployed | None = None
        """Its deployment on Spark, since it last ran here."""
        self._shown_elsewhere = ""  # what its user knows of the processes that its next start ends
        self.config_name: str | None = None
        """The name under which its configuration was found; None for the default one."""

    @property
    def config(self) -> Config:
        """The configuration as the container gets it."""
        values: dict[str, Any] = {"task.inputs": ",".join(self._inputs) or None}
        if "job.name" not in self._base:
            values["job.name"] = self.name
        return self._base.with_values(values)

    def has_config(self, config: Config) -> bool:
        """True where this is its configuration, without its own inputs and name."""
        return config == self._base

    def renewed(self, config: Config | None = None) -> Job:
        """The same job once more, not started: its next session takes over the breakpoints and watches.
        ``config``: instead of its configuration; inputs that were attached stay."""
        config = self._base if config is None else config
        job = Job(self.name, config, self._find_task, self._task_name, self._namespace)
        job._former, job.config_name = self._former, self.config_name
        if self._inputs != self._base.names("task.inputs"):
            job._inputs = self.inputs
        job.history, job.deployed = self.history, self.deployed
        return job

    @property
    def elsewhere(self) -> str:
        """The processes that run this job, in words; empty where none does, or that is not known."""
        if self.session is not None and self.session.can_resume:
            return ""  # it has failed here, and this process still has it
        try:
            work = work_elsewhere(self.config, job_name(self.config, self.task))
        except StreambenchError:
            return ""  # its start says what is wrong
        return f"{self.name} is running elsewhere: {work}" if work else ""

    @property
    def goes_on(self) -> str:
        """The place at which its next start goes on, in words."""
        session = self.session
        failed = session.message if session is not None and session.can_resume else None
        return self._begins_again if failed is None else f"at {failed.ssp}@{failed.offset}"

    def takeover_notice(self, *, is_created: bool = False) -> str:
        """The processes that its next start takes it over from, to be shown before that. Empty where there
        are none, or they were shown before. ``is_created``: nothing starts yet."""
        session = self.session
        if self.alive or (session is not None and (session.can_resume or session.is_takeover_unreported)):
            return ""
        before, self._shown_elsewhere = self._shown_elsewhere, self.elsewhere
        if self._shown_elsewhere in ("", before):
            return ""
        how = "the first step or run here takes it over" if is_created else "it is taken over from there"
        return f"{self._shown_elsewhere}; {how}, at its last commit"

    @property
    def committed_lag(self) -> int | None:
        """The number of messages behind its last commit, also where that was made elsewhere; None where there
        is none, or that is not known."""
        return committed_lag(self.config, job_name(self.config, self.task))

    def committed_begins(self, stream: str) -> dict[SystemStreamPartition, str]:
        """The offsets at which its next start goes on in a stream, as its last commit has them."""
        return committed_begins(self.config, job_name(self.config, self.task), SystemStream.parse(stream))

    @property
    def has_begun(self) -> bool:
        """True where it was started in this notebook, or breakpoints wait for its start."""
        return self._former is not None

    @property
    def task(self) -> Any:
        return self._find_task()

    @property
    def task_name(self) -> str:
        """The name of its task in the notebook, else ``task.class``."""
        return self._task_name or self._base.required("task.class")

    @property
    def inputs(self) -> list[str]:
        """The input streams, as ``system.stream``."""
        return list(self._inputs)

    @property
    def state(self) -> str:
        """new, paused, running, stopped or failed."""
        return "new" if self.session is None else self.session.state

    @property
    def busy(self) -> str:
        """The report on a task that has been at one message for long; empty where
        none has."""
        busy_s = 0.0 if self.session is None or not self.alive else self.session.busy_s
        return f"busy with one message for {busy_s:,.0f} s" if busy_s >= _SILENT_S else ""

    @property
    def busy_at(self) -> str:
        """The seconds that its task has been at one message, with the message and the line. Empty where that
        is not long. An example: "14 s at log.x.0@8 key k2, cell [3] line 6: time.sleep(60)"."""
        busy = None if self.session is None or not self.alive else self.session.busy
        return "" if busy is None or busy.seconds < _SILENT_S else busy.described(file_name)

    @property
    def busy_now(self) -> str:
        """The message that its task is at, and where, as "busy 14 s at ..."; empty where nothing moves."""
        busy = None if self.session is None else self.session.busy
        return "" if busy is None else f"busy {busy.described(file_name)}"

    @property
    def waited_for(self) -> str:
        """The notice to a command that waits for its task."""
        at = f": {self.busy_now}" if self.busy_now else ""
        return (
            f"waiting for {self.name}{at} (interrupt the kernel to wait no longer; %stream stop --now "
            f"{self.name} gives the message up)"
        )

    @property
    def alive(self) -> bool:
        """True while there is a started container."""
        return self.state in ("paused", "running")

    def check(self) -> None:
        """Raise ConfigError where the configuration or the task are wrong, where this is known before
        the start."""
        Container.from_config(self.config, self.task)

    def report_takeover(self) -> None:
        """Raise FencedError, once, where another process has taken it over and no command has said so."""
        if self.session is not None:
            self.session.report_takeover()

    def start(self) -> bool:
        """Have a started container; whether this began again after a stop or a failure. In the past nothing
        happens. Raises what ``Container.start`` and ``report_takeover`` raise."""
        with self._lock:
            # In this order: a run that is fenced in between is reported, here or by what needs it alive.
            is_alive = self.alive
            self.report_takeover()
            if is_alive or (self.session is not None and not self.session.live):
                return False
            if self.session is not None and self.session.can_resume:
                if (code := self._changed_code(self.session)) is not None:
                    self.swap(code)
                return True
            again = self.session is not None
            if not self._inputs and not self.config.names("task.broadcast.inputs"):
                raise MagicError(f"{self.name} has no inputs: %stream attach {self.name} SYSTEM.STREAM")
            session = self._new_session()
            session.on_change(self._changed)
            self.session = self._former = session
        self._changed()
        return again

    def code_now(self) -> Any:
        """The code that its task has now; that of a file is read again. Raises ConfigError."""
        return code_now(self.config, self.task, self.code)

    @property
    def code(self) -> Any:
        """The code that it runs, also where a file names it; None before its first start."""
        return self.task if self.session is None else self.session.container.factory

    def swap(self, code: Any, *, init: bool = False, replay: int | None = None) -> Swap:
        """Give its session other code. See ``Session.swap``."""
        assert self.session is not None
        swap = self.session.swap(code, init=init, replay=replay)
        self._stamp = file_stamp(code)
        return swap

    def _changed_code(self, session: Session) -> Any:
        """The current code where it is not what runs; None where it is."""
        task, running = self.task, session.container.factory
        if task is None or task is running or isinstance(task, str):
            return None if file_stamp(running) == self._stamp else self.code_now()
        return task

    def _new_session(self) -> Session:
        """A started session over a new container."""
        container = Container(self.config, self.task, remember_choices=CHOICES)
        self._stamp = file_stamp(container.factory)
        session = Session(container, self.name, history=self.history, namespace=self._namespace)
        if self._former is not None:
            session.take_over(self._former)
            session.record_as(self._former)
        try:
            announced = takeover_announced() if self._shown_elsewhere else nullcontext()
            with show_restore_progress(session.container), announced:
                session.start()
        except BaseException:
            if session.state == "paused":
                session.abandon()
            raise
        self.deployed, self._shown_elsewhere = None, ""
        return session

    @property
    def marked_already(self) -> Session | None:
        """The session of ``marked``, where there is one; none is made."""
        return self.session if self.alive else self._former

    def marked(self) -> Session:
        """The session that breakpoints and watches are given to: the current one, else one from which the
        next start takes them over. Nothing is started. Raises ConfigError."""
        with self._lock:
            if self.session is not None and self.alive:
                return self.session
            if self._former is None:
                self._former = Session(
                    Container(self.config, self.task), self.name, namespace=self._namespace
                )
            return self._former

    def record(self, path: str) -> Session:
        """Record to a file, a job that has ended from its next start on; the session that does. Raises as
        ``Session.record`` does."""
        with self._lock:
            session = self.marked()
            if session.state in ("stopped", "failed") and not session.can_resume:
                session = Session(Container(self.config, self.task), self.name, namespace=self._namespace)
                session.take_over(self.marked())
                self._former = session
        session.record(path)
        return session

    def step(
        self,
        n: int = 1,
        *,
        until: str | None = None,
        here: bool = False,
        on_interrupt: Callable[[], object] = lambda: None,
    ) -> int:
        """Process up to ``n`` messages; how many were. Pauses it first if it runs. See ``Session.step``."""
        session = self._live()
        session.pause()
        try:
            return session.step(n, until=until, here=here, on_interrupt=on_interrupt)
        finally:
            self._changed()

    def moved(self) -> Session:
        """The session to move in time; also one that has failed, or is closed and stands in the past."""
        session = self.session
        is_looked_at = session is not None and (not session.live or session.state == "failed")
        return session if session is not None and is_looked_at else self._live()

    def run(self, until: Until | Conditional = None, *, speed: float | None = None) -> None:
        """Process messages in the background. ``speed``: the most a second."""
        self._until, self._speed = until, speed
        session = self._live()
        session.pause()
        with suppress(StreambenchError):
            session.snapshot()  # what is shown of it while its task is busy with the first message
        session.run(until, speed=speed)

    def pause(self, timeout: float | None = None) -> bool:
        return self.session is None or self.session.pause(timeout)

    def nothing_to_read(self, snapshot: ContainerSnapshot) -> str:
        """Why there is nothing to read of its inputs, and how to send to them; empty where there is something
        or that is not known."""
        why = nothing_to_read(snapshot, self.config) if snapshot.lag == 0 else {}
        return described_waits(why, _send_line) if sendable(why) else ""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it stands still; whether it does. Raises what it failed with."""
        deadline = None if timeout is None else time.monotonic() + timeout
        show = _notices.get()
        while self.session is not None:
            left = _SILENT_S if deadline is None else max(0.0, min(_SILENT_S, deadline - time.monotonic()))
            if self.session.wait(left):
                break
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if show is not None and (text := self._waits_for(self.session, has_end=deadline is not None)):
                show(text)
                show = None
        return True

    def _waits_for(self, session: Session, *, has_end: bool) -> str:
        """The notice to a command that waits for long; empty where there is nothing to say. ``has_end``: the
        waiting ends by itself."""
        if self.busy:
            return self.waited_for
        if has_end:
            return ""
        if isinstance(self._until, int):
            why = self.nothing_to_read(session.snapshot(_SILENT_S))
            waits = f"{self.name} waits for messages: {why}"
            return f"{waits} (interrupt the kernel to wait no longer)" if why else ""
        if self._until == "caught-up":
            return ""
        return (
            f"{self.name} runs until {self._until or 'it is paused'}, and this waits as long (interrupt the "
            "kernel to wait no longer)"
        )

    def commit(self) -> None:
        self.report_takeover()
        if not self.alive:
            was = "has failed" if self.state == "failed" else f"is {self.state}"
            raise MagicError(f"{self.name} {was}: there is nothing to commit")
        session = self._live()
        session.commit()

    def stop(self) -> None:
        """Commit and release the streams; nothing where it is not started."""
        with self._lock:
            session = self.session
        if session is not None and (self.alive or session.can_resume):
            session.pause()
            session.stop()
        self._changed()

    def forget_ended(self) -> None:
        """Leave a session that has ended, since its checkpoints are no longer those with which it ended. The
        next one takes its breakpoints and watches."""
        with self._lock:
            if not self.alive:
                self.session = None
        self._changed()

    def give_up(self) -> bool:
        """Release the streams without a commit, also in the middle of a message; whether its task has
        ended, see ``Session.give_up``."""
        session = self.session
        ended = session is None or session.give_up()
        self._changed()
        return ended

    def set_inputs(self, inputs: list[str]) -> bool:
        """Read these streams from now on: a started job commits, stops, and goes on with them. Whether it was
        started.

        Where it cannot go on with them it keeps the inputs that it had; where there is no such stream it is
        not even stopped."""
        was, former = self.state, self._inputs
        streams = [SystemStream.parse(each) for each in inputs]
        with closing(Systems(self._base)) as systems:
            for stream in streams:
                systems.factory(stream.system)
            if self.alive:
                systems.metadata(stream for stream in streams if str(stream) not in former)
        self.stop()
        self._inputs = inputs
        if was not in ("paused", "running"):
            return False
        self.session = None
        if inputs:
            try:
                self.start()
            except BaseException:
                self._inputs = former
                raise
            if was == "running":
                self.run(self._until, speed=self._speed)
        else:
            self._changed()
        return True

    def snapshot(self, timeout: float = _SILENT_S) -> ContainerSnapshot:
        """A snapshot of it, in the state of its session (a container without a driver is paused). An older
        one where its task is busy with one message for longer than ``timeout`` seconds."""
        if self.session is None:
            return Container.from_config(self.config, self.task).snapshot()
        session = self.session
        # Where nothing moves, another thread is only reading it: a panel its state, say. That has an end.
        while (found := session.snapshot_now(timeout)) is None:
            if session.state != "paused" or session.busy_s:
                found = session.snapshot(timeout)
                break
        # It may have failed since, and its reason is written before its state: so that is read second.
        state = session.state
        return replace(found, state=state, reason=session.container.reason)

    def snapshot_now(self, timeout: float) -> ContainerSnapshot | None:
        """A snapshot of it as it is now; None where its task is busy with one message for longer than
        ``timeout`` seconds."""
        return self.snapshot() if self.session is None else self.session.snapshot_now(timeout)

    def _live(self) -> Session:
        self.start()
        assert self.session is not None
        return self.session

    def _changed(self) -> None:
        for listener in list(self.on_change):
            listener()


def require_no_branch(job: Job, command: str) -> None:
    """Raise MagicError in a branch, which the command would drop."""
    session = job.session
    if session is not None and session.branched:
        raise MagicError(
            f"{job.name} stands in a branch, at {session.position:,}, which %stream {command} would "
            f"drop: %stream adopt {job.name} keeps it, %stream live {job.name} drops it; then %stream "
            f"{command}"
        )
