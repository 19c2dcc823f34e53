"""Three times of a checkpoint, and what its line came to, as progress says them."""

from __future__ import annotations

import time

from holdfast.core.coordinator.reports import NodeFigures, TrafficReported
from holdfast.core.model.ids import NodeId
from holdfast.driver.line_progress import line_block, round_block
from holdfast.shell.spark.history import NodeReport

A, B = NodeId("a[0]"), NodeId("a[1]")


def _written(
    node: NodeId, duration_ms: int, prepared_us: int, failure: str | None = None
) -> dict[str, object]:
    return {
        "node": node, "failure": failure, "duration_ms": duration_ms, "prepared_us": prepared_us
    }  # fmt: skip


def test_a_round_has_a_time_to_its_cut_one_until_durable_and_one_until_all_are() -> None:
    rounds = [
        {"durableMs": {A: 900, B: 900, "c[0]": 900}, "roundMs": 900},
        {"durableMs": {A: 30, B: 50, "c[0]": 80}, "roundMs": 80},
        {"durableMs": {"elsewhere[0]": 7}, "roundMs": 7},
    ]
    written = [_written(A, 10, 400), _written(B, 35, 1500), _written(B, 1, 9000, "no room")]
    found = round_block({A, B}, rounds, written)
    assert found == {"alignmentMs": 20, "standstillMs": 1.5, "durableMs": 50, "roundMs": 80}
    assert round_block({NodeId("none[0]")}, rounds, []) is None


def test_the_line_of_a_unit_is_as_old_as_that_of_its_worst_instance() -> None:
    now_s = time.time()

    def of(noted_s: float | None, line_ms: int | None) -> dict[str, object]:
        counts = {"checkpoints": 5, "forced": 1, "useless": 2, "rolledPast": 1}
        return {**counts, "lineMs": line_ms, "noted_unix_s": noted_s}

    said = NodeReport(figures=NodeFigures(traffic=TrafficReported(1_020, note_bytes=20)))
    found = line_block({A, B}, {A: of(now_s - 4, 30), B: of(now_s - 1, 70)}, [said, NodeReport()])
    assert found is not None
    assert 4_000 <= found.pop("ageMs") < 60_000
    assert found == {
        "waitedMs": 70,
        "checkpoints": 10,
        "forced": 2,
        "useless": 4,
        "rolledPast": 2,
        "messageOverhead": 1.02,
    }
    unbegun = line_block({A}, {A: of(None, None)}, [])
    assert unbegun is not None
    assert (unbegun["ageMs"], unbegun["waitedMs"], unbegun["messageOverhead"]) == (None, None, None)
    assert line_block({A}, {}, []) is None
