"""The Spark jobs that nodes run in: one task each.

When the process of a node dies, Spark knows it at once and starts the task again, while keep-alives
have yet to be missed. To submit another job then would be slower, and the two would start side by
side; so a job whose task Spark is starting again carries the next launch as well.

A job that is cancelled is not interrupted: 1. An executor asks its Python daemon for a process.
2. The task is interrupted, and with it the asking. 3. The executor takes the daemon for lost and
kills it, and all other nodes of this executor with it. A fenced node ends when it is told so;
whatever is left after two seconds, Spark kills alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.core.coordinator.events import TaskEnded
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.spark.task import TaskSpec, run_node

if TYPE_CHECKING:
    from pyspark import SparkContext

    from holdfast.core.coordinator.host_choice import Executor
    from holdfast.core.model.ids import NodeId
    from holdfast.shell.spark.executors import Executors

_STOP_TIMEOUT_S = 5.0


@dataclass(slots=True)
class _Job:
    """A job of one task.

    Attributes:
        node: The node that it runs.
        number: The launch that it was submitted for.
        launch: The one that it carries now.
        thread: Waits for its end.
        chosen: Where its task should run.
        attempts: How many attempts of its task have come up.
    """

    node: NodeId
    number: int
    launch: int
    thread: threading.Thread
    chosen: Executor | None
    attempts: int = 0


class NodeJobs:
    """Submits, follows and cancels the jobs of a query's nodes."""

    def __init__(
        self,
        context: SparkContext,
        name: str,
        spec_of: Callable[[NodeId, int], TaskSpec],
        ended: Callable[[TaskEnded], None],
        executors: Executors,
    ) -> None:
        """Run nothing yet.

        Args:
            context: Spark's.
            name: The query's, for job groups.
            spec_of: What the task of a node's launch has to know.
            ended: Called from any thread when a job has ended.
            executors: Makes tasks that would rather run on one of them.
        """
        self._context = context
        self._name = name
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
            expected: Launches of the node that still count; jobs for others are cancelled.
            chosen: Where the task should run.
        """
        outdated = [
            job
            for job in self._jobs.values()
            if job.node == node and job.launch not in expected and job.thread.is_alive()
        ]
        thread = threading.Thread(
            target=self._run, args=(node, launch, outdated), name=f"holdfast-{node}", daemon=True
        )
        self._jobs[(node, launch)] = _Job(node, launch, launch, thread, chosen)
        thread.start()

    def launch_of(self, node: NodeId, number: int) -> int:
        """Which launch the job that was submitted for launch `number` carries now."""
        job = self._jobs.get((node, number))
        return number if job is None else job.launch

    def came_up(self, node: NodeId, number: int, attempt: int) -> None:
        """An attempt, from 0 on, of a job's task says hello."""
        job = self._jobs.get((node, number))
        if job is not None:
            job.attempts = max(job.attempts, attempt + 1)

    def end(self) -> None:
        """Wait for all jobs, and cancel those that do not end."""
        for job in list(self._jobs.values()):
            job.thread.join(_STOP_TIMEOUT_S)
            if job.thread.is_alive() and not self.is_spark_stopped:
                self._cancel(job)
                job.thread.join(_STOP_TIMEOUT_S)

    def _group(self, node: NodeId, number: int) -> str:
        return f"holdfast/{self._name}/{node}#{number}"

    def _cancel(self, job: _Job) -> None:
        self._context.cancelJobGroup(self._group(job.node, job.number))

    def _run(self, node: NodeId, launch: int, outdated: list[_Job]) -> None:
        """Submit a job and wait for its end, unless an outdated one is being started again."""
        job = self._jobs[(node, launch)]
        carrier = next(filter(self._is_starting_again, outdated), None)
        if carrier is not None:
            del self._jobs[(node, launch)]
            carrier.launch = launch
        for other in outdated:
            if other is not carrier:
                self._cancel(other)
        if carrier is None:
            reason = self._run_to_its_end(job)
            self._ended(TaskEnded(node, job.launch, reason))

    def _run_to_its_end(self, job: _Job) -> str:
        spec = self._spec_of(job.node, job.number)
        group = self._group(job.node, job.number)
        try:
            self._context.setJobGroup(group, f"Holdfast node {job.node}")
            task = self._executors.one_task(job.chosen)
            task.mapPartitions(lambda _: run_node(spec)).collect()
        except Exception as error:  # Whatever Spark says ended the task is the reason to report.
            return reason_of(error)
        return "its task ended"

    def _is_starting_again(self, job: _Job) -> bool:
        """Whether as many attempts have failed as have come up, and the job goes on."""
        status = self._context.statusTracker()
        for number in status.getJobIdsForGroup(self._group(job.node, job.number)):
            found = status.getJobInfo(number)
            stages = [] if found is None else [status.getStageInfo(s) for s in found.stageIds]
            failed = sum(stage.numFailedTasks for stage in stages if stage is not None)
            if found is not None and found.status == "RUNNING":
                return bool(0 < job.attempts <= failed)
        return False
