"""What is seen of checkpoints while a query goes on writing them, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_elastic_without_spark import META, put, started
from without_spark import without_spark

import holdfast as hf
from holdfast.core.model.ids import NodeId
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.driver.inspection import Inspection
from holdfast.shell.storage import ingest_log


def test_a_checkpoint_that_gives_way_meanwhile_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = str(tmp_path / "log")
    ingest_log.prepare(root, META)
    put(root, 0, 1_000)
    with without_spark() as session:
        often = hf.Checkpointed(interval="20 milliseconds")
        query = started(session, tmp_path, 1, often)
        inspection, written = Inspection(str(tmp_path / "location")), 1_000
        registered = inspection._points
        stale: dict[NodeId, RestartPoint] = {}
        while not stale or held(stale) & {c.checkpoint for c in inspection.checkpoints()}:
            found = inspection.checkpoints()
            stale = stale or (registered() if {c.role for c in found} >= {"newest"} else {})
            put(root, written, written := written + 100)
            query._cluster.done.wait(0.1)
        ingest_log.end(root)
        assert query.awaitTermination(300)

    asked: list[int] = []

    def points() -> dict[NodeId, RestartPoint]:
        """First those of before, whose checkpoints are gone."""
        asked.append(1)
        return stale if len(asked) == 1 else registered()

    monkeypatch.setattr(inspection, "_points", points)
    assert "newest" in {checkpoint.role for checkpoint in inspection.checkpoints()}


def held(points: dict[NodeId, RestartPoint]) -> set[int]:
    """Numbers of the checkpoints that are restart points."""
    return {p.checkpoint.checkpoint.sequence for p in points.values() if p.checkpoint}
