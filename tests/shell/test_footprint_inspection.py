"""What is seen of footprint logs from outside, wherever they lie."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_elastic_without_spark import META, put
from without_spark import without_spark

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.driver.footprint_inspection import EventualCheckpointInfo, eventual_checkpoints
from holdfast.driver.query import Query
from holdfast.shell.storage import ingest_log

LONG_S = 60.0
EMBEDDED = hf.EmbeddedStore(copies=1, data_nodes=1)


def started(session: Any, root: str, location: str, store: hf.EmbeddedStore | None) -> Query:
    """An hour's window of seven groups. Nobody has to write them again."""
    flow = Dataflow("inspected")
    windows = flow.source_log(root, name="rows").key_by("key").window(hf.tumbling("1 hour"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
    kept = hf.EventualCheckpoints(share=0.0001, recovery="1 hour", store=store)
    return flow.start(session, checkpointLocation=location, protection=kept)


def seen(
    query: Query, location: str, is_it: Callable[[EventualCheckpointInfo], object]
) -> EventualCheckpointInfo:
    """What is seen of the one node, once it is what is wanted."""
    deadline_s = time.monotonic() + LONG_S
    while True:
        for found in eventual_checkpoints(location):
            if is_it(found):
                return found
        assert query.isActive
        assert time.monotonic() < deadline_s, eventual_checkpoints(location)
        time.sleep(0.02)  # Restart points are noted now and then; nothing tells of it.


@pytest.mark.parametrize("scheme", ["", "local://"])
def test_extent_tuples_and_recovery_time_are_seen_from_outside(tmp_path: Path, scheme: str) -> None:
    root, location = str(tmp_path / "log"), f"{scheme}{tmp_path}/location"
    ingest_log.prepare(root, META)
    with without_spark() as session:
        query = started(session, root, location, None)
        put(root, 0, 1_000)
        found = seen(query, location, lambda info: info.tuples)
        query.stop()
    assert found.node == "counts[0]"
    assert not found.problem
    assert found.footprints == 1, "the tail of the one window"
    assert found.records > 0
    assert found.extent_bytes > 0
    assert found.predicted_recovery_ms > 0


def test_of_an_embedded_store_what_is_not_in_it_is_seen(tmp_path: Path) -> None:
    root, location = str(tmp_path / "log"), str(tmp_path / "location")
    ingest_log.prepare(root, META)
    with without_spark() as session:
        query = started(session, root, location, EMBEDDED)
        put(root, 0, 1_000)
        found = seen(query, location, lambda info: info.tuples)
        query.stop()
    assert "in an EmbeddedStore only its query reads it" in found.problem
    assert (found.footprints, found.records, found.extent_bytes) == (0, 0, 0)
    assert found.predicted_recovery_ms > 0
