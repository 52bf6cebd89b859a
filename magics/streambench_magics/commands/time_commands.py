"""The sub-commands of ``%stream`` that move a job in time or exchange its code."""

from __future__ import annotations

from argparse import Namespace
from itertools import groupby
from operator import attrgetter
from typing import Literal

from streambench.container.outputs.transactional_outbox import is_exactly_once
from streambench.counts import counted
from streambench.debug.comparison.comparison_lines import differ
from streambench.debug.control.hot_swap import Swap
from streambench.debug.control.session import Session
from streambench.debug.control.time_travel import condition_of_past
from streambench.debug.effects.effects import net
from streambench.debug.effects.events import Change
from streambench.debug.message_text import changed_text, fields_text, message_text, short_text
from streambench.debug.view.step_lines import position_lines
from streambench_magics.commands.commands import PARSERS
from streambench_magics.commands.diff_table import diff_table
from streambench_magics.commands.job_commands import (
    JobCommands,
    check_store,
    name_and_number,
    say_if_dropped,
)
from streambench_magics.commands.status_messages import print_stop, print_watches
from streambench_magics.commands.travel_progress import show_travel_progress
from streambench_magics.commands.typed_key import typed_key
from streambench_magics.errors import MagicError
from streambench_magics.jobs.jobs import Job
from streambench_magics.tables import Records

_LINE = 300
_MESSAGE = 100
_MOST_VALUES = 4


class TimeCommands(JobCommands):
    """Methods of the magics, one per sub-command."""

    def _back(self, args: Namespace) -> None:
        job, session, before = self._travel(args, "back")
        if session.position == before:
            print(
                f"{job.name}: there is no message before {before:,} at which {args.until} held"
                if args.until is not None
                else f"{job.name}: the history begins at {before:,}"
            )
        print_position(job, session)

    def _forward(self, args: Namespace) -> None:
        job, session, before = self._travel(args, "forward")
        if args.until is not None and session.position == before:
            print(f"{job.name}: there is no message after {before:,} at which {args.until} held")
        print_position(job, session)
        print_stop(job, session, with_last=False)

    def _travel(self, args: Namespace, way: Literal["back", "forward"]) -> tuple[Job, Session, int]:
        """Go the messages that are asked for, or up to a condition; the job, and where it was before."""
        job, number = self._job_and_number(args.what, way)
        if args.until is not None:
            condition_of_past(args.until, self.bench.namespace)
        session = self._still_session(job)
        before, had_branch = session.position, session.branched
        go, go_until = (
            (session.back, session.back_until) if way == "back" else (session.forward, session.forward_until)
        )
        with self._travelling(job, session):
            if args.until is not None:
                go_until(args.until)
            else:
                go(number)
        say_if_dropped(session, had_branch=had_branch)
        return job, session, before

    def _goto(self, args: Namespace) -> None:
        *names, where = args.what
        job = self.bench.job(_one_name(names, "goto"))
        figures = _figures(where)
        if not figures.isdecimal() and "@" not in where:
            raise MagicError(
                f"'{where}' is neither a position (a number) nor a message (SSP@OFFSET, such as "
                f"log.clicks.0@7); {PARSERS['goto'].usage_line()}"
            )
        place = int(figures) if figures.isdecimal() else where
        self._check_places(job, place)
        session = self._still_session(job)
        had_branch = session.branched
        with self._travelling(job, session):
            reached = session.goto(place)
        if figures.isdecimal() and reached != (wanted := int(figures)):
            print(f"{job.name}: {wanted:,} is inside of a batch, which ends at {reached:,}")
        say_if_dropped(session, had_branch=had_branch)
        print_position(job, session)

    def _live(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        session = self._begun_session(job)
        if session.running:
            print(f"{job.name} is live, and running")
            return
        if session.live:
            print_position(job, session)
            return
        had_branch = session.branched
        with self._running(job):
            session.go_live()
        say_if_dropped(session, had_branch=had_branch)
        print_position(job, session)

    def _adopt(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        session = self._begun_session(job)  # one that runs is live, and has no branch
        before = session.position
        with self._travelling(job, session):
            ran = session.adopt() - before
        what_follows = (
            "the next commit shows its outputs and makes it durable"
            if is_exactly_once(job.config)
            else "its outputs are sent, and the next commit makes it durable"
        )
        print(f"{job.name} has adopted the branch; {what_follows}")
        if ran:
            print(f"{counted(ran, 'message')} after {before:,} ran with its code, up to the newest position")
        print_position(job, session)

    def _swap(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        self._report_takeover(job)
        if not args.undo:
            self._swap_job(job, args)
            return
        session = swappable_session(job)
        with self._running(job):
            undone = session.undo()
        if not undone:
            print(f"{job.name}: there is no swap to take back")
        elif session.live:
            print(f"{job.name} has its former code again, with its current state")
        else:
            print(f"{job.name} has its former code again, and the state that this code makes here")
            print_position(job, session)

    def _swap_all(self, args: Namespace) -> None:
        """Swap the code of all live jobs of a task; of replays only where there is no other job."""
        live = [
            job
            for job in self.bench.jobs.values()
            if job.task_name == args.name
            and (job.alive or (job.session is not None and job.session.can_resume))
        ]
        jobs = [job for job in live if not job.is_replay] or live
        if jobs:
            self.bench.use_one_of(jobs)
        for job in jobs:
            self._swap_job(job, args)
        for job in live:
            if job not in jobs:
                print(f"{job.name}, a replay, keeps its code: %stream swap {job.name} gives it this one")
        if not jobs:
            print(f"no job of {args.name} is live: the next start of one takes this code")

    def _swap_job(self, job: Job, args: Namespace) -> None:
        session = swappable_session(job)
        has_history = session.history is not None and not session.branched
        replay = args.replay if has_history else 0
        with self._travelling(job, session, swapped=replay):
            swap = job.swap(job.code_now(), init=args.init, replay=replay)
        if swap.replayed:
            print(swap_text(swap))
        kept = "attributes made again by init()" if args.init else "state kept"
        where = (
            f"{job.name}: a branch begins at {swap.position:,}"
            if session.branched
            else f"{job.name}: live now"
        )
        print(f"{where}, {kept}; %stream swap --undo takes it back")
        if swap.failed is not None:
            failed = swap.changed[-1]
            print(
                f"warning: this code failed at {failed.position:,}, {failed.ssp}@{failed.offset}. {job.name} "
                "is past that message, and its next one is another; but where one like it comes, the job "
                f"fails: swap mended code, %stream swap --init {job.name} where the code needs other "
                f"attributes, or %stream swap --undo {job.name}"
            )

    def _changed(self, args: Namespace) -> Records:
        if len(args.what) < 2:
            raise MagicError(f"which store, and which key? {PARSERS['changed'].usage_line()}")
        *names, store, key = args.what
        job = self.bench.job(_one_name(names, "changed"))
        check_store(store, self._begun_session(job).store_names)
        session = self._still_session(job)
        with self._running(job):
            changes = session.changes(store, typed_key(key, job.config.text(f"stores.{store}.key.serde")))
        # A message, or a batch, may write a key many times.
        by_message = [list(same) for _, same in groupby(changes, attrgetter("position", "task"))]
        several = len({each.task for each in changes}) > 1
        records = [
            {
                "#": each.position,
                "task": each.task,
                "message": f"{each.ssp}@{each.offset}" if each.ssp is not None else "",
                "before -> after": _changes_text(same),
                "": f"%stream goto {each.position}",
                "its content": _value_text(session, each.position),
            }
            for each, same in ((group[0], group) for group in reversed(by_message[-args.limit :]))
        ]
        since = f"from {oldest:,} on" if (oldest := session.oldest) else "since the job was started here"
        note = "" if records else f"{store}[{key}] has not changed {since}, up to {session.position:,}"
        if len(by_message) > len(records):
            older = len(by_message) - len(records)
            note = f"{older:,} older changes: --limit {len(by_message)} shows all"
        columns = ["#", *(["task"] if several else []), "message", "before -> after", ""]
        return Records(columns, records, right=["#"], note=note, source=changes, wide=["its content"])

    def _diff(self, args: Namespace) -> Records:
        names, positions = _split_positions(args.what)
        if len(positions) not in (1, 2):
            raise MagicError(f"one or two positions, in figures; {PARSERS['diff'].usage_line()}")
        job = self.bench.job(_one_name(names, "diff"))
        self._check_places(job, *positions)
        session = self._still_session(job)
        before, after = [*positions, session.position][:2]
        with self._running(job), show_travel_progress(session):
            diff = session.diff(before, after)
        return diff_table(diff, "of what was recorded, not of the branch" if session.branched else "")

    def _check_places(self, job: Job, *places: int | str) -> None:
        """Raise ContainerStateError for places that the history does not have. A job that runs goes on."""
        session = self._begun_session(job)
        with self._running(job):
            for place in places:
                session.position_of(place)

    def _job_and_number(self, what: list[str], command: str) -> tuple[Job, int]:
        name, number = name_and_number(what, PARSERS[command], self.bench.jobs)
        return self.bench.job(name), number


def _value_text(session: Session, position: int) -> str:
    """The message at a position, in few characters; empty where it is not known."""
    message = session.message_at(position)
    return "" if message is None else fields_text(message.message, _MESSAGE)


def _figures(word: str) -> str:
    """A position as it is typed, without what parts its thousands."""
    return word.replace(",", "").replace("_", "")


def _split_positions(what: list[str]) -> tuple[list[str], list[int]]:
    """The words before the first number, and the numbers. Raises MagicError where another word follows."""
    figures = [_figures(word) for word in what]
    first = next((at for at, each in enumerate(figures) if each.isdecimal()), len(what))
    wrong = [word for word, each in zip(what[first:], figures[first:], strict=True) if not each.isdecimal()]
    if wrong:
        raise MagicError(f"'{wrong[0]}' is no position (a number); {PARSERS['diff'].usage_line()}")
    return what[:first], [int(each) for each in figures[first:]]


def swappable_session(job: Job) -> Session:
    """The session of a job that can take other code: it may run, have failed at a message, or stand in the
    past. Raises MagicError for others."""
    session = job.session
    if session is None or not (job.alive or session.can_resume or not session.live):
        raise MagicError(f"{job.name} is {job.state}: its next start takes the current code")
    return session


def swap_text(swap: Swap) -> str:
    """The differences of two versions of a task over replayed messages, in words."""
    replayed = f"replayed the last {counted(swap.asked, 'message')} through both"
    if swap.failed is not None:
        others = len(swap.changed) - 1  # the failure is one of them
        before = f"; before it {swap.alike:,} alike, {differ(others)}" if swap.replayed > 1 else ""
        return f"{replayed}: the new code failed at number {swap.replayed:,}{before}: {swap.failed}"
    if swap.first is None:
        return f"{replayed}: all alike"
    return (
        f"{replayed}: {swap.alike:,} alike, {differ(len(swap.changed))}; first at "
        f"{message_text(str(swap.first), _LINE)}"
    )


def print_position(job: Job, session: Session) -> None:
    """Print where a job stands, with the message there and what it did."""
    position, latest = session.position, session.latest
    if session.live:
        print(f"{job.name} {'is live' if job.alive else f'has {job.state}'}, at {position:,}")
    else:
        branch = " in a branch: its outputs are held" if session.branched else ""
        oldest = 0 if session.history is None else session.history.oldest
        reach = f"the history begins at {oldest:,}, " if oldest else ""
        print(
            f"{job.name} is at {position:,} of {latest:,}, in the past{branch} "
            f"({reach}%stream live returns to {latest:,})"
        )
    for line in position_lines(session):
        print(line)
    if job.alive or not session.live:
        print_watches(session)


def _undone_text(changes: list[Change]) -> str:
    """The changes of one key within one message, or batch, that leave it as it was."""
    if len(changes) == 1:
        return "written as it was"
    way = [changes[0].before, *(each.after for each in changes)]
    shown = " -> ".join("-" if value is None else short_text(value) for value in way[:_MOST_VALUES])
    return f"{shown}{' ...' * (len(way) > _MOST_VALUES)} within the message"


def _changes_text(changes: list[Change]) -> str:
    """The changes of one key within one message, or batch: of two records, the fields that differ."""
    kept = net(changes)
    return changed_text(kept[0].before, kept[0].after) if kept else _undone_text(changes)


def _one_name(names: list[str], command: str) -> str | None:
    if len(names) > 1:
        raise MagicError(f"one job, at most; {PARSERS[command].usage_line()}")
    return names[0] if names else None
