"""The Spark jobs that nodes run in: one task each.

A node that dies is replaced from two sides. Its own job starts it again: supervisor.py when only
its process died, Spark when the whole task did. And the coordinator, when keep-alives are missed,
has another job submitted. Whichever has a process up first carries the launch; the other is
cancelled, or told that it is not needed when it comes up.

A job that is cancelled is not interrupted: 1. An executor asks its Python daemon for a process.
2. The task is interrupted, and with it the asking. 3. The executor takes the daemon for lost and
kills it, and all other nodes of this executor with it. A fenced node ends when it is told so;
whatever is left after two seconds, Spark kills alone.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator.events import TaskEnded
from holdfast.shell.spark.hang_ups import pass_over_hang_ups
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.spark.task import run_node
from holdfast.shell.spark.task_spec import TaskSpec
from holdfast.shell.spark.web_ui import description

if TYPE_CHECKING:
    from pyspark import SparkContext

    from holdfast.core.coordinator.host_choice import Executor
    from holdfast.core.model.ids import NodeId
    from holdfast.shell.spark.executors import Executors

_STOP_TIMEOUT_S = 5.0
_GRACE_S = 1.0
"""For a job whose launch was given up, to start its node again before it is cancelled."""
_NO_LAUNCH = -1
_TASKS_MAX = 64
"""Of a stage: one, and those that Spark started again."""


@dataclass(slots=True)
class _Job:
    """A job of one task.

    Attributes:
        node: The node that it runs.
        number: The launch that it was submitted for.
        launch: The one that it carries now; -1: none any more.
        thread: Waits for its end.
        chosen: Where its task should run.
    """

    node: NodeId
    number: int
    launch: int
    thread: threading.Thread
    chosen: Executor | None


class NodeJobs:
    """Submits, follows and cancels the jobs of a query's nodes."""

    def __init__(
        self,
        context: SparkContext,
        name: str,
        spec_of: Callable[[NodeId, int], TaskSpec],
        ended: Callable[[TaskEnded], None],
        executors: Executors,
        view_path: str = "",
    ) -> None:
        """Run nothing yet.

        Args:
            context: Spark's.
            name: The query's, for job groups.
            spec_of: What the task of a node's launch has to know.
            ended: Called from any thread when a job has ended.
            executors: Makes tasks that would rather run on one of them.
            view_path: Where Spark's pages lead on to the query's view; empty: nowhere.
        """
        pass_over_hang_ups(context)
        self._context = context
        # Whoever cancels a group cancels it in the whole session, and names are not its own there.
        self._groups = f"holdfast/{name}/{uuid.uuid4()}"
        self._name = name
        self._view_path = view_path
        self._spec_of = spec_of
        self._ended = ended
        self._executors = executors
        self._jobs: dict[tuple[NodeId, int], _Job] = {}

    @property
    def is_spark_stopped(self) -> bool:
        """Whether there is nothing left to run jobs."""
        jsc: Any = self._context._jsc
        return jsc is None or bool(jsc.sc().isStopped())

    def launch(
        self, node: NodeId, launch: int, expected: set[int], chosen: Executor | None = None
    ) -> None:
        """Have a task run for a launch; returns at once.

        Args:
            node: The node.
            launch: Number of the launch.
            expected: Launches of the node that still count; jobs for others are cancelled, after a
                while in which they may start the node again.
            chosen: Where the task should run.
        """
        outdated = [(job, job.launch) for job in self._of(node) if job.launch not in expected]
        thread = threading.Thread(
            target=self._run, args=(node, launch), name=f"holdfast-{node}", daemon=True
        )
        self._jobs[(node, launch)] = _Job(node, launch, launch, thread, chosen)
        thread.start()
        if outdated:
            threading.Thread(target=self._give_up, args=(outdated,), daemon=True).start()

    def launch_of(self, node: NodeId, number: int) -> int:
        """Which launch the job that was submitted for launch `number` carries; -1: none."""
        job = self._jobs.get((node, number))
        return number if job is None else job.launch

    def carry(self, node: NodeId, number: int, launch: int) -> None:
        """The job that was submitted for launch `number` has a process up for another one."""
        job = self._jobs.get((node, number))
        if job is None:
            return
        for other in self._of(node):
            if other.launch == launch:
                other.launch = _NO_LAUNCH
                threading.Thread(target=self._cancel, args=(other,), daemon=True).start()
        job.launch = launch

    def running_on(self, executors: frozenset[str]) -> tuple[tuple[NodeId, int], ...]:
        """The launches whose tasks run on one of these executors, by Spark's own account."""
        at_work = [job for job in self._jobs.copy().values() if job.thread.is_alive()]
        return tuple(
            (job.node, job.launch)
            for job in at_work
            if job.launch != _NO_LAUNCH and not executors.isdisjoint(self._executors_of(job))
        )

    def _executors_of(self, job: _Job) -> Iterator[str]:
        """Where tasks of a job run."""
        tracker = self._context.statusTracker()
        jsc: Any = self._context._jsc
        store = jsc.sc().statusStore()
        for number in tracker.getJobIdsForGroup(self._group(job.node, job.number)):
            found = tracker.getJobInfo(number)
            for stage in () if found is None else found.stageIds:
                tasks = store.taskList(stage, 0, _TASKS_MAX)
                for index in range(tasks.size()):
                    if tasks.apply(index).status() == "RUNNING":
                        yield str(tasks.apply(index).executorId())

    def _of(self, node: NodeId) -> list[_Job]:
        """The jobs of a node that have not ended."""
        return [j for j in self._jobs.values() if j.node == node and j.thread.is_alive()]

    def end(self) -> None:
        """Wait for all jobs, and cancel those that do not end."""
        for job in list(self._jobs.values()):
            job.thread.join(_STOP_TIMEOUT_S)
            if job.thread.is_alive() and not self.is_spark_stopped:
                self._cancel(job)
                job.thread.join(_STOP_TIMEOUT_S)

    def _group(self, node: NodeId, number: int) -> str:
        return f"{self._groups}/{node}#{number}"

    def _cancel(self, job: _Job) -> None:
        self._context.cancelJobGroup(self._group(job.node, job.number))

    def _give_up(self, outdated: list[tuple[_Job, int]]) -> None:
        """Cancel jobs that still stand for a launch which no longer counts, after a while."""
        time.sleep(_GRACE_S)
        for job, launch in outdated:
            if job.launch == launch:
                self._cancel(job)

    def _run(self, node: NodeId, launch: int) -> None:
        job = self._jobs[(node, launch)]
        reason = self._run_to_its_end(job)
        self._ended(TaskEnded(node, job.launch, reason))

    def _run_to_its_end(self, job: _Job) -> str:
        spec = self._spec_of(job.node, job.number)
        group = self._group(job.node, job.number)
        try:
            said = description(self._name, job.node, self._view_path)
            self._context.setJobGroup(group, said)
            task = self._executors.one_task(job.chosen)
            task.mapPartitions(lambda _: run_node(spec)).collect()
        except Exception as error:  # Whatever Spark says ended the task is the reason to report.
            return reason_of(error)
        return "its task ended"
