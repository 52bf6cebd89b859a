"""The sub-commands of ``%stream`` that step and run a job, stop it at conditions, and show what it did."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

from streambench.container.container import Until
from streambench.counts import counted
from streambench.debug.control.session import Session, condition_of_run
from streambench.debug.effects.effect_lines import effect_lines, summary_lines
from streambench.debug.history.position_metrics import DIGITS, listed
from streambench.debug.message_text import changed_text, figure_text, message_text
from streambench.debug.names import Cut
from streambench.debug.stopping.breakpoints import Kind
from streambench.debug.stopping.conditions import Condition, Conditional, ConditionError, named_expression
from streambench.debug.stopping.moment import StreamName
from streambench.debug.view.step_lines import head_line, processed_message, row_lines, value_line
from streambench_magics.commands.commands import PARSERS
from streambench_magics.commands.job_commands import JobCommands, check_store, name_and_number
from streambench_magics.commands.output_filter import per_stream, wanted_outputs
from streambench_magics.commands.pdb_step import PdbObserver
from streambench_magics.commands.status_messages import print_stop, print_watches, say, stop_text, watch_text
from streambench_magics.commands.time_commands import print_position
from streambench_magics.commands.typed_key import is_typed
from streambench_magics.errors import MagicError
from streambench_magics.jobs.handle import JobHandle
from streambench_magics.jobs.jobs import Job
from streambench_magics.panel.panel import show
from streambench_magics.tables import Records

_SHOWN_STEPS = 10
_VALUE = 100
_WHOLE = 100_000


class DebugCommands(JobCommands):
    """Methods of the magics, one per sub-command."""

    def _step(self, args: Namespace) -> None:
        name, number = name_and_number(args.what, PARSERS["step"], self.bench.jobs)
        self._check_condition(args.until)
        job = self.bench.job(name)
        session = job.session
        if session is not None and not session.live:
            self._step_in_past(job, session, number, args)
            return
        if session is not None:
            self._still_session(job)
        if args.until is not None and not any(word.isdecimal() for word in args.what):
            number = 1 << 62
        with self._running(job):
            self._start(job)
            session = _session(job)
            before = session.position
            try:
                with self._debugger(session) if args.pdb else contextlib.nullcontext():
                    done = job.step(
                        number,
                        until=args.until,
                        here=args.pdb,
                        on_interrupt=lambda: say(
                            "interrupted: the step ends after the message it is at (once more gives it up)"
                        ),
                    )
            except (KeyboardInterrupt, ConditionError):
                if job.alive:
                    print_steps(job, session, before)
                raise
        self._say_how_it_ended(job, session, done, number)
        print_steps(job, session, before)
        print_stop(job, session, with_last=session.position - before > 1)
        if session.stopped_at is not None and session.container.state == "running":
            print_watches(session)  # of the message at which it stopped, which may be the next one

    def _step_in_past(self, job: Job, session: Session, number: int, args: Namespace) -> None:
        if args.until is not None and not any(word.isdecimal() for word in args.what):
            number = session.latest
        # Its progress would be written over the prompt of a debugger.
        with self._running(job) if args.pdb else self._travelling(job, session):
            try:
                with self._debugger(session) if args.pdb else contextlib.nullcontext():
                    done = session.step(number, until=args.until)
            except ConditionError:
                print_position(job, session)
                raise
        if done < number and session.branched and session.stopped_at is None:
            at_end = session.position == session.latest
            print(
                f"{job.name}: the branch ends here: "
                + ("this is the newest position" if at_end else "its tasks asked for the end of the job")
            )
        print_position(job, session)
        print_stop(job, session, with_last=False)

    def _say_how_it_ended(self, job: Job, session: Session, done: int, number: int) -> None:
        if job.state == "stopped":
            print(f"{job.name} has shut itself down")
        elif session.stopped_at is not None:
            return
        elif session.recording is not None and done < number:
            first = f"{counted(done, 'message')}, then " if done else ""
            print(f"{job.name}: {first}its recording ends here")
        elif not done:
            print(f"{job.name}: nothing to read, it has caught up with its inputs")
            snapshot = job.snapshot()
            if not snapshot.processed and (hint := job.nothing_to_read(snapshot)):
                print(f"{job.name}: {hint}")
        elif done < number:
            print(f"{job.name}: {counted(done, 'message')}, then it had caught up with its inputs")

    def _run(self, args: Namespace) -> None:
        job = self.bench.job(args.name)
        condition_of_run(args.until, self.bench.namespace)  # before it starts
        until: Until | Conditional = args.messages if args.messages is not None else args.until
        with self._running(job):
            self._start(job)
            hint = "" if until == "caught-up" else job.nothing_to_read(job.snapshot())
            job.run(until, speed=args.speed)
        how = (
            f"for {counted(until, 'message')}"
            if isinstance(until, int)
            else "until it has caught up"
            if until == "caught-up"
            else f"until {until}"
            if until
            else "to the end of its recording"
            if _session(job).recording is not None
            else "until paused"
        )
        pace = f", {args.speed:g} messages a second" if args.speed else ""
        started = f"{job.name} runs {how}{pace}"
        if isinstance(until, int) or until == "caught-up" or not (until or _session(job).breakpoints):
            print(started)
        else:
            _say_when_it_stops(job, started, replaces=hasattr(self.shell, "kernel"))
        if hint:
            print(f"{job.name} has nothing to read yet: {hint} (%stream pause {job.name} stops it)")

    def _break(self, args: Namespace) -> Records | None:
        job = self.bench.job(args.job)
        if args.remove is not None:
            with self._running(job):
                job.marked().remove(args.remove)
            print(f"breakpoint {args.remove} is removed")
            return None
        if args.condition is None and args.on is None:
            if args.once or args.hits > 1:
                raise MagicError(
                    f"--once and --hits go with a condition, or --on KIND; {PARSERS['break'].usage_line()}"
                )
            return self._breakpoints(job)
        with self._running(job):
            on: Kind = args.on or Condition(args.condition, self.bench.namespace).kind or "message"
            made = job.marked().break_on(args.condition, on=on, once=args.once, hits=args.hits)
        notes = [f"on {made.on}", *(["once"] if made.once else [])]
        notes += [f"from hit {made.at_hit} on"] if made.at_hit > 1 else []
        print(f"breakpoint {made.id}: {made} ({', '.join(notes)})")
        return None

    def _breakpoints(self, job: Job) -> Records:
        with self._running(job):
            found = job.marked().breakpoints
        records = [
            {
                "id": each.id,
                "on": each.on,
                "condition": str(each),
                "hits": each.hits,
                "once": each.once,
                "enabled": each.enabled,
            }
            for each in found
        ]
        note = "" if records else f"{job.name} has no breakpoints: %stream break CONDITION sets one"
        columns = ["id", "on", "condition", "hits", "once", "enabled"]
        return Records(columns, records, right=["id", "hits"], note=note)

    def _watch(self, args: Namespace) -> Records | None:
        job = self.bench.job(args.job)
        if args.condition is None and args.remove is None:
            values: dict[str, Any] = {}
            if job.alive:
                session = self._still_session(job)
                with self._running(job):
                    values = session.watches()
            records = [{"watch": name, "value": watch_text(value)} for name, value in values.items()]
            kept = job.marked().watch_expressions if not job.alive else {}
            note = f"{job.name} has no watches: %stream watch NAME=EXPRESSION sets one"
            if kept:
                note = f"{job.name} is {job.state}; the next step shows {', '.join(kept)}"
            return Records(["watch", "value"], records, note="" if records else note, source=values)
        if args.remove is not None:
            job.marked().unwatch(args.remove)
            print(f"{args.remove} is watched no longer")
            return None
        try:
            name, condition = named_expression(args.condition)
        except ConditionError as error:
            raise MagicError(f"{error}; {PARSERS['watch'].usage_line()}") from None
        with self._running(job):
            job.marked().watch(name, condition)
            shown = job.alive and print_watches(_session(job), name)
        if not shown:
            print(f"{name} is watched from the next step or run on")
        return None

    def _state(self, args: Namespace) -> Records:
        job = self.bench.job(args.job)
        check_store(args.store, self._begun_session(job).store_names, self.bench.jobs)
        session = self._still_session(job)
        with self._running(job):
            records = _changed_entries(session, args) if args.changed else _entries(session, args)
        several = len({each["task"] for each in records}) > 1
        value = "before -> after" if args.changed else "value"
        columns = [*(["task"] if several else []), "store", "key", value]
        note = _state_note(job, args, records)
        return Records(columns, records, data=["key"], note=note, source=records, more="--key shows one")

    def _outputs(self, args: Namespace) -> Records:
        if args.name is not None and args.name not in self.bench.jobs:
            self._check_no_stream(args.name)
        job = self.bench.job(args.name)
        session = self._still_session(job)
        with self._running(job):
            outputs = wanted_outputs(session, args, self.bench.namespace)
        records = [
            {
                "#": each.position,
                "stream": each.stream,
                "partition": each.partition,
                "key": each.key,
                "message": message_text(each.message, _VALUE),
                "": ", ".join(filter(None, [each.source, each.held_text])),
            }
            for each in outputs[-args.last :]
        ]
        is_asked = args.stream or args.key is not None or args.where
        nothing = "no held outputs" if args.held else "no such outputs" if is_asked else "sent nothing"
        begin = session.oldest
        if begin and not args.held:
            nothing += f" since {begin:,}, where its history begins; %stream create --history MB keeps more"
        elif not is_asked and not args.held:
            nothing += " since it was started here"
        note = "" if records else f"{job.name} has {nothing}"
        if len(outputs) > len(records):
            note = f"the last {len(records):,} of {len(outputs):,}{per_stream(outputs)}"
        columns = ["#", "stream", "partition", "key", "message", ""]
        return Records(columns, records, right=["#", "partition"], data=["key"], note=note, source=outputs)

    def _metrics(self, args: Namespace) -> Records:
        job = self.bench.job(args.name)
        session = self._begun_session(job)
        with self._running(job) if session.live else self._travelling(job, session):
            metrics = session.metrics()
        records = [
            {"metric": name, "value": figure_text(value, DIGITS)}
            for name, value in metrics.items()
            if args.match in name
        ]
        notes = []
        unknown = [name for name in metrics.not_kept if args.match in name]
        if unknown:
            notes.append(f"{len(unknown):,} more are known at the newest position only: {listed(unknown)}")
        if not records and not unknown:
            notes.append(f"no metric has {args.match} in its name")
        more = "--match TEXT shows those with it in their name"
        return Records(
            ["metric", "value"], records, right=["value"], note="\n".join(notes), source=metrics, more=more
        )

    def _check_no_stream(self, name: str) -> None:
        """Raise MagicError where this is no job, but a stream to which one has sent."""
        for job in self.bench.jobs.values():
            session = job.session
            if session is None or session.history is None or session.running:
                continue
            if any(StreamName(each.stream) == name for each in session.outputs()):
                raise MagicError(
                    f"there is no job {name}, but a stream: %stream outputs {job.name} --stream {name}"
                )

    def _job(self, args: Namespace) -> JobHandle:
        return JobHandle(self.bench.job(args.name).name, self.bench.jobs)

    @contextlib.contextmanager
    def _debugger(self, session: Session) -> Iterator[None]:
        observer = PdbObserver()
        with session.observed(observer):
            try:
                yield
            finally:
                observer.end()


def print_steps(job: Job, session: Session, before: int) -> None:
    """Print the messages after a position, why they were chosen, and what they did."""
    snapshot = job.snapshot()
    done = snapshot.processed - before
    if done <= 0:
        return
    choices = [each for each in snapshot.choices if each.number <= snapshot.processed]
    chosen = choices[-min(done, _SHOWN_STEPS) :]
    if done > len(chosen):
        print(f"{job.name}: {done:,} messages, the last {len(chosen)} of them:")
    if done == 1 and chosen:
        (only,) = chosen
        lines = [head_line(only.number, only, only.rule), *value_line(processed_message(session))]
    else:
        lines = row_lines(chosen, session)
    print("\n".join(lines))
    if session.history is not None and session.container.state == "running":
        effects = session.effects(before)
        lines = (
            summary_lines(effects) if done > 1 else [line for each in effects for line in effect_lines(each)]
        )
        print("\n".join(lines), end="\n" if lines else "")
    if session.container.state == "running" and session.stopped_at is None:
        print_watches(session)


def _say_when_it_stops(job: Job, started: str, *, replaces: bool) -> None:
    """Show a line about a run, and another one when it has stopped at a condition. ``replaces``: what is
    shown later takes the place of the first line, as it does in a notebook, and not in a terminal."""
    handle = show({"text/plain": started}, display_id=True)
    session = _session(job)
    said: list[str] = []

    def look() -> None:
        if session.running or said:
            return
        said.append("")
        job.on_change.remove(look)
        if text := stop_text(job, session):
            handle.update({"text/plain": f"{started}\n{text}" if replaces else text}, raw=True)

    job.on_change.append(look)
    with contextlib.suppress(ValueError):
        look()


def _entries(session: Session, args: Namespace) -> list[dict[str, Any]]:
    """The entries of the stores that were asked for."""
    stores = session.stores()
    # A key is typed as text, whatever its type.
    return [
        {"task": task, "store": name, "key": key, "value": message_text(value, _VALUE)}
        for task, of_task in stores.items()
        for name, entries in of_task.items()
        if args.store in (None, name)
        for key, value in entries.items()
        if is_typed(args.key, key)
    ]


def _changed_entries(session: Session, args: Namespace) -> list[dict[str, Any]]:
    return [
        {
            "task": each.task,
            "store": each.store,
            "key": each.key,
            "before -> after": changed_text(each.before, each.after),
        }
        for each in session.last.changes
        if args.store in (None, each.store) and is_typed(args.key, each.key)
    ]


def _state_note(job: Job, args: Namespace, records: list[dict[str, Any]]) -> str:
    if records and args.changed:
        is_cut = any("…" in each["before -> after"] for each in records)
        return "%stream state STORE --key KEY shows a whole value" if is_cut else ""
    if records:
        only = records[0]["value"] if len(records) == 1 and args.key is not None else None
        return only.again(_WHOLE) if isinstance(only, Cut) else ""
    if args.changed:
        return "the last message changed no state"
    return f"{job.name} has no state" + (f" with the key {args.key}" if args.key is not None else " yet")


def _session(job: Job) -> Session:
    assert job.session is not None
    return job.session
