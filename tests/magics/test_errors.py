"""What a notebook shows when something of the user's goes wrong: their own lines, and none of ours."""

from __future__ import annotations

import pytest

from tests.magics.conftest import CONFIG, Shell

TASKS = {
    "process": "    def process(self, envelope, collector, coordinator):\n        helper()\n",
    "init": "    def init(self, context):\n        helper()\n    def process(self, envelope, collector, "
            "coordinator): pass\n",
    "window": (
        "    def process(self, envelope, collector, coordinator): pass\n    def window(self, collector, "
        "coordinator):\n        helper()\n"
    ),
    "a constructor": "    def __init__(self):\n        helper()\n    def process(self, envelope, collector, "
                     "coordinator): pass\n",
}
CLASSES = """
import streambench as sb
from streambench.chooser import RoundRobinChooser
class BadSerde(sb.Serde):
    def to_bytes(self, value): return value
    def from_bytes(self, data): return {}["from my serde"]
class BadChooser(RoundRobinChooser):
    def __init__(self): {}["from my chooser"]
"""


def shows_users_lines_only(text: str, *lines: str) -> None:
    for line in lines:
        assert line in text
    for ours in ("container/loop.py", "debug/session.py", "magics.py", "multiplexer.py"):
        assert ours not in text


@pytest.mark.parametrize("where", sorted(TASKS))
def test_a_failure_shows_the_lines_of_the_cell(ip: Shell, where: str) -> None:
    ip.run("%%streamtask Fails\ndef helper():\n    return {}['missing']\nclass Fails:\n" + TASKS[where])
    ip.run(CONFIG.replace("inputs", "fast", 1) + "task.window.ms=1")
    ip.run("%stream create fails --task Fails --config fast")
    if where == "window":
        ip.run("%stream run fails")
        shown = ip.fails("%stream wait fails")
    else:
        shown = ip.fails("%stream step fails")
    shows_users_lines_only(shown, "return {}['missing']", "KeyError: 'missing'")


def test_a_serde_of_a_cell_that_raises_is_shown_with_its_line(ip: Shell) -> None:
    ip.run(CLASSES)
    ip.run(
        "%%streamconfig "
        "odd\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest\n"
        "task.inputs=mem.clicks\n"
        "systems.mem.samza.msg.serde=bad\nserializers.registry.bad.class=__main__:BadSerde"
    )
    ip.run("%stream create odd --task Count --config odd")
    shown = ip.fails("%stream step odd")
    shows_users_lines_only(
        shown, "cannot decode this message: KeyError: 'from my serde'", "line 5, in from_bytes"
    )


def test_a_chooser_of_a_cell_that_cannot_be_made_is_shown_with_its_line(ip: Shell) -> None:
    ip.run(CLASSES)
    ip.run(
        "%%streamconfig "
        "odd\nsystems.mem.samza.factory=memory\ntask.inputs=mem.clicks\n"
        "task.chooser.class=__main__:BadChooser"
    )
    ip.run("%stream create odd --task Count --config odd")
    shown = ip.fails("%stream step odd")
    shows_users_lines_only(shown, "task.chooser.class", "KeyError: 'from my chooser'", "line 7, in __init__")


def test_a_step_that_is_interrupted_ends_after_the_message(ip: Shell) -> None:
    ip.run(
        "%%streamtask Stuck\nimport signal\ndef process(envelope, collector, coordinator):\n    "
        "signal.raise_signal(signal.SIGINT)\n"
    )
    ip.run("%stream create stuck --task Stuck --config inputs")
    shown = ip.fails("%stream step stuck 4")
    assert "interrupted: stuck is paused." in shown
    assert "mem.clicks.0@0" in shown
    assert isinstance(ip.error, KeyboardInterrupt)
    assert ip.magics.bench.job("stuck").state == "paused"


def test_a_step_that_is_interrupted_twice_stays_at_its_message(ip: Shell) -> None:
    ip.run(
        "%%streamtask Stuck\nimport signal, time\n"
        "def init(context):\n    context.user.seen = []\n"
        "def process(envelope, collector, coordinator, context):\n"
        "    context.user.seen.append(envelope.message)\n"
        "    if envelope.message != 'c' or not hangs:\n        return\n"
        "    for press in range(2):\n        signal.raise_signal(signal.SIGINT)\n        time.sleep(0.3)\n"
        "    while True:\n        time.sleep(0.05)\n"
    )
    ip.names["hangs"] = True
    ip.run("%stream create stuck --task Stuck --config inputs")
    shown = ip.fails("%stream step stuck 4")
    assert "step ends after the message it is at" in shown
    shows_users_lines_only(
        shown,
        "time.sleep(0.05)",
        "interrupted: stuck stands before mem.clicks.0@1 again, with the state before it. stuck has failed, "
        "and %stream step stuck runs this message again.",
    )
    assert isinstance(ip.error, KeyboardInterrupt)
    job = ip.magics.bench.job("stuck")
    before = job.session.position
    ip.names["hangs"] = False
    ip.run("%stream step stuck")
    assert (job.state, job.session.position) == ("paused", before + 1)
    seen = next(iter(job.session.attributes().values()))["context.user.seen"]
    assert seen == ["a", "c"]


def test_a_task_that_no_interrupt_ends_says_why_the_job_goes_back(ip: Shell) -> None:
    ip.run(
        "%%streamtask Deaf\nimport signal, threading\nend = threading.Event()\n"
        "def process(envelope, collector, coordinator):\n"
        "    for wait_s in (0.3, 60):\n        try:\n"
        "            signal.raise_signal(signal.SIGINT)\n            end.wait(wait_s)\n"
        "        except KeyboardInterrupt:\n            end.wait(60)\n"
    )
    ip.run("%stream create deaf --task Deaf --config inputs")
    try:
        shown = ip.fails("%stream step deaf 4")
    finally:
        ip.names["end"].set()
    assert shown.endswith(
        "interrupted: deaf has failed. The interrupt has not ended its task, which may still change its "
        "state: so the job goes back to its checkpoint; nothing since its last checkpoint is committed, and "
        "%stream step deaf goes on from there.\n"
    )


def test_a_stop_that_is_interrupted_says_so_in_a_line(ip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ip.run("%stream create it --task Count --config inputs")
    ip.run("%stream step it")

    def impatient(timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ip.magics.bench.job("it"), "pause", impatient)
    shown = ip.fails("%stream stop it")
    assert shown.strip() == "interrupted: it is paused."
    monkeypatch.undo()


def test_attaching_what_is_not_there_yet_is_said(ip: Shell) -> None:
    ip.run("%stream create it --task Count --config inputs")
    assert "there is no mem.nothing yet: %stream streams create mem.nothing" in ip.run(
        "%stream attach it mem.nothing"
    )


@pytest.mark.parametrize("junk", ["this is no setting", "junk"])
def test_words_in_a_row_are_no_configuration(ip: Shell, junk: str) -> None:
    assert "line 3" in ip.fails(f"%%streamconfig odd\nsystems.mem.samza.factory=memory\n{junk}\n")


def test_dead_letters_are_shown_with_their_reasons(ip: Shell) -> None:
    ip.run(
        CONFIG.replace("inputs", "dead", 1)
        + "systems.mem.samza.msg.serde=long\ntask.dead.letter.stream=mem.dead"
    )
    ip.run("%stream create it --task Count --config dead")
    ip.run("%stream step it 10")
    assert "4 undecodable messages dead-lettered" in ip.run("%stream wait it")
    shown = ip.run("%stream peek mem.dead")
    assert "reason" in shown.splitlines()[0] and "TypeError: a bytes-like object" in shown
    assert {row["message"] for row in ip.value} == {b"a", b"b", b"c", b"d"}
    assert all(row["headers"]["dead-letter.direction"] == b"in" for row in ip.value)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("step --untl x", "unrecognized arguments: --untl (did you mean --until?); usage: %stream step"),
        ('send mem.clicks {"a": 1', "this is not JSON: Expecting ',' delimiter at its end; names"),
        ("wait --timeout soon", "argument --timeout: 'soon' is not a number of seconds; usage: %stream wait"),
        ("diff 1 2 3", "one or two positions, in figures; usage: %stream diff"),
        ("diff a b", "one or two positions, in figures; usage: %stream diff"),
        ("compare Count Count --over old.rec", "old.rec is neither a file nor a stream that can be read"),
        ("compare Count Count --over mem.clicks.0@1..0", "no message to compare over in mem.clicks.0@1..0"),
    ],
)
def test_wrong_words_are_named_with_the_remedy_in_one_line(ip: Shell, line: str, text: str) -> None:
    ip.run("%stream create job --task Count --config inputs")
    shown = ip.fails(f"%stream {line}")
    assert text in shown
    assert len(shown.strip().splitlines()) == 1


def test_a_breakpoint_that_cannot_be_evaluated_says_how_to_remove_it(ip: Shell) -> None:
    ip.run("%stream create job --task Count --config inputs")
    ip.run("%stream send mem.clicks one")
    ip.run("%stream break message['delay'] > 1")
    assert "; %stream break --remove 1 removes it" in ip.fails("%stream step")
    ip.run("%stream break --remove 1")
    assert "removes it" not in ip.fails("%stream step --until message['delay']>1")


def test_a_job_whose_init_fails_has_not_started_in_all_texts(ip: Shell) -> None:
    ip.run(
        "class NoInit:\n    def init(self, context):\n        raise RuntimeError('no db')\n"
        "    def process(self, envelope, collector, coordinator):\n        pass"
    )
    ip.run("%stream create NoInit --config inputs")
    assert "NoInit has not started; nothing since its last checkpoint" in ip.fails("%stream step")
    assert ip.magics.bench.jobs["NoInit"].state == "new"
