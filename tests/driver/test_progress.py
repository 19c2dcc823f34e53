"""Progress reports, rates, listeners, draining: from what nodes say, without Spark."""

import json
import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.core.checkpoint.eventual import ExtentSize, ExtentStatistics
from holdfast.core.coordinator.reports import (
    ConsistencyReported,
    NodeFigures,
    StatisticsReported,
)
from holdfast.core.haunit.node_figures import NodeStatistics
from holdfast.core.model.ids import Incarnation, NodeId, StreamId
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.replication.consistency_manager import Consistency
from holdfast.core.wire.node_words import Task
from holdfast.driver.draining import Draining, wait_until_drained
from holdfast.driver.listeners import Listeners, QueryManager
from holdfast.driver.progress import (
    Heard,
    Progress,
    ProgressMaker,
    Rates,
    consistency_block,
    extent_block,
    recovery_block,
)
from holdfast.errors import OptionError
from holdfast.planning.plan import Plan
from holdfast.shell.spark.history import History, NodeReport


def node(name: str, inputs: list[tuple[str, str | None]], *, sink: str | None = None) -> Any:
    return SimpleNamespace(
        node=NodeId(name),
        unit=name.partition("[")[0],
        inputs=[SimpleNamespace(stream=s, producer=p) for s, p in inputs],
        outputs=[SimpleNamespace(is_sink=sink is not None, streams=(f"{sink}[0]",), feed_of=None)],
    )


def plan() -> Plan:
    nodes = (
        node("rows[0]", [("rows[0]", None)]),
        node("counts[0]", [("edge", "rows[0]")], sink="counts"),
    )
    return Plan(Dataflow("counts"), nodes, {}, {"counts[0]": "/somewhere"}, ())  # type: ignore[dict-item]


def report(processed: dict[str, int], next_ids: dict[str, int], **more: Any) -> NodeReport:
    made = NodeReport(figures=NodeFigures(NodeStatistics(**({"input_tuples": 10} | more))))
    made.processed, made.next_ids, made.reports = processed, next_ids, 1
    return made


def heard(reports: dict[str, NodeReport], committed: dict[str, int | None], **more: Any) -> Heard:
    made = {NodeId(name): one for name, one in reports.items()}
    empty: dict[str, Any] = {
        name: [] for name in ("checkpoints", "recoveries", "failures", "gaps", "damages")
    }
    empty["refused"] = {"coordinator": {"frames": 2, "handshakes": 1}}
    empty["begun"] = {}
    return Heard(reports=made, committed=committed, **(empty | more))


RECOVERY = {
    "node": "counts[0]",
    "detected_ms": 300,
    "restarted_ms": 200,
    "replayed_ms": 40,
    "recovered_ms": 560,
    "caught_up_ms": 800,
}


def test_a_report_has_sparks_names_and_is_json() -> None:
    maker = ProgressMaker(plan(), "name", "id", "run")
    rows = report({"rows[0]": 70}, {"edge": 70})
    rows.source_rows = {"rows[0]": 75}
    reports = {"rows[0]": rows, "counts[0]": report({"edge": 60}, {}, state_bytes=4096)}
    progress = maker.make(heard(reports, {"rows[0]": 100}, recoveries=[RECOVERY]))
    assert json.loads(progress.json) == progress
    assert (progress.id, progress.runId, progress.name) == ("id", "run", "name")
    assert progress.sources[0] == {
        "description": "rows",
        "numInputRows": 70,
        "inputRowsPerSecond": 0.0,
        "backlogRows": 25,
    }
    assert progress["stateOperators"][0]["memoryUsedBytes"] == 4096
    assert progress["units"]["rows"]["backlog"]["sourceRows"] == 25
    assert progress["units"]["rows"]["recovery"]["count"] == 0
    expected = {"detectionMs": 300, "restartMs": 200, "replayMs": 40}
    expected |= {"firstOutputMs": 20, "catchUpMs": 240}
    assert progress["recovery"] == {"count": 1, "node": "counts[0]", **expected}
    assert progress["units"]["counts"]["recovery"] == progress["recovery"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = progress.nothing


def test_an_edge_shows_what_is_on_its_way_though_a_node_was_replaced() -> None:
    maker = ProgressMaker(plan(), "name", "id", "run")

    def edges(processed: dict[str, int], at_s: float) -> list[dict[str, Any]]:
        rows = report({"rows[0]": 100}, {"edge": 100}, boundary_us=1_700_000_000_000_000)
        counts = report(processed, {"counts[0]": 7})
        said = heard({"rows[0]": rows, "counts[0]": counts}, {})
        found: list[dict[str, Any]] = maker.make(said, now_s=at_s)["edges"]
        return found

    assert edges({"edge": 40}, 0.0)[0] == {
        "from": "rows",
        "to": "counts",
        "rowsPerSecond": 0.0,
        "backlogRows": 60,
        "watermark": "2023-11-14T22:13:20.000Z",
    }
    assert edges({}, 0.5)[0]["backlogRows"] == 60, "it has just been replaced"
    between, to_sink = edges({"edge": 90}, 1.0)
    assert (between["rowsPerSecond"], between["backlogRows"]) == (50.0, 10)
    assert (to_sink["to"], to_sink["backlogRows"]) == ("sink counts", 0)


def test_durable_progress_is_as_old_as_the_last_restart_point_or_row_in_a_sink() -> None:
    maker = ProgressMaker(plan(), "name", "id", "run")

    def age_ms(durable: int, written: int, at_s: float) -> int:
        reports = {"rows[0]": report({}, {}), "counts[0]": report({}, {"counts[0]": written})}
        made = maker.make(heard(reports, {}, durable_rows=durable), now_s=at_s)
        found: int = made["durable"]["ageMs"]
        return found

    assert age_ms(10, 1, 5.0) == 0
    assert age_ms(10, 1, 25.0) == 20_000
    assert age_ms(11, 1, 26.0) == 0, "a restart point"
    assert age_ms(11, 2, 27.0) == 0, "a row in a sink"


def test_rows_are_counted_by_positions_whoever_has_brought_the_streams_there() -> None:
    maker = ProgressMaker(plan(), "name", "id", "run")
    begun = {
        NodeId("rows[0]"): RestartPoint(processed_before={"rows[0]": 900}),
        NodeId("counts[0]"): RestartPoint(next_ids={"counts[0]": 40}),
    }

    def counted(read: int, written: int, at_s: float) -> tuple[int, int, int, float]:
        rows = report({"rows[0]": read}, {"edge": read})
        counts = report({"edge": read}, {"counts[0]": written})
        said = heard({"rows[0]": rows, "counts[0]": counts}, {}, begun=begun)
        found = maker.make(said, now_s=at_s)
        assert found["sink"]["numOutputRows"] == found["numOutputRows"]
        of_source = found["sources"][0]["numInputRows"]
        return found["numInputRows"], found["numOutputRows"], of_source, found["inputRowsPerSecond"]

    unknown = heard({"rows[0]": NodeReport(), "counts[0]": NodeReport()}, {}, begun=begun)
    assert maker.make(unknown, now_s=0.0)["numInputRows"] == 0
    assert counted(1_000, 42, 1.0) == (100, 2, 1_000, 100.0)
    assert counted(1_300, 45, 2.0) == (400, 5, 1_300, 200.0)
    assert maker.make(unknown, now_s=2.5)["numInputRows"] == 400, "they have been replaced"
    assert counted(1_200, 44, 3.0)[:3] == (400, 5, 1_300), "they replay"
    assert counted(1_400, 46, 4.0)[:3] == (500, 6, 1_400)


def test_late_rows_are_those_of_the_sources_whoever_has_read_them() -> None:
    maker = ProgressMaker(plan(), "totals", "id", "run")
    reports = {"rows[0]": NodeReport(), "counts[0]": NodeReport()}

    def late(count: int | None) -> int:
        reports["rows[0]"].late_rows = {} if count is None else {"rows[0]": count}
        return int(maker.make(heard(reports, {}), now_s=0.0)["lateRows"])

    assert [late(7), late(None), late(3), late(9)] == [7, 7, 7, 9]


def test_what_nobody_knows_of_a_source_is_null() -> None:
    maker = ProgressMaker(plan(), "name", "id", "run")
    reports = {"rows[0]": report({}, {}), "counts[0]": report({}, {})}
    progress = maker.make(heard(reports, {}))
    assert progress["sources"][0]["backlogRows"] is None
    assert progress["units"]["rows"]["backlog"]["sourceRows"] is None


def test_a_checkpoint_is_told_with_how_long_the_unit_stood_still() -> None:
    maker = ProgressMaker(plan(), "name", "id", "run")
    reports = {"rows[0]": report({}, {}), "counts[0]": report({}, {})}
    stored = {
        "node": "counts[0]",
        "failure": None,
        "prepared_us": 1500,
        "duration_ms": 12,
        "written_bytes": 4096,
        "at_unix_s": 0.0,
    }
    failed = stored | {"failure": "disk full"}
    progress = maker.make(heard(reports, {}, checkpoints=[stored, failed]))
    block = progress["units"]["counts"]["checkpoint"]
    assert (block["count"], block["failed"]) == (1, 1)
    assert (block["standstillMs"], block["durationMs"]) == (1.5, 12)
    assert progress["units"]["rows"]["checkpoint"]["count"] == 0


def test_rates_are_those_of_the_last_seconds() -> None:
    rates = Rates()
    assert rates.of({"a": 0}, 0.0) == {"a": 0.0}
    assert rates.of({"a": 100}, 1.0) == {"a": 100.0}
    assert rates.of({"a": 100}, 4.0) == {"a": 0.0}  # Nothing since the sample at 1.0.
    assert rates.of({"a": 30}, 5.0) == {"a": 0.0}  # A replacement counts anew.


def test_no_recovery_is_told_as_none() -> None:
    assert recovery_block([])["detectionMs"] is None


def test_draining_follows_what_a_node_had_put_out_when_it_had_read_everything() -> None:
    draining = Draining(plan(), {"rows[0]": 100})
    rows = report({"rows[0]": 90}, {"edge": 90})
    counts = report({"edge": 90}, {})
    reports = {NodeId("rows[0]"): rows, NodeId("counts[0]"): counts}
    rows.source_rows = {"rows[0]": 99}
    assert not draining.is_over(reports)
    rows.source_rows = {"rows[0]": 100}  # Read, but perhaps not in the queue yet.
    assert not draining.is_over(reports)
    rows.reports, rows.figures = 2, NodeFigures(NodeStatistics(pending_tuples=10))
    assert not draining.is_over(reports)
    rows.reports, rows.processed, rows.next_ids = 3, {"rows[0]": 100}, {"edge": 95}
    assert not draining.is_over(reports)
    counts.processed = {"edge": 95}
    assert draining.is_over(reports)


def test_a_node_of_two_sources_is_done_when_it_has_processed_both() -> None:
    """What waits of the one was taken for tuples of the other, which never come."""
    both = node("both[0]", [("left", None), ("right", None)], sink="both")
    joined = Plan(Dataflow("joined"), (both,), {}, {"both[0]": "/somewhere"}, ())  # type: ignore[dict-item]
    draining = Draining(joined, {"left": 50, "right": 60})
    said = report({"left": 40, "right": 30}, {}, pending_tuples=40)
    said.source_rows = {"left": 50, "right": 60}
    reports = {NodeId("both[0]"): said}
    for count in (1, 2):
        said.reports = count
        assert not draining.is_over(reports)
    said.reports, said.processed = 3, {"left": 50, "right": 60}
    said.figures = NodeFigures(NodeStatistics(pending_tuples=0))
    assert draining.is_over(reports)
    assert draining.wanted == {"left": 50, "right": 60}


def test_what_was_heard_of_a_node_is_of_one_moment_whatever_it_says_meanwhile() -> None:
    """Draining looks at several parts of a report, in another thread than that which hears."""
    task = Task("rows[0]|1|7|0", "rows[0]", 1, 7)
    nodes = [SimpleNamespace(node=each.node, receivers=dict) for each in plan().nodes]
    history = History(nodes)  # type: ignore[arg-type]
    history.came_up(task, "here")
    history.show(NodeId("rows[0]"), task.name)
    for count in (10, 20):
        before = history.reports[NodeId("rows[0]")]
        said = (before.reports, dict(before.processed), before.figures)
        history.note(
            task.name,
            StatisticsReported(
                NodeId("rows[0]"),
                Incarnation(1),
                NodeFigures(NodeStatistics(pending_tuples=count)),
                processed={"rows[0]": count},
            ),
        )
        assert (before.reports, before.processed, before.figures) == said
        newest = history.reports[NodeId("rows[0]")]
        assert newest is history.of(task.name)
        assert (newest.pid, newest.host, newest.processed) == (7, "here", {"rows[0]": count})
    assert newest.reports == 2


def test_a_node_that_was_replaced_says_twice_again_that_it_has_read_everything() -> None:
    draining = Draining(plan(), {"rows[0]": 100})
    former, counts = report({"rows[0]": 90}, {"edge": 90}), report({"edge": 90}, {})
    former.source_rows = {"rows[0]": 100}
    assert not draining.is_over({NodeId("rows[0]"): former, NodeId("counts[0]"): counts})
    later = report({"rows[0]": 90}, {"edge": 90})  # Its queue does not have the rows yet.
    later.source_rows, later.pid, later.reports = {"rows[0]": 100}, 2, 7
    reports = {NodeId("rows[0]"): later, NodeId("counts[0]"): counts}
    assert not draining.is_over(reports)
    later.reports, later.processed, later.next_ids = 8, {"rows[0]": 100}, {"edge": 95}
    assert not draining.is_over(reports)
    assert draining.wanted["edge"] == 95


def test_whoever_waits_asks_the_nodes_that_are_not_done_and_no_others() -> None:
    rows, counts = report({"rows[0]": 100}, {"edge": 95}), report({"edge": 90}, {})
    rows.source_rows = {"rows[0]": 100}
    reports = {NodeId("rows[0]"): rows, NodeId("counts[0]"): counts}
    asked: list[list[str]] = []

    def answered(nodes: Iterable[NodeId]) -> None:
        asked.append(list(nodes))
        rows.reports += 1
        if len(asked) == 2:
            counts.processed = {"edge": 95}

    wanted = wait_until_drained(plan(), reports, {"rows[0]": 100}, lambda: True, answered)
    assert wanted["edge"] == 95
    assert asked == [["rows[0]", "counts[0]"], ["counts[0]"]]


class Broken:
    def onQueryProgress(self, event: object) -> None:
        raise ValueError("no")


class Told:
    def __init__(self) -> None:
        self.events: list[object] = []

    def onQueryProgress(self, event: object) -> None:
        self.events.append(event)


def test_a_listener_that_raises_is_logged_and_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listeners, told = Listeners(), Told()
    listeners.add(Broken())
    listeners.add(told)
    with caplog.at_level(logging.ERROR):
        listeners.tell("onQueryProgress", "event")
    listeners.tell("onQueryTerminated", "end")  # Nobody has the method.
    assert told.events == ["event"]
    assert "onQueryProgress of a listener failed" in caplog.text
    listeners.remove(told)
    listeners.remove(told)
    listeners.tell("onQueryProgress", "later")
    assert told.events == ["event"]


def test_what_cannot_listen_is_refused() -> None:
    with pytest.raises(OptionError, match="is no listener: it has none of onQueryStarted"):
        Listeners().add(42)


def test_the_manager_knows_who_runs_and_who_has_ended() -> None:
    manager = QueryManager()
    query: Any = SimpleNamespace(id="a", exception=lambda: None)
    manager.began(query)
    assert (manager.active, manager.get("a"), manager.get("b")) == ([query], query, None)
    assert not manager.awaitAnyTermination(0.01)
    manager.has_ended(query)
    assert manager.active == []
    assert manager.awaitAnyTermination(0.01)
    manager.resetTerminated()
    assert not manager.awaitAnyTermination(0.01)
    failed: Any = SimpleNamespace(id="b", exception=lambda: RuntimeError("why"))
    manager.has_ended(failed)
    with pytest.raises(RuntimeError, match="why"):
        manager.awaitAnyTermination()


def test_a_report_is_a_dict() -> None:
    assert Progress({"a": 1}) == {"a": 1}


def test_a_unit_is_as_consistent_as_its_worst_instance() -> None:
    said = ConsistencyReported(Consistency.STABLE, 900, (), 2, 2, 40, 7)
    failed = ConsistencyReported(Consistency.UP_FAILURE, 30, (StreamId("b"),), 2, 0, 40, 7, 3, 90)
    figures = [NodeFigures(consistency=each) for each in (said, failed, None)]
    assert consistency_block(figures) == {
        "state": "up_failure",
        "sinceMs": 30,
        "missing": ["b"],
        "tentativeRows": 4,
        "undoneRows": 2,
        "droppedRows": 3,
        "delayMaxMs": 40,
        "correctionDelayMaxMs": 90,
        "stabilizationMs": 7,
    }
    waits = consistency_block([NodeFigures()])
    assert waits.pop("state") == "stable"
    assert set(waits.values()) == {None}


def test_a_units_extent_is_that_of_all_its_nodes_and_the_slowest_recovery():
    said = ExtentStatistics(ExtentSize(10, 5, 2), 1.5)
    late = ExtentStatistics(ExtentSize(10, 5, 2), 9.5, "too much")
    assert extent_block([NodeFigures(extent=each) for each in (said, late, None)]) == {
        "bytes": 20,
        "tuples": 10,
        "footprints": 4,
        "predictedRecoveryMs": 9.5,
        "shortfall": "too much",
    }
    assert extent_block([NodeFigures(extent=said)]) is not None
    assert extent_block([NodeFigures()]) is None
