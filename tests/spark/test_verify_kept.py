"""`verify` of queries of which the oldest input was removed: it says what it could not compare."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.queues.retention import Retention
from holdfast.driver import kept_part
from holdfast.errors import UnsupportedError
from holdfast.shell.storage.ingest_trimming import IngestTrimmer
from holdfast.shell.storage.paths import ingest_path

ROWS = 1_000


def put(folder: Path, number: int) -> None:
    """A row a millisecond, a second each file."""
    folder.mkdir(exist_ok=True)
    ids = pa.array(range(number * ROWS, (number + 1) * ROWS))
    times = pa.array([1_700_000_000_000_000 + n.as_py() * 1_000 for n in ids])
    at = times.cast(pa.timestamp("us", "UTC"))
    draft = folder.parent / "draft"
    parquet.write_table(pa.table({"at": at, "id": ids}), draft)
    draft.rename(folder / f"{number}.parquet")


def test_what_is_left_is_compared_and_what_is_not_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "q")
    put(tmp_path / "in", 0)
    flow = hf.Dataflow("kept")
    rows = flow.source_files(str(tmp_path / "in"), time="at", name="rows", delay="100 milliseconds")
    windows = rows.window(hf.sliding("500 milliseconds", "250 milliseconds"))
    windows.aggregate("count(*) AS n", name="counts").sink("counts")
    rows.key_by("id").aggregate("count(*) AS n", emit="changes", name="running").sink("running")
    query = flow.start(spark, checkpointLocation=place, retention="for ever")
    for number in range(1, 5):
        put(tmp_path / "in", number)
        query.processAllAvailable()
    query.stop()
    trimmer = IngestTrimmer(ingest_path(place, "rows"), 1, lambda: None)
    assert trimmer.trim(Retention(time_us=1), {(0, 1): 10**9}, 2**60) == 3
    part = query.verify("counts", source="original")
    assert (part.agrees, part.is_identical) == (True, False)
    assert "3000 rows in the commits before 3" in part.removed[0]
    assert 0 < part.expected < 10
    assert "were removed" in part.inputs[0].reason
    with pytest.raises(UnsupportedError, match="running may depend on all of its input"):
        query.verify("running")
    monkeypatch.setattr(kept_part, "_right_from", lambda *_: BEGINNING_US + 1)
    assert not query.verify("counts").agrees, "what was left out would have differed"
