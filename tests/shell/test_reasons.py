"""What is said of one of Spark's long errors."""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Iterator

import pytest

import holdfast
from holdfast.core.errors import InvariantViolation
from holdfast.errors import HoldfastError
from holdfast.shell.spark.reasons import reason_of

STREAM_FAILED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {trace} SQLSTATE: 38000 \
SQLSTATE: XXKST
=== Streaming Query ===
Identifier: holdfast-ingest-rows [id = 1, runId = 2]
Current State: ACTIVE

Logical Plan:
WriteToMicroBatchDataSource holdfast
"""
TASK_FAILED = """An error occurred while calling o61.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed: \
org.apache.spark.api.python.PythonException: {trace}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:551)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
Caused by: org.apache.spark.api.python.PythonException: {trace}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:551)
\t... 1 more
"""
PLAIN = """An exception was thrown from the Python worker:
{trace}"""


def classes_of_ours() -> Iterator[type[BaseException]]:
    """All errors that the package defines."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.startswith("holdfast.cli"):
            importlib.import_module(module.name)
    left: list[type[BaseException]] = [HoldfastError, InvariantViolation]
    while left:
        found = left.pop()
        left += found.__subclasses__()
        yield found


def trace_of(error: BaseException) -> str:
    """As a worker of Spark's says it; behind another error, as where one is raised from another."""
    try:
        try:
            raise KeyError("the first Error")
        except KeyError as first:
            raise error from first
    except type(error):
        return traceback.format_exc()


@pytest.mark.parametrize("spark", [STREAM_FAILED, TASK_FAILED, PLAIN])
def test_no_error_of_ours_loses_its_message_on_the_way(spark: str) -> None:
    message = "time column 'at' is null in 3 rows; filter them out first"
    for each in classes_of_ours():
        error = each.__new__(each)
        error.args = (message,)
        reason = reason_of(RuntimeError(spark.format(trace=trace_of(error))))
        assert reason == f"{each.__module__}.{each.__qualname__}: {message}"


def test_all_lines_of_a_message_are_told() -> None:
    trace = trace_of(ValueError("one\ntwo\nthree"))
    assert reason_of(RuntimeError(TASK_FAILED.format(trace=trace))) == "ValueError: one two three"


def test_without_a_traceback_the_jvms_error_is_told() -> None:
    text = """An error occurred while calling o1.load.
: java.lang.IllegalArgumentException: no such place
\tat org.apache.spark.Some.where(Some.scala:1)
"""
    assert reason_of(RuntimeError(text)) == "java.lang.IllegalArgumentException: no such place"
    assert reason_of(RuntimeError("it is over")) == "it is over"
    assert reason_of(RuntimeError("")) == "RuntimeError"
