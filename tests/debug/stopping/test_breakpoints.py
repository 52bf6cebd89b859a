"""Breakpoints of a session: where it stops, what it saw, how it goes on."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streambench.debug.control.session import Session
from streambench.debug.stopping.conditions import ConditionError, named_expression
from streambench.errors import StreambenchError, TaskError
from streambench.redaction import remember
from streambench.task import MessageCollector, StreamTask, TaskCoordinator
from tests.container.jobs import Bench, echo, send
from tests.container.noted_calls import STORE, Counter

WORDS = {"mem.in": {0: ["a", "b", "a", "c"]}}


def paused(task: Any, inputs: Any = WORDS, config: Any = None, **options: Any) -> Session:
    bench = Bench(task, inputs, config, observed=False, remember_choices=10)
    session = Session(bench.container, **options)
    session.start()
    return session


def ran(session: Session, until: Any = "caught-up") -> Session:
    session.run(until)
    session.wait()
    return session


def test_a_run_until_a_condition_stands_before_that_message() -> None:
    session = ran(paused(echo), "message == 'b'")
    assert session.position == 1
    assert session.message is not None and session.message.message == "b"
    assert session.stopped_at is not None and str(session.stopped_at) == "message is 'b'"
    assert session.state == "paused"
    assert session.breakpoints == []
    assert session.step() == 1
    assert session.stopped_at is None
    assert [each.message for each in session.outputs()] == ["a", "b"]


@pytest.mark.parametrize("until", ["output.message == 2", "after == 2"])
def test_until_an_output_or_a_change_it_stands_behind_the_message(until: str) -> None:
    session = ran(paused(Counter, config=STORE), until)
    assert session.position == 3 and session.breakpoints == []
    assert session.stopped_at is not None and str(session.stopped_at).endswith(" is 2")
    session.back(3)
    assert session.step(4, until=until) == 3
    session.go_live()
    assert session.step(4, until=until) == 1 and session.stopped_at is None


def test_a_stop_shows_no_secret_of_a_message() -> None:
    secret = "-".join(["stop", "s3cret"])
    remember(secret)
    session = ran(paused(echo, {"mem.in": {0: [{"token": secret}]}}), "message['token'] != ''")
    assert str(session.stopped_at) == "message['token'] is '***'"


def test_the_message_that_it_stands_before_does_not_wait_for_itself() -> None:
    session = ran(paused(echo), "message == 'b'")
    why = session.explanation
    assert why is not None and why.winner is not None
    assert (why.winner.offset, why.waiting) == ("1", ())


def test_a_run_until_a_function_of_a_moment() -> None:
    session = ran(paused(echo), lambda moment: moment.position == 2)
    assert session.position == 2
    assert session.message is not None and session.message.message == "a"


def test_a_run_until_a_function_without_arguments_asks_it_between_messages() -> None:
    session = paused(echo)
    ran(session, lambda: session.container.processed >= 3)
    assert session.container.processed >= 3


def test_a_breakpoint_on_a_message_stops_runs_and_steps_before_it() -> None:
    session = paused(echo)
    breakpoint = session.break_on("message == 'a'")
    assert session.step(10) == 0
    assert session.step(10) == 2
    assert ran(session).position == 4
    assert breakpoint.hits == 2
    assert session.stopped_at is None


@pytest.mark.parametrize(
    ("on", "condition", "position", "saw"),
    [
        ("output", "output.message == 2", 3, "output.message is 2"),
        ("state", "after == 2", 3, "after is 2"),
        ("state", None, 1, "['a'] None -> 1"),
        ("commit", None, 2, "Partition 0 was committed"),
    ],
)
def test_the_other_kinds_stop_just_after_the_message(
    on: Any, condition: str | None, position: int, saw: str
) -> None:
    class Commits(Counter):
        def process(self, envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            super().process(envelope, collector, coordinator)
            if envelope.message == "b":
                coordinator.commit()

    session = paused(Commits, config=STORE)
    session.break_on(condition, on=on)
    ran(session)
    assert session.position == position
    assert session.stopped_at is not None and session.stopped_at.text == saw
    assert session.stopped_at.moment.position == position


def test_a_breakpoint_on_a_window_stops_after_it() -> None:
    class Windowed(StreamTask):
        def process(
            self, envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None: ...

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            send(collector, "w")

    bench = Bench(Windowed, WORDS, {"task.window.ms": 10}, observed=False)
    session = Session(bench.container)
    session.start()
    session.break_on(None, on="window")
    bench.clock.advance(20)
    ran(session)
    assert session.position == 1
    assert session.stopped_at is not None and session.stopped_at.text == "window() of Partition 0"
    assert [each.message for each in session.outputs()] == ["w"]


def test_a_breakpoint_on_an_error_sees_what_is_ignored() -> None:
    def fails(envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.message == "b":
            raise ValueError("no b")

    session = paused(fails, config={"task.ignored.exceptions": "ValueError"})
    session.break_on("isinstance(error, ValueError)", on="error")
    ran(session)
    assert session.position == 2
    assert session.stopped_at is not None and session.stopped_at.moment.error is not None


def test_a_breakpoint_on_an_error_names_the_message_of_a_failure() -> None:
    def fails(envelope: Any, collector: Any, coordinator: Any) -> None:
        raise ValueError("no")

    session = paused(fails)
    session.break_on(None, on="error")
    with pytest.raises(TaskError):
        session.step()
    assert session.stopped_at is not None and session.stopped_at.moment.place == "mem.in.0@0"


def test_hits_count_and_once_removes() -> None:
    session = paused(echo, {"mem.in": {0: list("aaaa")}})
    breakpoint = session.break_on("message == 'a'", hits=3, once=True)
    assert ran(session).position == 2
    assert breakpoint.hits == 3
    assert session.breakpoints == []
    assert ran(session).position == 4


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("message", "every message"),
        ("output", "every output"),
        ("state", "every change of state"),
        ("error", "every error"),
        ("commit", "every commit"),
        ("window", "every window"),
    ],
)
def test_a_breakpoint_without_a_condition_says_what_it_stops_at(on: Any, said: str) -> None:
    made = paused(echo).break_on(None, on=on)
    assert str(made) == said
    assert repr(made) == f"<breakpoint 1: {said}, on {on}, 0 hits>"


def test_an_expression_that_fails_says_where_and_stops() -> None:
    session = paused(echo)
    session.break_on("message['x'] > 1")
    session.run()
    with pytest.raises(ConditionError, match=r"message\['x'\] > 1 cannot be evaluated at mem.in.0@0"):
        session.wait()
    assert (session.state, session.position) == ("paused", 0)
    assert session.stopped_at is not None and session.stopped_at.error is not None
    session.remove(1)
    assert ran(session).position == 4


def test_a_removed_breakpoint_stops_nothing_and_an_unknown_one_is_an_error() -> None:
    session = paused(echo)
    session.remove(session.break_on("True"))
    with pytest.raises(StreambenchError, match="there is no breakpoint 1"):
        session.remove(1)
    assert ran(session).position == 4
    assert session.container.status.observation.observers == ()


def test_a_breakpoint_may_be_set_while_it_runs() -> None:
    session = paused(echo, {"mem.in": {0: list("ab")}})
    session.run()
    session.break_on("message == 'stop'")
    assert session.state == "running"
    session.pause()


def test_a_breakpoint_that_is_set_while_it_runs_knows_the_position() -> None:
    reached = threading.Event()

    def process(envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.message == "b":
            reached.set()

    bench = Bench(process, {"mem.in": {0: list("ab")}}, observed=False)
    session = Session(bench.container)
    session.start()
    session.run()
    reached.wait()
    session.break_on("message == 'c'")
    bench.put("mem.in.0", "c")
    session.wait()
    assert session.stopped_at is not None and session.stopped_at.moment.position == 2
    session.stop()


class Batches(StreamTask):
    """Keeps its batches."""

    def init(self, context: Any) -> None:
        self.batches: list[list[Any]] = []

    def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
        self.batches.append([each.message for each in batch])

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None: ...


def batches_of(session: Session) -> list[list[Any]]:
    return [batch for task in session.container.tasks for batch in task.task.batches]


def test_a_batch_ends_before_a_message_at_which_a_run_is_to_stop() -> None:
    session = ran(paused(Batches), "message == 'c'")
    assert (session.position, batches_of(session)) == (3, [["a", "b", "a"]])
    assert session.message is not None and session.message.message == "c"
    ran(session)
    assert batches_of(session)[1] == ["c"]


def test_hits_in_batches_count_once_for_each_message() -> None:
    session = paused(Batches, {"mem.in": {0: list("abcabcabc")}})
    made = session.break_on("message == 'b'", hits=2)
    ran(session)
    assert (session.position, batches_of(session)) == (4, [["a"], ["b", "c", "a"]])
    ran(session)
    assert (session.position, made.hits) == (7, 3)
    session.remove(made)
    ran(session)
    assert batches_of(session)[-1] == ["b", "c"]


def test_a_condition_on_the_position_is_asked_before_each_message() -> None:
    session = ran(paused(Batches, {"mem.in": {0: list("abcdef")}}), "position == 3")
    assert (session.position, batches_of(session)) == (3, [["a"], ["b"], ["c"]])
    ran(session)
    assert batches_of(session)[-1] == ["d", "e", "f"]


def test_watches_show_values_of_the_message_at_which_it_stands() -> None:
    session = paused(Counter, config=STORE)
    session.watch("a", "store['counts'].get('a')")
    session.watch("word", "message")
    session.watch("broken", "message['x']")
    session.step(3)
    values = session.watches()
    assert (values["a"], values["word"]) == (2, "a")
    assert isinstance(values["broken"], ConditionError)
    session.unwatch("broken")
    assert list(session.watches()) == ["a", "word"]


def test_a_watch_says_which_task_has_the_key_that_its_own_has_not() -> None:
    session = paused(Counter, {"mem.in": {0: ["a"], 1: ["b", "a"]}}, config=STORE)
    session.watch("n", "store['counts']['a'] + 1")
    session.watch("none", "store['c']")
    assert session.step(2) == 2
    elsewhere = "no key 'a' in the store counts of Partition 1 (it is in Partition 0)"
    shown = {name: str(value) for name, value in session.watches().items()}
    assert shown == {"n": elsewhere, "none": "no key 'c' in the store counts of Partition 1"}
    session.step()
    assert session.watches()["n"] == 2
    session.back()
    assert str(session.watches()["n"]) == elsewhere


def test_a_condition_on_a_key_that_is_not_there_names_the_remedy() -> None:
    session = paused(Counter, config=STORE)
    session.break_on("store['counts']['z'] > 1")
    remedy = r"counts has no key 'z' in .*write store\['counts'\]\.get\('z'\)"
    with pytest.raises(ConditionError, match=remedy):
        session.step(3)


@pytest.mark.parametrize("given", ["n=len('a b')", "n=\"len('a b')\"", "n = 'len(\"a b\")'"])
def test_the_expression_of_a_watch_may_be_in_quotes(given: str) -> None:
    name, expression = named_expression(given)
    assert (name, eval(expression)) == ("n", 3)


def test_a_run_with_breakpoints_leaves_what_a_run_without_leaves() -> None:
    def outcome(breaks: bool) -> Any:
        bench = Bench(Counter, WORDS, STORE, observed=False)
        session = Session(bench.container)
        session.start()
        if breaks:
            session.break_on("message == 'a'")
            session.break_on(None, on="state")
            session.break_on(None, on="output")
        while session.position < 4:
            ran(session)
        session.stop()
        return bench.outputs(), bench.committed()

    assert outcome(breaks=True) == outcome(breaks=False)


def test_a_breakpoint_on_state_shows_bytes_that_cannot_be_decoded() -> None:
    class Puts(StreamTask):
        def init(self, context: Any) -> None:
            self.store = context.store("n")

        def process(self, envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            self.store.put("k", 1)

    session = paused(Puts, config={**STORE, "stores.n.factory": "memory", **{
        "stores.n.key.serde": "string", "stores.n.msg.serde": "json",
    }})  # fmt: skip
    store = session.container.tasks[0].stores["n"]
    store.engine.put(b"k", b"no json")
    session.break_on("before == b'no json'", on="state")
    assert session.step(2) == 1
    assert session.stopped_at is not None and session.stopped_at.moment.after == 1
    session.stop()


def test_a_breakpoint_for_once_stays_where_its_condition_fails() -> None:
    session = paused(echo)
    made = session.break_on("message[1] == 'x'", once=True)
    with pytest.raises(ConditionError, match="IndexError"):
        session.step()
    assert session.breakpoints == [made] and made.enabled


@pytest.mark.parametrize(
    ("on", "condition", "position"),
    [
        ("message", "message == 'c'", 3),
        ("output", "output.message == 2", 3),
        ("state", "before is not None", 3),
        ("commit", None, 2),
    ],
)
def test_steps_in_the_past_stop_at_breakpoints(on: Any, condition: str | None, position: int) -> None:
    class Committing(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if envelope.message == "b":
                coordinator.commit()

    session = paused(Committing, config=STORE)
    session.step(4)
    session.back(4)
    session.break_on(condition, on=on)
    assert session.forward(4) == position
    assert session.stopped_at is not None and session.stopped_at.breakpoint.on == on
    session.goto(0)
    assert session.step(4) == position


def test_a_condition_that_fails_in_the_past_says_so() -> None:
    session = paused(echo)
    session.step(4)
    session.back(3)
    session.break_on("message[1] == 'x'")
    with pytest.raises(ConditionError, match="IndexError"):
        session.forward(3)
    assert session.position == 2


def test_forward_until_a_condition_held() -> None:
    session = paused(echo)
    session.step(4)
    session.goto(1)
    assert session.forward_until("message == 'a'") == 3
    assert session.forward_until("message == 'a'") == 3
    assert session.forward_until(lambda moment: moment.offset == "3") == 4 and session.live


class _Vague:
    """Neither true nor false, as an array of several values."""

    def __bool__(self) -> bool:
        raise ValueError("the truth of this is not known")


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        (lambda moment: moment.message["delay"] > 180, "'NoneType' object is not subscriptable"),
        (lambda moment: _Vague(), "the truth of this is not known"),
    ],
)
def test_a_function_that_fails_as_a_condition_fails_no_job(condition: Any, says: str) -> None:
    session = paused(echo, {"mem.in": {0: [None, {"delay": 3}]}})
    session.watch("w", condition)
    stop = session.break_on(condition)
    with pytest.raises(ConditionError, match=rf"cannot be evaluated at mem\.in\.0@0.*{says}.*removes it"):
        session.step(2)
    assert (session.state, session.error, session.position) == ("paused", None, 0)
    session.remove(stop.id)
    assert session.step() == 1
    assert list(session.watches()) == ["w"]
    session.stop()


class Begins(StreamTask):
    """Writes twice to one key with each message."""

    def init(self, context: Any) -> None:
        self.store = context.store("counts")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.store.put("a", 0)
        self.store.put("a", envelope.message)


def test_conditions_on_state_see_each_write_in_the_past_too() -> None:
    session = paused(Begins, {"mem.in": {0: [1, 2, 3]}}, STORE)
    session.break_on("after == 0", on="state")
    assert [session.step(3), session.step(3), session.step(3)] == [1, 1, 1]
    session.goto(0)
    assert [session.step(3), session.step(3)] == [1, 1]
    assert str(session.stopped_at) == "after is 0"
    session.goto(0)
    assert session.forward_until("after == 0") == 1
    session.go_live()
    assert session.back_until("after == 0") == 2


def test_walks_through_the_past_count_as_no_hits() -> None:
    session = paused(echo, {"mem.in": {0: list(range(6))}})
    session.step(5)
    often = session.break_on("message == 2", hits=2)
    once = session.break_on("message == 1", once=True)
    for _ in range(3):
        session.goto(0)
        assert session.forward(5) == 1
        assert session.forward(5) == 5
    assert (often.hits, once.hits) == (0, 0)
    assert session.breakpoints == [often, once]


def test_a_walk_stops_where_a_breakpoint_has_had_its_hits() -> None:
    session = paused(echo, {"mem.in": {0: [1, 2, 1, 2]}})
    made = session.break_on("message == 2", hits=2)
    assert [session.step(9), session.step(9)] == [3, 1]
    assert made.hits == 2
    session.goto(0)
    assert session.step(9) == 1
    assert made.hits == 2
