"""Whole queries in this process: the driver's real code and real nodes, as threads, without Spark.

What is left out is what Spark does: it submits tasks, and writes DataFrames. So sources are ingest
logs that others have filled.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.shell.spark import chunk_cluster, jobs
from holdfast.shell.spark.launch import Cluster
from holdfast.shell.spark.task import NodeTask, TaskSpec
from holdfast.shell.stores.chunks.data_node_task import DataNodeSpec, DataNodeTask

_SLOTS = 64


class _OneTask:
    """What Spark would send to an executor is run here."""

    def mapPartitions(self, body: Callable[[Any], Iterator[Any]]) -> SimpleNamespace:
        return SimpleNamespace(collect=lambda: list(body(iter(()))))


def _session() -> Any:
    """As much of a `SparkSession` as a query asks for whose sources are logs."""
    profiles = SimpleNamespace(defaultResourceProfile=lambda: None)
    scala = SimpleNamespace(
        isStopped=lambda: False,
        resourceProfileManager=lambda: profiles,
        maxNumConcurrentTasks=lambda _: _SLOTS,
    )
    context = SimpleNamespace(
        master=f"local[{_SLOTS}]",
        getConf=lambda: SimpleNamespace(getAll=list),
        setJobGroup=lambda *_: None,
        cancelJobGroup=lambda *_: None,
        parallelize=lambda *_: _OneTask(),
        _jsc=SimpleNamespace(sc=lambda: scala),
    )
    return SimpleNamespace(sparkContext=context, conf=SimpleNamespace(getAll={}))


def _run_node(spec: TaskSpec) -> Iterator[str]:
    task = NodeTask(spec, "", lambda: None)
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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "run_node", _run_node)
        patch.setattr(chunk_cluster, "run_data_node", _run_data_node)
        patch.setattr(Cluster, "_end_task", lambda *_: None)  # A thread cannot be killed.
        patch.setattr(Cluster, "_collect_last_words", lambda _: None)  # Who failed has said them.
        yield _session()
