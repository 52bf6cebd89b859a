"""A recording, opened again: an ordinary session over an ordinary container.

Its inputs hand out what was recorded, in the recorded order and at the recorded times. Its streams,
changelogs and checkpoints are in memory: nothing that it does leaves it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from streambench import imports
from streambench.checkpoint.api import Checkpoint, Generation
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.chooser.api import MessageChooser
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.inputs.partitions import chooser_of
from streambench.container.observer import ContainerObserver, Given
from streambench.container.tasks.task_instance import TaskInstance
from streambench.container.timers import Windows
from streambench.debug.control.session import Session
from streambench.debug.history.attributes import set_attribute, user_values
from streambench.debug.history.batches import Batches
from streambench.debug.replay.recorded_source import source_of
from streambench.debug.replay.replayed_inputs import (
    CountingChooser,
    ReplayChooser,
    ReplayClock,
    ReplaySystemFactory,
    ReplaySystems,
    ReplayWindows,
)
from streambench.debug.stopping.slices import Progress, Slices
from streambench.errors import ConfigError, StreambenchError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.planning.model import ContainerModel, JobModel, PlannedContainer, TaskModel
from streambench.recording.header import TaskCode, code_of, factory_here
from streambench.recording.recording import Recording
from streambench.wording import words

log = logging.getLogger(__name__)

_SLICE = 10_000  # of messages whose batches are not known: a step might cut one
_REMEMBERED = 100
_OWN_SYSTEM = re.compile(r"systems\.[^.]+\.(samza\.(factory|landing.*|bounded)|(?!samza\.|streams\.).*)")
_OF_STREAM = re.compile(r"systems\.[^.]+\.streams\..+\.samza\.(bounded|reset\.offset)")
_OF_STORE = re.compile(r"stores\.[^.]+\.(factory|rocksdb\..*|container\..*)")
_OF_JOB = re.compile(
    r"metrics\.reporter.*|task\.commit\.ms|task\.capture.*|task\.checkpoint\..*"
)
_OF_CHOOSER = re.compile(r"task\.chooser.*")


def open(
    recording: str | Path | Recording,
    task: Any = None,
    *,
    recorded_source: bool = False,
    history: int | bool | None = None,
    namespace: Mapping[str, Any] | None = None,
    at_end: bool = True,
    recorded_order: bool = True,
    recorded_attributes: bool = True,
    progress: Progress = lambda done, total: None,
) -> Session:
    """Open a recording: a session that stands before the failing message, else behind the last one.

    ``task``: the code to run, a class, a function, or ``file.py:Class``; else that of the recorded job, where
    it can be imported here. ``recorded_source``: run the source text in the recording instead. It is code
    like any other, to be run only if you trust the author of the file. Where the code was swapped, each
    message runs with the code that ran it. With ``task``, and where a former code is not here any more (see
    ``code_note``), all run with the same one. ``at_end``: False to stand at the begin. ``history``,
    ``namespace``: see Session. ``recorded_order``: False to have the chooser of the configuration choose;
    ``recorded_attributes``: to begin with those that ``init`` makes. ``progress`` is called with the messages
    that have run, and those up to where it is to stand.

    Raises StreambenchError where the file is no recording, ConfigError where there is no code for it."""
    found = recording if isinstance(recording, Recording) else Recording.read(recording)
    config = replay_config(found, recorded_order=recorded_order)
    factory, changes = codes_of(found, task, recorded_source=recorded_source)
    clock = ReplayClock(found, follows_code=bool(changes))
    session = Session(
        _container(found, config, factory, clock, recorded_order=recorded_order),
        found.path.name if found.path is not None else found.job,
        history=history,
        namespace=namespace,
    )
    session.replays(found)
    session.follow_codes(changes)
    try:
        _start(session, found, with_attributes=recorded_attributes)
        for note in found.notes:
            log.info("%s: %s", session.name, note)
        if at_end:
            _go_to_end(session, found, progress)
    except KeyboardInterrupt:
        if session.container.state == "running":
            session.abandon()
        raise
    return session


@contextmanager
def replaying(recording: str | Path | Recording, task: Any = None, **how: Any) -> Iterator[Session]:
    """A recording, opened as by ``open``, and abandoned in the end."""
    session = open(recording, task, **how)
    try:
        yield session
    finally:
        if session.container.state == "running":
            session.abandon()


def run_to_end(session: Session) -> None:
    """Run what was recorded, with the windows behind the last message. Raises StreambenchError where that
    fails."""
    session.run("caught-up")
    session.wait()


def replay_config(recording: Recording, *, recorded_order: bool = True) -> Config:
    """The configuration of a recorded job for a replay.

    Systems and stores are in memory, and nothing is reported. There is no chooser where messages come in
    their recorded order."""
    config = recording.config
    values: dict[str, Any] = {}
    left_out = [_OWN_SYSTEM, _OF_STREAM, _OF_STORE, _OF_JOB, *([_OF_CHOOSER] if recorded_order else [])]
    for key in config:
        if any(each.fullmatch(key) for each in left_out):
            values[key] = None
    values |= {f"systems.{system}.samza.factory": "memory" for system in config.names_below("systems.")}
    values |= {
        f"stores.{key.split('.')[1]}.factory": "memory"
        for key in config
        if re.fullmatch(r"stores\.[^.]+\.factory", key)
    }
    return config.with_values(values | {"task.commit.ms": -1, "job.container.count": 1})


def _container(
    recording: Recording, config: Config, factory: Any, clock: ReplayClock, *, recorded_order: bool
) -> Container:
    systems = ReplaySystems(config, ReplaySystemFactory(recording))
    chooser: MessageChooser = ReplayChooser(recording, clock)
    if not recorded_order:
        inputs = sorted({each.ssp.system_stream for each in recording.messages})
        chooser = CountingChooser(
            chooser_of(config, inputs, systems.metadata(inputs), systems, MetricsRegistry(), clock), clock
        )
    tasks = tuple(
        TaskModel(each.name, tuple(map(SystemStreamPartition.parse, each.partitions)), each.number)
        for each in recording.tasks
    )
    container = Container(
        config,
        factory,
        planned=PlannedContainer(JobModel(recording.job, (ContainerModel(0, tasks),))),
        systems=systems,
        checkpoints=MemoryCheckpointManager(
            _checkpoints(recording), job=recording.job, last=Generation(1, {0: [each.name for each in tasks]})
        ),
        clock=clock,
        chooser=chooser,
        remember_choices=_REMEMBERED,
    )
    return container


def _checkpoints(recording: Recording) -> dict[str, Checkpoint]:
    # The header of a recording has partitions as text.
    return {
        each.name: Checkpoint(
            {SystemStreamPartition.parse(ssp): offset for ssp, offset in each.offsets.items()},
            {SystemStreamPartition.parse(ssp): offset for ssp, offset in each.starts.items()},
            generation=1,
        )
        for each in recording.tasks
    }


def _start(session: Session, recording: Recording, *, with_attributes: bool) -> None:
    """Start the container with the recorded state."""
    container = session.container
    loader = _StateLoader(container, recording)
    container.observe(loader)

    def set_state() -> None:
        for task in container.tasks:
            loader.load(task)
            if recording.header.after_init:
                _set_stores(task, recording.stores.get(task.name, {}))
            if with_attributes:
                _set_attributes(task, recording.attributes.get(task.name, {}))
        container.stop_observing(loader)
        loop = container.runtime.event_loop
        windows = ReplayWindows(
            loop.timers.windows, loop.coordination, cast("ReplayClock", clock), session.follow_next
        )
        loop.timers.windows = cast("Windows", windows)

    clock = container.status.clock
    session.start(set_state)


class _StateLoader(ContainerObserver):
    """Gives each task its stores before its ``init``."""

    def __init__(self, container: Container, recording: Recording) -> None:
        self._container = container
        self._recording = recording
        self._loaded: set[str] = set()

    def callback_begun(self, task: str, callback: str, given: Given) -> None:
        if callback == "init":
            self.load(next(each for each in self._container.tasks if each.name == task))

    def load(self, task: TaskInstance) -> None:
        """Fill the stores of a task, once."""
        if task.name not in self._loaded:
            self._loaded.add(task.name)
            _set_stores(task, self._recording.stores.get(task.name, {}))


def _set_stores(task: TaskInstance, stores: Mapping[str, Mapping[bytes, bytes]]) -> None:
    for name, store in task.stores.items():
        entries: dict[bytes, bytes | None] = {key: None for key, _ in store.engine.range(None, None)}
        store.overwrite(entries | dict(stores.get(name, {})))


def _set_attributes(task: TaskInstance, values: Mapping[str, Any]) -> None:
    user = user_values(task.context)
    for name, value in values.items():
        if not name.startswith("context.user"):
            set_attribute(task.task, name, value)
        elif "" not in user and name.startswith("context.user."):
            setattr(task.context.user, name.removeprefix("context.user."), value)


def _go_to_end(session: Session, recording: Recording, progress: Progress) -> None:
    """Process what was recorded, up to before the failing message; where a window failed, up to before the
    message that it follows."""
    failure = recording.failure
    is_at_message = failure is not None and failure.ssp is not None
    count = len(recording)
    if failure is not None:
        count = failure.position if is_at_message else max(0, count - 1)
    try:
        slices, batches = Slices(), Batches(recording.batches)
        while session.position < count:
            size = slices.size if recording.header.has_batches else _SLICE
            # A batch stays whole: the task gets it as it did when it was recorded.
            end = min(batches.edges(session.position + size)[1], count)
            if not session.step(end - session.position):
                break
            slices.end()
            progress(session.position, count)
        if failure is not None and count < len(recording):
            session.step(1, until=lambda moment: True)
            session.forget_stop()
            if is_at_message and len(recording) - count > 1:
                session.container.runtime.event_loop.dispatcher.batches.again = len(recording) - count
        elif failure is None:
            run_to_end(session)
    except StreambenchError as error:
        log.warning("%s: the replay fails at %d of %d: %s", session.name, session.position, count, error)


def codes_of(
    recording: Recording, task: Any = None, *, recorded_source: bool = False
) -> tuple[Any, list[tuple[Any, bool]]]:
    """The code to begin with, as for ``open``, and those that it is swapped for, each with or without its
    ``init``.

    There are none of these where all messages are to run with the same code. Raises ConfigError."""
    factory = task_of(recording, task, recorded_source=recorded_source)
    if task is not None or not recording.codes:
        return factory, []
    if recorded_source:
        found = [factory, *(_from_source(each.code) for each in recording.codes)]
    else:
        codes = [(0, recording.header.task), *((each.number, each.code) for each in recording.codes)]
        found = [_unchanged(recording, number, code) for number, code in codes]
    if None in found:
        return factory, []
    return found[0], [(code, each.init) for code, each in zip(found[1:], recording.codes, strict=True)]


def code_note(recording: Recording, task: Any = None, *, recorded_source: bool = False) -> str:
    """The code that messages would run with, of a recording whose code was swapped; empty for others.
    Raises ConfigError as ``open`` does."""
    if not recording.codes:
        return ""
    after = ", ".join(dict.fromkeys(f"{each.position:,}" for each in recording.codes))
    begin = f"the code was swapped after {after} of the messages"
    factory, changes = codes_of(recording, task, recorded_source=recorded_source)
    if changes:
        return f"{begin}: each message runs with the code that ran it"
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    return (
        f"{begin}: all of them run with {name} as it is now; {words('recorded source')} runs each with its "
        "own, if you trust it"
    )


def _unchanged(recording: Recording, number: int, code: TaskCode) -> Any:
    """The code of a number where it is here as it was recorded, else None."""
    found = factory_here(recording.header, number)
    if found is not None or not code.file:
        return found
    try:
        found = imports.by_path(recording.config, "task.class", f"{code.file}:{code.name}")
    except (ConfigError, ImportError):
        return None
    return found if code_of(found).source == code.source else None


def task_of(recording: Recording, task: Any = None, *, recorded_source: bool = False) -> Any:
    """The code to run, as for ``open``. Raises ConfigError."""
    config = recording.config
    if isinstance(task, str):
        # A file is relative to the working directory; a module may stand beside the recorded configuration.
        at, option = Config() if ".py:" in task else config, words("task")
        return imports.by_path(at.with_values({option: task}), option, task)
    if task is not None:
        return task
    code = recording.header.task
    if recorded_source:
        return _from_source(code)
    found = factory_here(recording.header)
    if found is not None:
        return found
    named = config.text("task.class")
    # The most current name first: that of the configuration, the recorded one, the file.
    paths = [
        path for path in (named, code.reference, f"{code.file}:{code.name}" if code.file else None) if path
    ]
    for path in dict.fromkeys(paths):
        try:
            return imports.by_path(config, "task.class", path)
        except (ConfigError, ImportError) as error:
            log.debug("%s: %s", path, error)
    raise ConfigError(
        f"the code of {recording.job}, {code.reference}, cannot be imported here: give it with "
        f"{words('task')}=FILE.py:CLASS, or run the source in the recording, if you trust it, with "
        f"{words('recorded source')}",
        key="task.class",
    )


def _from_source(code: TaskCode) -> Any:
    """The task of its recorded source. Raises ConfigError."""
    import streambench

    if not code.source:
        raise ConfigError("the recording has no source text of the task: give the task", key="task.class")
    module: Any = ModuleType("recorded_task")
    module.sb = module.streambench = streambench
    # Dataclasses look up their annotations there.
    sys.modules[module.__name__] = module
    try:
        text = compile(source_of(code), f"<recorded {code.name}>", "exec", dont_inherit=True)
        exec(text, vars(module))
        found: Any = module
        for part in code.name.split("."):
            found = getattr(found, part)
    except Exception as error:
        other = (
            ""
            if code.file
            else "; a recording has the cell of its task and no other: write all that it uses to a file, and "
            f"give it with {words('task')}=FILE.py:CLASS"
        )
        raise ConfigError(
            f"the recorded source of {code.name} does not run: {type(error).__name__}: {error}{other}",
            key="task.class",
        ) from error
    return found
