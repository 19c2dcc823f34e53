"""However long it takes to open a node's logs, the node lives, and says what it waits for."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import without_spark
from test_elastic_without_spark import META, put, started

import holdfast as hf
from holdfast.core.model.ids import NodeId
from holdfast.shell.spark.bring_up import BringUp
from holdfast.shell.spark.task import NodeTask
from holdfast.shell.spark.task_spec import TaskSpec
from holdfast.shell.storage import ingest_log
from holdfast.shell.stores import embedded_place

_STALL_S = 5.0  # A busy machine holds a healthy loop up for less.
_LONG_S = 300.0


def with_little_patience(spec: TaskSpec, *args: Any) -> NodeTask:
    """A node that is taken for dead when its loop stands still for a moment."""
    return NodeTask(replace(spec, stall_s=_STALL_S), *args)


def test_a_node_is_not_replaced_because_its_store_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_answer = threading.Event()
    store_put = embedded_place._Below.put

    def slowly(store: Any, name: str, parts: Any) -> None:
        assert may_answer.wait(_LONG_S)
        store_put(store, name, parts)

    monkeypatch.setattr(without_spark, "NodeTask", with_little_patience)
    monkeypatch.setattr(embedded_place._Below, "put", slowly)
    root = str(tmp_path / "log")
    ingest_log.prepare(root, META)
    put(root, 0, 1_000)
    ingest_log.end(root)
    kept = hf.EventualCheckpoints(store=hf.EmbeddedStore(copies=1, data_nodes=1))
    with without_spark.without_spark() as session:
        session.conf.getAll["spark.holdfast.keepAliveMisses"] = "20"
        query = started(session, tmp_path, 2, kept)
        comes_up = [f"sums[{n}] comes up: its logs are being opened" for n in range(2)]
        deadline_s = time.monotonic() + _LONG_S
        while not set(comes_up) <= set(query.status["notes"]):
            assert query.isActive
            assert time.monotonic() < deadline_s, query.status["notes"]
            time.sleep(0.01)
        time.sleep(_STALL_S + 3)  # Whose loop stood still would be taken for dead by now.
        may_answer.set()
        assert query.awaitTermination(_LONG_S)
        assert not query.failures


def test_what_a_thread_has_done_is_taken_in_the_loop() -> None:
    woken, done = threading.Event(), list[int]()
    bring_up = BringUp(NodeId("a[0]"), woken.set)
    bring_up.run("it counts", lambda: lambda: done.append(threading.get_ident()))
    assert woken.wait(_LONG_S)
    assert not done
    bring_up.go_on()
    assert done == [threading.get_ident()]
    assert not bring_up.trouble


def test_what_goes_wrong_in_a_thread_is_raised_in_the_loop() -> None:
    woken = threading.Event()
    bring_up = BringUp(NodeId("a[0]"), woken.set)

    def work() -> Callable[[], None]:
        raise OSError("no such log")

    bring_up.run("it counts", work)
    assert woken.wait(_LONG_S)
    with pytest.raises(OSError, match="no such log"):
        bring_up.go_on()
