"""Step 5: requests of tasks for commits and shutdowns, and the end of their inputs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from streambench.container.failures import Failures
from streambench.container.loop_context import LoopContext
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.dead_letters import DeadLetters
from streambench.container.tasks.task_handles import Coordinator
from streambench.task import RequestScope

if TYPE_CHECKING:
    from streambench.container.inputs.partition_buffer import PartitionBuffer
    from streambench.container.tasks.task_instance import TaskInstance


class Coordination:
    """Collects requests of tasks for commits and shutdowns, and calls ``end_of_stream``.

    ``shutdown_requested``: the container is to stop. ``at_end``: the inputs of all tasks have ended."""

    def __init__(
        self,
        tasks: Sequence[TaskInstance],
        requests: list[Coordinator],
        *,
        collected: Collected,
        context: LoopContext,
        dead_letters: DeadLetters,
        failures: Failures,
    ) -> None:
        self.shutdown_requested = False
        self.at_end = False
        self._tasks = tasks
        self._requests = requests
        self._collected = collected
        self._context = context
        self._dead_letters = dead_letters
        self._failures = failures
        self._shutdown_votes: set[str] = set()
        self._ended: set[str] = set()

    def request_commit(self) -> None:
        """Request a commit of all tasks at the end of this iteration."""
        coordinator = Coordinator(self._tasks[0].name, self._requests, self._context)
        coordinator.commit(RequestScope.ALL_TASKS_IN_CONTAINER)

    def commit_again(self, names: Collection[str]) -> None:
        """Request a commit of these tasks at the end of this iteration, as a recorded run did."""
        for name in names:
            Coordinator(name, self._requests, self._context).commit(RequestScope.CURRENT_TASK)

    def take_requests(self) -> list[TaskInstance]:
        """Take what tasks asked for in this iteration; the tasks to commit. Follow it by
        ``check_shutdown_votes``."""
        names: set[str] = set()
        for asked in self._requests:
            if asked.commit_scope is RequestScope.ALL_TASKS_IN_CONTAINER:
                names.update(task.name for task in self._tasks)
            elif asked.commit_scope is RequestScope.CURRENT_TASK:
                names.add(asked.task_name)
            if asked.shutdown_scope is RequestScope.ALL_TASKS_IN_CONTAINER:
                self.shutdown_requested = True
            elif asked.shutdown_scope is RequestScope.CURRENT_TASK:
                self._shutdown_votes.add(asked.task_name)
            asked.commit_scope = asked.shutdown_scope = None
        self._requests.clear()
        return [task for task in self._tasks if task.name in names]

    def check_shutdown_votes(self) -> None:
        """Request the shutdown once every task asked for it, or ended while the others asked."""
        if self._shutdown_votes and len(self._shutdown_votes | self._ended) == len(self._tasks):
            self.shutdown_requested = True

    def end_inputs(self, ended: Sequence[PartitionBuffer]) -> None:
        """Note that these partitions have ended, and call ``end_of_stream`` of tasks without further input.
        Raises TaskError."""
        for partition in ended:
            for subscription in partition.subscriptions:
                subscription.task.open_inputs -= 1
        # A task may have several of these partitions: it has ended when none of its inputs is open.
        done = {
            subscription.task
            for partition in ended
            for subscription in partition.subscriptions
            if not subscription.task.open_inputs
        }
        for task in self._tasks:
            if task in done:
                self._end(task)
        self.at_end = len(self._ended) == len(self._tasks)
        self.check_shutdown_votes()

    def knows_its_end(self, task: TaskInstance) -> bool:
        """True where ``end_of_stream`` of the task was called."""
        return task.end_of_stream is not None and task.name in self._ended

    def end_again(self, names: Collection[str]) -> None:
        """End the inputs of these tasks, as a recorded run did. Raises TaskError."""
        for task in self._tasks:
            if task.name in names:
                self._end(task)

    def _end(self, task: TaskInstance) -> None:
        """Call ``end_of_stream`` of a task, and request a commit of what it sends."""
        self._ended.add(task.name)
        if self._context.trace is not None:
            self._context.trace.note_callback("end_of_stream", [task.name], 0, len(self._collected))
        if task.end_of_stream is None:
            return
        mark = len(self._collected)
        self._dead_letters.input = self._context.input = None
        self._failures.begin(task)
        try:
            task.call("end_of_stream", task.end_of_stream, task.collector, task.end_coordinator)
        except BaseException as error:
            self._failures.at_callback(error, task.end_coordinator, "end_of_stream", mark)
        if self._context.trace is not None:
            self._context.trace.end_callback(len(self._collected))
        if task.end_coordinator.commit_scope is None:
            task.end_coordinator.commit()
