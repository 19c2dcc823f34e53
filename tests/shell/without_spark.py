"""Whole queries in this process: the driver's real code and real nodes, as threads, without Spark.

What is left out is what Spark does: it submits tasks, and writes DataFrames. So sources are ingest
logs that others have filled.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.shell.spark import chunk_cluster, jobs
from holdfast.shell.spark.launch import Cluster
from holdfast.shell.spark.task import NodeTask
from holdfast.shell.spark.task_spec import TaskSpec
from holdfast.shell.stores.chunks.data_node_task import DataNodeSpec, DataNodeTask

_SLOTS = 64


class _OneTask:
    """What Spark would send to an executor is run here."""

    def mapPartitions(self, body: Callable[[Any], Iterator[Any]]) -> SimpleNamespace:
        return SimpleNamespace(collect=lambda: list(body(iter(()))))


class _Context:
    """As much of a `SparkContext` as a query asks for."""

    def __init__(self) -> None:
        profiles = SimpleNamespace(defaultResourceProfile=lambda: None)
        scala = SimpleNamespace(
            isStopped=lambda: False,
            resourceProfileManager=lambda: profiles,
            maxNumConcurrentTasks=lambda _: _SLOTS,
        )
        self.master = f"local[{_SLOTS}]"
        self._jsc = SimpleNamespace(sc=lambda: scala)
        self._conf = SimpleNamespace(getAll=list, get=lambda _, default: default)
        self._groups: dict[int, str] = {}  # by thread
        self._running: dict[str, NodeTask] = {}  # by group

    def getConf(self) -> SimpleNamespace:
        return self._conf

    def setJobGroup(self, group: str, _: str) -> None:
        self._groups[threading.get_ident()] = group

    def cancelJobGroup(self, group: str) -> None:
        """Have the node find that its coordinator is gone."""
        task = self._running.get(group)
        if task is not None:
            task._channels.coordinator_heard_s = -math.inf

    def parallelize(self, *_: Any) -> _OneTask:
        return _OneTask()

    def run_node(self, spec: TaskSpec) -> Iterator[str]:
        """The body of a node's task, in this thread."""
        task = NodeTask(spec, "", lambda: None, time.monotonic_ns())
        self._running[self._groups[threading.get_ident()]] = task
        try:
            task.run()
        finally:
            task.close()
        yield spec.plan.node


def _run_data_node(spec: DataNodeSpec) -> None:
    task = DataNodeTask(spec)
    try:
        task.run()
    finally:
        task.close()


@contextmanager
def without_spark() -> Iterator[Any]:
    """Inside, tasks are threads; gives a session for `Dataflow.start`."""
    context = _Context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "run_node", context.run_node)
        patch.setattr(jobs, "_STOP_TIMEOUT_S", 0.5)  # For a node that comes up just then.
        patch.setattr(chunk_cluster, "run_data_node", _run_data_node)
        patch.setattr(Cluster, "_end_task", lambda *_: None)  # A thread cannot be killed.
        patch.setattr(Cluster, "_collect_last_words", lambda _: None)  # Who failed has said them.
        # However busy the machine is, nobody is taken for dead who is only slow.
        settings = {"spark.holdfast.keepAliveMisses": "100"}
        yield SimpleNamespace(sparkContext=context, conf=SimpleNamespace(getAll=settings))
