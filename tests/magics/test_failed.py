"""``%stream`` after a task has failed: the job goes on at the message, or is closed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.magics.conftest import Shell

MENDED = """%%streamtask Count
class Count:
    def process(self, envelope, collector, coordinator):
        pass
"""


def test_after_a_failure_the_mended_task_goes_on_at_the_message(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.fails("%stream step 10")
    ip.run(
        "%%streamtask Count\nseen = []\ndef process(envelope, collector, coordinator):\n    "
        "seen.append(envelope.message)\n"
    )
    assert ip.run("%stream step 10").startswith("Count had failed; it goes on at mem.clicks.0@2\n")
    assert ip.names["seen"] == ["bad"]


def test_a_configuration_that_was_mended_is_taken_by_create(ip_empty: Shell) -> None:
    config = (
        "%%streamconfig c\nsystems.mem.samza.factory=memory\nsystems.mem.samza.offset.default=oldest\n"
        "task.inputs=mem.some\n"
    )
    ip_empty.run(config)
    ip_empty.run("%stream streams create mem.some mem.more --config c")
    ip_empty.run("%stream send mem.some 1 --config c")
    ip_empty.run(
        "%%streamtask T\ndef process(envelope, collector, coordinator, context):\n"
        "    context.store('n')['k'] = 1\n"
    )
    ip_empty.run("%stream create T --config c")
    ip_empty.run("%stream create attached --task T --config c --inputs mem.more")
    ip_empty.fails("%stream step T")
    said = ip_empty.run(config + "stores.n.factory=memory\n").splitlines()
    assert said == ["c is a configuration with 4 keys"] + [
        f"the job {name} still has the old one; %stream create {name} gives it this one"
        for name in ("T", "attached")
    ]
    assert "T is a job of the task T; it reads mem.some" in ip_empty.run("%stream create T")
    assert "n[k]  - -> 1" in ip_empty.run("%stream step")
    assert "it reads mem.more" in ip_empty.run("%stream create attached")


def test_a_swap_after_a_failure_keeps_what_was_done(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    shown = ip.fails("%stream step 10")
    assert "%stream step Count: it goes on at this message, with the state before it." in shown
    skip = "To skip such messages instead: task.ignored.exceptions=ValueError in its configuration"
    assert f"{skip}, and %stream create again." in shown
    ip.run(
        "%%streamtask Count\nclass Count:\n    def process(self, envelope, collector, coordinator):\n"
        "        self.seen.append(envelope.message.upper())\n"
    )
    assert "live now, state kept" in ip.run("%stream swap")
    assert "5  mem.clicks.0@2" in ip.run("%stream step")
    job = ip.run("%stream job") and ip.value
    seen = [each["seen"] for each in job.session.attributes().values()]
    assert sorted(sum(seen, [])) == ["BAD", "a", "b", "c", "d"]
    assert ip.run("%stream stop") == "Count is stopped, with everything committed"


def test_a_task_of_batches_goes_back_by_whole_batches(ip: Shell) -> None:
    ip.run("%%streamtask Count\ndef process_batch(batch, collector, coordinator):\n    pass")
    ip.run("%stream create Count --config inputs")
    ip.run("%stream step 100")
    shown = ip.run("%stream goto 1")
    assert shown.startswith("Count: 1 is inside of a batch, which ends at 2\nCount is at 2 of 4")
    assert "2  mem.clicks.0@1  (the last of 2 messages that the task got at once)" in shown
    assert ip.run("%stream back").startswith("Count is at 0 of 4")


def test_a_batch_that_writes_a_key_often_is_one_change_of_it(ip_empty: Shell) -> None:
    ip_empty.run(
        "%%streamconfig kept\nsystems.mem.samza.factory=memory\nsystems.mem.samza.msg.serde=json\n"
        "systems.mem.samza.offset.default=oldest\nstores.n.factory=memory\nstores.n.key.serde=string\n"
        "stores.n.msg.serde=json\ntask.batch.messages=3"
    )
    ip_empty.run("%stream streams create mem.some --config kept")
    ip_empty.run("%stream send mem.some --from [1,2,3,4,5] --config kept")
    ip_empty.run(
        "%%streamtask Sum\ndef process_batch(batch, collector, coordinator, context):\n"
        "    for message in batch.messages():\n"
        "        context.store('n').put('k', (context.store('n').get('k') or 0) + message)\n"
    )
    ip_empty.run("%stream create Sum --config kept --inputs mem.some")
    ip_empty.run("%stream step 5")
    ip_empty.run("%stream changed n k")
    assert [(row["#"], row["before -> after"]) for row in ip_empty.value] == [
        (5, "6 -> 15"), (3, "- -> 6"),
    ]  # fmt: skip


@pytest.mark.usefixtures("one_block")  # only messages of the last block run again
def test_going_on_after_a_failure_says_which_messages_run_again(ip: Shell) -> None:
    task = (
        "%%streamtask Count\ndef process(envelope, collector, coordinator):\n"
        "    print('at', envelope.message)\n"
    )
    ip.run(task + "    if envelope.message == 'bad':\n        raise ValueError\n")
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.fails("%stream step 10")
    ip.run(task)
    shown = ip.run("%stream step").replace("at bad", "")
    assert [message for message in "abcd" if f"at {message}" not in shown] == []
    assert (
        "the 4 messages before it run again on a copy, to rebuild the state: prints come twice, "
        "outputs do not"
    ) in shown


def test_a_replay_of_its_capture_leaves_a_failed_job_as_it_is(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.run("%stream record Count kept")
    ip.fails("%stream step 10")
    ip.run("%stream replay kept")
    ip.fails("%stream step replay")
    ip.run("%stream shrink kept")
    ip.run(MENDED)
    for job in ("Count", "replay"):
        assert ip.run(f"%stream step {job}").startswith(f"{job} had failed; it goes on at mem.clicks.0@2\n")


def test_a_run_in_the_past_of_a_failed_job_changes_nothing(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.fails("%stream step 10")
    ip.run(MENDED)
    at = ip.run("%stream back 2")
    shown = ip.fails("%stream run")
    assert shown.strip() == (
        "ContainerStateError: Count stands in the past, at 2 of 4: %stream live first, then %stream run"
    )
    assert ip.run("%stream goto 2") == at
    ip.run("%stream live")
    assert "Count had failed; it goes on at mem.clicks.0@2" in ip.run("%stream step")


def test_a_condition_that_is_mistyped_leaves_a_failed_job_as_it_is(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.fails("%stream step 10")
    for line in ("step --until nope", "run --until )"):
        assert "goes on" not in ip.fails(f"%stream {line}")
    assert ip.magics.bench.job("Count").session.can_resume


def test_what_replaces_or_changes_a_failed_job_says_what_is_dropped(ip: Shell) -> None:
    ip.run("%stream create Count --config inputs")
    ip.run("%stream send mem.clicks bad --partition 0")
    ip.fails("%stream step 10")
    ip.run("%stream streams create mem.more")
    assert ip.run("%stream attach mem.more") == (
        "Count reads mem.clicks, mem.more; it had failed, and its next step goes on from its last checkpoint"
    )
    ip.fails("%stream step 10")
    assert ip.run("%stream create Count").splitlines()[-1] == (
        "it replaces the former Count, which had failed: nothing since its last checkpoint is committed"
    )


def test_a_capture_is_named_with_the_magic_that_opens_it(ip_empty: Shell) -> None:
    ip_empty.run(
        "%%streamconfig c\nsystems.log.samza.factory=log\nsystems.log.path=streams\n"
        "systems.log.samza.offset.default=oldest\ntask.inputs=log.some\n"
    )
    ip_empty.run("%stream streams create log.some --config c")
    ip_empty.run("%stream send log.some bad --config c")
    ip_empty.run("%%streamtask T\ndef process(envelope, collector, coordinator):\n    raise ValueError\n")
    ip_empty.run("%stream create T --config c --history 0")
    ip_empty.fails("%stream step")
    named = re.search(r"captured: (%stream replay \S+)", str(ip_empty.error))
    assert named is not None, str(ip_empty.error)
    assert "replay stands before it" in ip_empty.run(named[1])


def test_a_mended_configuration_may_name_another_task(
    ip_empty: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("tasks.py").write_text(
        "class One:\n    def process(self, envelope, collector, coordinator):\n        pass\n"
        "class Two(One):\n    pass\n"
    )
    config = "%%streamconfig c\nsystems.mem.samza.factory=memory\ntask.class=tasks.py:"
    ip_empty.run(f"{config}One\n")
    assert "job is a job of the task tasks.py:One" in ip_empty.run("%stream create job --config c")
    ip_empty.run(f"{config}Two\n")
    assert "job is a job of the task tasks.py:Two" in ip_empty.run("%stream create job")
