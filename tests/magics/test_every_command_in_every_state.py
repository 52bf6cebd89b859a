"""Every sub-command in every state of a job, with arguments that are right, wrong and left out.

An error is one of streambench's own, and what is printed is text. What is refused leaves every job where it
was, and a step works behind it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from IPython.utils.capture import capture_output

from streambench.checkpoint import memory as memory_checkpoints
from streambench.errors import StreambenchError, TaskError
from streambench.system import memory as memory_system
from streambench_magics.commands.commands import PARSERS
from tests.magics.conftest import TASK, Shell
from tests.surroundings import SOAK

CONFIG = """%%streamconfig inputs
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
stores.n.factory=memory
stores.n.changelog=none
task.inputs=mem.clicks
"""

CREATE = "create Count --config inputs"
BAD = "send mem.clicks bad --partition 0"
STATES = {
    "no job": [],
    "new": [CREATE],
    "stepped": [CREATE, "step 2"],
    "running": [CREATE, "run"],
    "at a breakpoint": [CREATE, "break message == 'c'", "step 4"],
    "failed": [BAD, CREATE, "step 9"],
    "failed and in the past": [BAD, CREATE, "step 9", "back"],
    "in the past": [CREATE, "step 4", "back 2"],
    "in a branch": [CREATE, "step 4", "back 2", "swap", "step"],
    "stopped": [CREATE, "step 2", "stop"],
    "stopped and in the past": [CREATE, "step 2", "stop", "back"],
    "without history": [f"{CREATE} --history 0", "step 2"],
    "a replay": [BAD, CREATE, "record kept", "step 9", "stop", "replay kept Count"],
    "one of two": [CREATE, "step 2", "create Other --task Count --config inputs", "step"],
}
"""Per state, the commands that lead there. The task gets four messages, and fails at ``bad``."""

LEFT_OUT = {"deploy", "dataframe", "export", "wait"}
"""They need Spark, write files, or wait."""

EMPTY_OR_WRONG = ("", "nope", "--nope", "--until nope", "mem.nope.0@1")
RIGHT = {
    "create": "Count", "detach": "mem.clicks", "goto": "1", "step": "2", "run": "--until caught-up",
    "break": "key == 'k'", "watch": "a=key", "diff": "0 1", "changed": "n k", "rewind": "oldest",
    "compare": "Count Count", "peek": "mem.clicks", "send": "mem.clicks x", "swap": "--undo",
    "crash": "--everywhere", "record": "other", "replay": "kept", "outputs": "--held",
    "stop": "--now", "checkpoints": "--history", "show": "--static", "state": "n",
    "metrics": "--match n-puts",
}  # fmt: skip
WRONG = {
    "goto": "99", "diff": "0 99", "changed": "nope k", "back": "--until error", "watch": "--remove nope",
    "outputs": "--last 0", "metrics": "--match", "rewind": "mem.clicks.0@99", "compare": "Count nope",
    "replay": "nope.recording",
}  # fmt: skip
NO_TEXT = re.compile(r"\bNone\b|<object|object at 0x|<function|<class ")


class Bench:
    """The magics of a shell in one of the states, as often as it is asked for."""

    def __init__(self, shell: Shell, state: str) -> None:
        self._shell, self._state = shell, state
        shell.run(TASK)
        shell.run(CONFIG)
        self.task = shell.magics.bench.tasks["Count"]
        self.build()

    def build(self) -> None:
        """Begin with nothing, and go to the state."""
        magics = self._shell.magics
        magics.end()
        magics.bench.__init__(magics.shell.user_ns)
        for of_process in (memory_system._systems, memory_checkpoints._managers):
            of_process.clear()
        self._shell.run(TASK)
        self._shell.run(CONFIG)
        for line in ("streams create mem.clicks --partitions 2", 'send mem.clicks --from ["a","b","c","d"]'):
            self.do(line)
        for line in STATES[self._state]:
            self.do(line)
        self.built = self.standing()

    def do(self, line: str) -> tuple[str, BaseException | None]:
        """Return the output of a command, and its error."""
        error, value = None, None
        with capture_output() as captured:
            try:
                value = self._shell.shell.run_line_magic("stream", line)
            except Exception as problem:
                error = problem
        shown = [captured.stdout, *(each.data.get("text/plain", "") for each in captured.outputs)]
        return "".join([*shown, "" if value is None else repr(value), str(error or "")]), error

    def standing(self) -> dict[str, tuple[object, ...]]:
        """The state and place of every job."""
        return {name: _standing(job) for name, job in self._shell.magics.bench.jobs.items()}


def _standing(job: Any) -> tuple[object, ...]:
    session = job.session
    if session is None or session.running:
        return job.state, job.inputs
    place = session.position, session.latest, session.live, session.branched, session.can_resume
    return job.state, job.inputs, place, session.stores(), list(map(str, session.breakpoints))


@pytest.mark.parametrize("state", STATES)
def test_every_command_in_every_state(ip_empty: Shell, state: str) -> None:
    bench = Bench(ip_empty, state)
    for at, command in enumerate(sorted(PARSERS.keys() - LEFT_OUT), list(STATES).index(state)):
        # One after the other, from state to state and from command to command; under SOAK=1 all of them.
        some = EMPTY_OR_WRONG if SOAK else EMPTY_OR_WRONG[at % len(EMPTY_OR_WRONG) :][:1]
        for words in (*some, WRONG.get(command, "nope nope"), RIGHT.get(command, "Count")):
            line = f"{command} {words}".strip()
            shown, error = bench.do(line)
            assert shown.strip() and not NO_TEXT.search(shown), (line, shown)
            assert error is None or isinstance(error, StreambenchError), (line, shown)
            is_refused = error is not None and not isinstance(error, TaskError)
            if is_refused:
                assert bench.standing() == bench.built, (line, shown)
            else:
                shown, error = bench.do("step Count")
                assert error is None or isinstance(error, StreambenchError), (line, "step", shown)
                bench.build()
