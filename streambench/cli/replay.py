"""``streambench replay``: the messages of a recording or a capture, run again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streambench.cli.output import live_console
from streambench.counts import counted
from streambench.errors import TaskError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streambench.debug.control.session import Session
    from streambench.recording import Recording

_LAST = 3
_IN_MEMORY = "a replay is in memory, and nothing of it has left that"


def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A recording or a capture.", show_default=False)
    ],
    task: Annotated[
        str | None, typer.Option(metavar="FILE.py:CLASS", help="Run this code instead of the recorded job's.")
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="COND", help="Stop at the message for which this holds: \"key == 'a'\"."),
    ] = None,
    to_test: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a pytest file that runs the recording.")
    ] = None,
    recorded_source: Annotated[
        bool,
        typer.Option("--recorded-source", help="Run the source text in the recording, if you trust it."),
    ] = False,
    shrink: Annotated[
        bool,
        typer.Option("--shrink", help="Find the fewest messages that still fail, and go on with these."),
    ] = False,
) -> None:
    """Run the messages of a recording again, in their order, and say how it ends.

    A container that fails writes a capture, which its error names; %stream record FILE in a notebook makes a
    recording. All streams, stores and checkpoints of a replay are in memory: nothing leaves it. It exits with
    1 where the task fails, so that a mended task can be tried with --task until it does not. In a notebook
    "%stream replay FILE" opens the same file, to be stepped.

    Examples:

        streambench replay streams/_jobs/late-1/captures/1-c0.capture

        streambench replay 1-c0.capture --task late.py:Late

        streambench replay 1-c0.capture --shrink --to-test tests/test_late.py
    """
    from streambench.debug.replay.generated_test import check_target
    from streambench.debug.replay.replay import open as open_recording
    from streambench.debug.replay.replay_summary import summary_lines
    from streambench.wording import speaking

    recording = _read(file)
    with speaking("terminal"):
        print("\n".join(summary_lines(recording, task, recorded_source=recorded_source)))
    if shrink:
        if to_test is not None:
            check_target(recording, to_test)  # shrinking may take long
        recording = _shrunk(recording, file, task, recorded_source=recorded_source)
    if to_test is not None:
        running = f"running its {counted(len(recording), 'message')} for {to_test}"
        with speaking("terminal"), _status(running):
            test = recording.to_test(to_test, task=task, recorded_source=recorded_source)
        print(f"written: {test}, with its messages in {test.with_suffix('.recording')}")
        return
    with speaking("terminal"), _status(f"opening {file}"):
        session = open_recording(recording, task, recorded_source=recorded_source, at_end=False)
    _run(session, recording, until)
    session.abandon()


def _read(file: Path) -> Recording:
    from streambench.recording import Recording

    with _status(f"reading {file}") as update:
        recording = Recording.read(
            file, lambda done, total: update(f"reading {file}: {done / max(total, 1):.0%}")
        )
        len(recording)  # its messages are made of the rows now
    return recording


def _run(session: Session, recording: Recording, until: str | None) -> None:
    """Run a recording, to its end or until a condition, and print how that ends. Raises TaskError."""
    from streambench.debug.view.step_lines import value_line

    try:
        with _status(_Progress(session, len(recording))):
            session.step(max(1, len(recording)), until=until)
            if until is None:
                session.run("caught-up")
                session.wait()
    except TaskError as error:
        _print_last(session)
        print(f"it fails after {session.position:,} of {len(recording):,} messages", file=sys.stderr)
        for line in value_line(session.message_of(error)):
            print(line, file=sys.stderr)
        raise
    _print_last(session)
    stopped, stands = session.stopped_at, session.container.held
    if until is not None and stopped is None:
        print(f"error: {until} held at none of the messages", file=sys.stderr)
        raise typer.Exit(1)
    if stands is not None:
        where = f"before {session.position + 1:,}: {stands.ssp}@{stands.offset}"
        print("\n".join([where, *value_line(stands)]))
    elif stopped is not None:
        print(f"stopped behind {session.position:,}: {stopped}")
    else:
        ended = "" if recording.failure is None else ", and it no longer fails"
        print(f"{session.position:,} of {len(recording):,} messages processed{ended}")


@contextmanager
def _status(text: RenderableType) -> Iterator[Callable[[str], None]]:
    """A line in a terminal while something takes its time; an interrupt says what it has ended."""
    try:
        with live_console(stderr=True).status(text) as status:
            yield status.update
    except KeyboardInterrupt as interrupt:
        interrupt.args = (_IN_MEMORY,)
        raise


class _Progress:
    """The line of a status: how many messages are replayed, each time that it is drawn."""

    def __init__(self, session: Session, total: int) -> None:
        self._session, self._total = session, total

    def __rich__(self) -> str:
        return f"replaying: {self._session.processed_now:,} of {self._total:,} messages"


def _shrunk(recording: Recording, file: Path, task: str | None, *, recorded_source: bool) -> Recording:
    """The fewest messages that still fail, written beside the recording."""
    from streambench.debug.replay.shrinking import shrink, small_path
    from streambench.recording.file import check_target
    from streambench.wording import speaking

    path = small_path(file)
    check_target(path, "save")
    with _status("shrinking") as update, speaking("terminal"):
        small = shrink(
            recording, task=task, recorded_source=recorded_source,
            progress=lambda left, tried: update(f"shrinking: {left:,} messages left, {tried:,} runs"),
        )  # fmt: skip
    small.save(path)
    print(f"shrunk to {len(small):,} of {len(recording):,} messages: {path}")
    return small


def _print_last(session: Session) -> None:
    """Print the effects of the last messages."""
    from streambench.debug.effects.effect_lines import effect_lines
    from streambench.debug.view.step_lines import head_line, value_line

    position = session.position
    for effects in session.effects(max(0, position - _LAST)):
        message = session.history.message_at(effects.position) if session.history is not None else None
        head = f"{effects.position:>6,}" if message is None else head_line(effects.position, message)
        print("\n".join([head, *value_line(message), *effect_lines(effects)]))
