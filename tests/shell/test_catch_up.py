"""How long a failure is felt."""

from __future__ import annotations

from holdfast.core.model.ids import NodeId
from holdfast.shell.spark.catch_up import CatchUpWatch, CaughtUp
from holdfast.shell.telemetry import LatencyHistogram

SOURCE, SINK, ASIDE = NodeId("bids[0]"), NodeId("counts[0]"), NodeId("aside[0]")


def watch() -> CatchUpWatch:
    return CatchUpWatch({SOURCE: [SINK], SINK: [], ASIDE: []})


class Node:
    """A node's counts since its process began."""

    def __init__(self) -> None:
        self.seen = LatencyHistogram()

    def put_out(self, latency_ms: float, rows: int = 100) -> dict[int, int]:
        self.seen.add(round(latency_ms * 1000), rows)
        return self.seen.counts


def test_results_are_as_prompt_as_before_when_half_of_a_reports_rows_are() -> None:
    followed, sink = watch(), Node()
    for tenth in range(10):
        assert followed.heard(SINK, sink.put_out(3.0), tenth / 10) == []
    followed.failed(SOURCE, 1.0)
    followed.recovered(SOURCE, 1.2)
    assert followed.heard(SINK, sink.put_out(200.0), 1.3) == []
    assert followed.heard(SINK, sink.put_out(40.0), 1.4) == []
    assert followed.heard(SINK, sink.put_out(3.0), 1.5) == [CaughtUp(SOURCE, 1.2, 500)]
    assert followed.heard(SINK, sink.put_out(3.0), 1.6) == [], "said once"


def test_rows_from_before_the_failure_end_nothing() -> None:
    followed, sink = watch(), Node()
    followed.heard(SINK, sink.put_out(3.0), 0.9)
    followed.failed(SOURCE, 1.0)
    followed.recovered(SOURCE, 1.05)
    assert followed.heard(SINK, sink.put_out(3.0), 1.1) == [], "some may be older than the failure"
    assert followed.heard(SINK, sink.put_out(3.0), 1.2) == [CaughtUp(SOURCE, 1.05, 200)]


def test_nothing_is_over_before_the_first_new_output() -> None:
    followed, sink = watch(), Node()
    followed.heard(SINK, sink.put_out(3.0), 0.9)
    followed.failed(SOURCE, 1.0)
    assert followed.heard(SINK, sink.put_out(3.0), 1.1) == []
    assert followed.heard(SINK, sink.put_out(3.0), 1.2) == []


def test_a_replaced_sink_counts_from_the_beginning_of_its_new_process() -> None:
    followed, former, sink = watch(), Node(), Node()
    followed.heard(SINK, former.put_out(3.0, rows=5_000), 0.9)
    followed.failed(SINK, 1.0)
    followed.recovered(SINK, 1.2)
    assert followed.heard(SINK, sink.put_out(90.0), 1.3) == []
    assert followed.heard(SINK, sink.put_out(3.0), 1.4) == [CaughtUp(SINK, 1.2, 400)]


def test_the_level_of_a_failure_while_another_is_felt_is_that_of_before_both() -> None:
    followed, sink = watch(), Node()
    followed.heard(SINK, sink.put_out(3.0), 0.9)
    followed.failed(SOURCE, 1.0)
    followed.recovered(SOURCE, 1.1)
    followed.heard(SINK, sink.put_out(300.0), 1.3)
    followed.failed(SINK, 1.4)
    followed.recovered(SINK, 1.5)
    assert followed.heard(SINK, sink.put_out(300.0), 1.7) == []
    both = [CaughtUp(SOURCE, 1.1, 1000), CaughtUp(SINK, 1.5, 600)]
    assert followed.heard(SINK, sink.put_out(2.0), 2.0) == both


def test_sinks_that_are_not_behind_the_node_do_not_matter() -> None:
    followed, sink, aside = watch(), Node(), Node()
    followed.heard(SINK, sink.put_out(3.0), 0.9)
    followed.heard(ASIDE, aside.put_out(1.0), 0.9)
    followed.failed(SOURCE, 1.0)
    followed.recovered(SOURCE, 1.1)
    followed.heard(ASIDE, aside.put_out(900.0), 1.2)
    assert followed.heard(SINK, sink.put_out(3.0), 1.2) == []
    assert followed.heard(SINK, sink.put_out(3.0), 1.3) == [CaughtUp(SOURCE, 1.1, 300)]


def test_without_results_before_the_failure_nobody_can_tell() -> None:
    followed, sink = watch(), Node()
    followed.failed(SOURCE, 1.0)
    followed.recovered(SOURCE, 1.1)
    assert followed.heard(SINK, sink.put_out(3.0), 1.2) == []
    assert followed.heard(SINK, sink.put_out(3.0), 1.3) == []


def test_sinks_are_asked_from_the_recovery_on_until_they_are_back_but_not_for_ever() -> None:
    followed, sink = watch(), Node()
    followed.heard(SINK, sink.put_out(3.0), 0.9)
    followed.failed(SOURCE, 1.0)
    assert followed.awaited(1.1) == [], "nothing new has come"
    followed.recovered(SOURCE, 1.2)
    assert followed.awaited(1.3) == [SINK]
    assert followed.awaited(60.0) == []
    followed.heard(SINK, sink.put_out(3.0), 1.4)
    followed.heard(SINK, sink.put_out(3.0), 1.5)
    assert followed.awaited(1.6) == []
