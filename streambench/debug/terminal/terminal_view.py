"""The panel of a job as one screen of a terminal, of any size."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from streambench.debug.names import middle_cut
from streambench.debug.terminal.terminal_containers import ContainerLine, container_list
from streambench.debug.terminal.terminal_pages import Page, pages
from streambench.debug.view.bars import choice_letters
from streambench.debug.view.panel_state import PanelState
from streambench.debug.view.view import snapshot_table

KEYS = (
    ("space", "pause or run"),
    ("s  right", "process one message; S: ten"),
    ("b  left", "one message back; B: ten"),
    ("f", "one message forward; F: ten"),
    ("l", "return from the past to the newest message"),
    ("u", "run until a condition is true, such as message['delay'] > 180"),
    (".", "add a breakpoint; x: enable, disable or remove one by its number"),
    ("w", "watch a value, as NAME=EXPRESSION"),
    ("c", "commit"),
    ("r", "rewind the job to a commit of the page Checkpoints, or to oldest"),
    ("n  N", "the next container, the one before; A: pause or run all of them"),
    ("tab  1-8", "another page; up, down: scroll it"),
    ("/", "search stores and keys"),
    ("?", "this list"),
    ("q  Ctrl-C", "stop the job and leave"),
)
_SHORT_HELP = "space run/pause  s step  b back  f forward  tab page  ? help  q quit"
_SHORT_HELP_OF_MANY = "n next container  space run/pause  s step  b back  tab page  ? help  q quit"
_COLOURS = ("blue", "yellow", "green", "magenta", "cyan", "bright_yellow", "red", "bright_magenta")
_LEAST_PAGE = 5
_ROOM_OF_MESSAGE = 10
_MOST_NOTICE = 3
_NAME = 24

Line = list[Segment]


class Screen(Struct, frozen=True):
    """One frame of the view. ``page``: the number of the page; ``scroll``: lines of it that are above the
    screen. ``prompt``: what is being typed, at the bottom. ``notice``: what a key could not do. ``printed``:
    the lines that the task has printed. ``containers``: those of the job, where there are several."""

    frame: PanelState
    page: int = 0
    scroll: int = 0
    prompt: str = ""
    notice: str = ""
    help: bool = False
    printed: Sequence[str] = ()
    containers: Sequence[ContainerLine] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        lines = self._lines(console, options.update(height=None), width, height)
        lines += _blank(width, height - len(lines))
        for number, line in enumerate(lines[:height]):
            yield from Segment.adjust_line_length(line, width)
            if number + 1 < height:
                yield Segment.line()

    def _lines(self, console: Console, options: ConsoleOptions, width: int, height: int) -> list[Line]:
        bottom = console.render_lines(self._bottom(), options)[: max(1, min(_MOST_NOTICE, height // 4))]
        if self.help:
            keys = console.render_lines(_help(), options)[: height - len(bottom)]
            return [*keys, *_blank(width, height - len(bottom) - len(keys)), *bottom]
        all_pages = pages(self.frame, self.printed)
        number = self.page % len(all_pages)
        listed: list[Line] = []
        if len(self.containers) > 1:
            listed = console.render_lines(container_list(self.containers, width, height), options)
        strip = console.render_lines(_strip(self.frame, width), options)[:1]
        tabs = console.render_lines(_tabs(all_pages, number, width), options)[:1]
        # The inputs get what they need, up to two thirds; the page what is left.
        room = height - len(listed) - len(strip) - len(bottom)
        most = max(4, room - max(_LEAST_PAGE + len(tabs), room // 3))
        said = console.render_lines(_message(self.frame), options)[: 1 if self.frame.message else 0]
        said = said if room > _ROOM_OF_MESSAGE else []
        top_room = min(most, room) - len(said)
        top = console.render_lines(_inputs(self.frame, most - len(said)), options)[:top_room] + said
        left = room - len(top) - len(tabs)
        if left < 2:
            return [*listed, *strip, *top, *bottom]
        page = console.render_lines(all_pages[number].content, options)
        first = min(self.scroll, max(0, len(page) - left))
        shown = page[first : first + left]
        return [*listed, *top, *strip, *tabs, *shown, *_blank(width, left - len(shown)), *bottom]

    def _bottom(self) -> Text:
        if self.prompt:
            return Text(f"{self.prompt}▏", no_wrap=True, overflow="ellipsis")
        said = self.notice or self.frame.notice.text
        if said:
            return Text(said, style="red")
        help_text = _SHORT_HELP_OF_MANY if len(self.containers) > 1 else _SHORT_HELP
        return Text(help_text, style="dim", no_wrap=True, overflow="ellipsis")


def _inputs(frame: PanelState, height: int) -> RenderableType:
    """The headline, the inputs, and why the last message was chosen: the same as in the panel's text."""
    at = _at(frame)
    choices = tuple(each for each in frame.snapshot.choices if at is None or each.number <= at)
    why = frame.stopped_at or frame.why
    shown = replace(frame.snapshot, job=frame.name, state=frame.state, reason=why, choices=choices)
    return snapshot_table(shown, frame.speeds, max_rows=height, height=height, bars=True)


def _message(frame: PanelState) -> Text:
    """The message at which it stands, in a line; empty where there is none."""
    line = "" if frame.message is None else f"message {frame.message.line}"
    return Text(line, no_wrap=True, overflow="ellipsis")


def _at(frame: PanelState) -> int | None:
    """The position in the past where it stands; None where it is live."""
    standing = frame.standing
    return None if standing is None or standing.is_live else standing.position


def _strip(frame: PanelState, width: int) -> Text:
    """The last choices, a letter each, underlined where a commit followed; those after the position where it
    stands are pale."""
    at = _at(frame)
    choices = frame.snapshot.choices[-max(10, width // 2) :]
    line = Text("choices ", style="dim", no_wrap=True, overflow="ellipsis")
    if not choices:
        return line.append("none yet")
    inputs = (each.ssp for each in frame.snapshot.partitions)
    letters, legend = choice_letters(choices, frame.commits, inputs, by_partition=frame.one_stream)
    for choice, each in zip(choices, letters, strict=True):
        style = "not dim " + _COLOURS[each.number % len(_COLOURS)]
        if at is not None and choice.number > at:
            style = "dim"
        if choice.number == (at if at is not None else choices[-1].number):
            style += " reverse"
        line.append(each.letter, style=f"{style} underline" if each.committed else style)
    meant = ", ".join(f"{letter} {middle_cut(name, _NAME)}" for letter, name in list(legend.items())[:6])
    return line.append(f"  {meant}")


def _tabs(all_pages: Sequence[Page], shown: int, width: int) -> Text:
    """The names of the pages, with their marks and numbers where there is room."""
    marked = [
        f"{number} {page.name}{page.mark and f' ({page.mark})'}" for number, page in enumerate(all_pages, 1)
    ]
    numbered = [f"{number} {page.name}" for number, page in enumerate(all_pages, 1)]
    plain = [page.name for page in all_pages]
    line = Text()
    for names, gap in ((marked, "  "), (numbered, "  "), (numbered, " "), (plain, " ")):
        styled = [Text(name, style="bold reverse" if at == shown else "dim") for at, name in enumerate(names)]
        line = Text(gap, no_wrap=True, overflow="ellipsis").join(styled)
        if line.cell_len <= width:
            break
    return line


def _blank(width: int, number: int) -> list[Line]:
    return [[Segment(" " * width)]] * max(0, number)


def _help() -> Text:
    text = Text()
    for key, what in KEYS:
        text.append(f"{key:<12}", style="bold").append(f"{what}\n")
    return text
