"""Spark's jobs of nodes: what is cancelled is one's own."""

from types import SimpleNamespace
from typing import Any

from holdfast.core.coordinator.events import TaskEnded
from holdfast.core.model.ids import NodeId
from holdfast.shell.spark.jobs import NodeJobs


class Context:
    """A `SparkContext` whose jobs end at once."""

    def __init__(self) -> None:
        self.groups: list[str] = []
        self._jsc = None

    def setJobGroup(self, group: str, description: str) -> None:
        self.groups.append(group)


def test_two_queries_of_one_name_do_not_share_their_jobs() -> None:
    context: Any = Context()
    executors: Any = SimpleNamespace(one_task=lambda chosen: None)
    ended: list[TaskEnded] = []
    for _ in range(2):
        jobs = NodeJobs(context, "twins", lambda *_: None, ended.append, executors)  # type: ignore[arg-type,return-value]
        jobs.launch(NodeId("n[0]"), 1, {1})
        jobs.end()
    assert len(ended) == 2
    assert len(set(context.groups)) == 2
