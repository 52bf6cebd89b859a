"""Messages that try to forge lines, move the cursor or turn the direction of the text, wherever they show."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from streambench.debug.terminal.terminal_pages import pages
from streambench.debug.view.panel_state import PanelStateReader
from streambench.errors import StreambenchError
from streambench_magics.panel.render import panel_html
from streambench_magics.tables import as_text
from tests.magics.conftest import Shell

FORGED = "x\n        -> mem.out  FORGED\r\x1b[31m\u202e\u2028\u200b\t<b>"
UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e]|^ {0,8}-> mem.out  FORGED", re.MULTILINE
)

TASK = f"""%%streamtask Echo
import streambench as sb

FORGED = {FORGED!r}

class Echo(sb.StreamTask):
    def init(self, context):
        self.last = None
        self.store = context.store("s")

    def process(self, envelope, collector, coordinator):
        self.last = message = envelope.message
        if message == "fail" or self.store.get("fail"):
            raise ValueError(FORGED)
        self.store["k"] = message
        self.store[FORGED] = message
        collector.send("mem.out", message, key=FORGED)
"""
OTHER = TASK.replace("Echo", "Other").replace('self.store["k"] = message', 'self.store["k"] = str(message)')
CONFIG = """%%streamconfig echo
systems.mem.samza.factory=memory
systems.mem.samza.offset.default=oldest
task.inputs=mem.in
stores.s.factory=memory
"""
VALUES = {
    "records": [{"text": "plain", "same": 1}, {"text": FORGED, "same": 1, FORGED: 2}, {"text": "plain"}],
    "texts": ["plain", FORGED, "plain"],
    "bytes": [b"plain", FORGED.encode(), b"\xff" + FORGED.encode()],
    "lists": [["plain"], [FORGED], [FORGED, FORGED]],
}
COMMANDS = [
    "step",
    "step",
    "watch last=self.last",
    "watch fails=1 / 0 if message else message.x",
    "break message",
    "break output --on output",
    "break after --on state",
    "step",
    "state",
    "state --changed",
    "outputs",
    "changed s k",
    "diff 0",
    "back 2",
    "forward",
    "step",
    "back --until message['text'] == 'plain' if isinstance(message, dict) else True",
    "goto 0",
    "step 5",
    "live",
    "crash",
    "compare Other",
    "compare Echo Other",
    "swap --replay 3",
    "peek mem.in",
    "peek mem.out",
    "checkpoints",
    "break",
    "watch",
]


@pytest.fixture(params=VALUES)
def echo(ip_empty: Shell, request: pytest.FixtureRequest) -> Iterator[Shell]:
    """A job that is given such messages, with such keys."""
    ip_empty.run(TASK)
    ip_empty.run(OTHER)
    serde = "bytes" if request.param == "bytes" else "json"
    ip_empty.run(f"{CONFIG}stores.s.msg.serde={serde}\n")
    ip_empty.run("%stream streams create mem.in --partitions 1")
    ip_empty.names["messages"] = VALUES[request.param]
    ip_empty.run("%stream send mem.in --config echo --from messages")
    ip_empty.run("%stream create echo --task Echo --config echo")
    yield ip_empty


def shown_by(shell: Shell, command: str) -> list[str]:
    """Everything that a command shows: its text, tables and displays; of an error its text."""
    try:
        texts = [shell.run(f"%stream {command}")]
    except StreambenchError as error:
        return [str(error)]
    texts += [text for each in shell.displayed for text in each.values() if isinstance(text, str)]
    if shell.value is not None:
        texts.append(shell.value._repr_html_())
    return texts


def test_no_data_forges_a_line_or_moves_the_cursor(echo: Shell) -> None:
    bad = [
        (command, text)
        for command in COMMANDS
        for text in shown_by(echo, command)
        if UNSEEN.search(text)
    ]
    assert not bad


def failed_step(ip: Shell, raises: str) -> str:
    """The output of a step at which the task raises so."""
    ip.run(TASK.replace("raise ValueError(FORGED)", raises))
    ip.run(CONFIG)
    ip.run("%stream streams create mem.in --partitions 1")
    ip.run("%stream send mem.in fail --config echo")
    ip.run("%stream create echo --task Echo --config echo")
    return ip.fails("%stream step")


@pytest.mark.parametrize(
    "raises",
    [
        "raise ValueError(FORGED)",
        "raise type(FORGED[:1], (Exception,), {})(FORGED) from KeyError(FORGED)",
        "error = ValueError('plain'); error.add_note(FORGED); raise error",
        "raise KeyboardInterrupt(FORGED)",
        "raise ExceptionGroup(FORGED, [ValueError(FORGED)])",
    ],
)
@pytest.mark.parametrize("mode", ["Context", "Plain", "Minimal"])
def test_no_exception_forges_a_line_or_moves_the_cursor(ip_empty: Shell, raises: str, mode: str) -> None:
    ip_empty.run(f"%xmode {mode}")
    shown = [failed_step(ip_empty, raises), ip_empty.run("%stream show echo")]
    assert not [text for text in shown if UNSEEN.search(text)]


def test_an_endless_chain_of_exceptions_is_shown_in_part(ip_empty: Shell) -> None:
    retries = "error = None\n            for _ in range(3000):\n                last = error\n"
    retries += "                error = ValueError('again')\n                error.__context__ = last\n"
    shown = failed_step(ip_empty, f"{retries}            raise error")
    assert 50 < shown.count("ValueError: again") < 200 and "%stream step echo: it goes on" in shown


@pytest.mark.parametrize("of", ["part", "part from None", "part from group", "part from part", "group"])
def test_a_part_of_a_group_that_is_raised_alone_is_shown(ip_empty: Shell, of: str) -> None:
    part = "part = ValueError('plain'); group = ExceptionGroup('all', [part]); part.__context__ = group"
    shown = failed_step(ip_empty, f"{part}; raise {of}")
    assert "ValueError: plain" in shown and "%stream step echo: it goes on" in shown


def test_the_lines_of_an_exception_stay_lines(ip_empty: Shell) -> None:
    shown = failed_step(ip_empty, "raise ValueError('2 errors\\n  name: missing\\n  age: no number')")
    assert "ValueError: 2 errors\n  |   name: missing\n  |   age: no number\n" in shown
    assert "---> 14" in shown or "--> 14" in shown


def test_no_data_forges_anything_in_panel_and_terminal(echo: Shell) -> None:
    echo.run("%stream step 2")
    echo.run("%stream watch last=self.last")
    frame = PanelStateReader(echo.magics.bench.job("echo")).take()
    html = panel_html(frame)
    assert "<b>" not in html
    pages_text = [as_text(each.content) for each in pages(frame) if each.name != "Message"]
    assert not [text for text in [html, *pages_text] if UNSEEN.search(text)]


def test_what_looks_like_no_value_is_in_quotes(ip: Shell) -> None:
    ip.names["odd"] = ["", "-", None, b""]
    ip.run("%stream streams create mem.odd --partitions 1 --config inputs")
    ip.run("%stream send mem.odd --config inputs --from odd")
    shown = ip.run("%stream peek mem.odd").splitlines()[1:]
    assert [line.split()[-1] for line in shown] == ['""', '"-"', "-", "b''"]


def test_bytes_that_are_cut_are_counted_as_bytes(ip: Shell) -> None:
    ip.names["big"] = [b"\xff" * 3_000_000]
    ip.run("%stream streams create mem.big --partitions 1 --config inputs")
    ip.run("%stream send mem.big --config inputs --from big")
    line = ip.run("%stream peek mem.big").splitlines()[1]
    kept, left_out = line.count("\\xff"), int(line.rpartition("… +")[2].replace(",", ""))
    assert (line.count("…"), kept + left_out) == (1, 3_000_000)
