"""However much a round puts out, the records of a log stay so small that readers take them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch
from holdfast.shell.spark import task
from holdfast.shell.storage.logs import open_reader, open_writer


def test_much_is_written_in_many_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_RECORD_BYTES_MAX", 1_000)
    rows = pa.RecordBatch.from_pydict(
        {"s": ["x" * (400 if i < 5 else 3) for i in range(300)], TIME_COLUMN: list(range(300))}
    )
    writer = open_writer(str(tmp_path), rows.schema, "sink[0]", 1, first_id=40)
    task._append(writer, TupleBatch(40, rows, 777, 5))
    task._append(writer, TupleBatch(340, rows.slice(0, 1), 778, 5))
    writer.close()
    reader = open_reader(str(tmp_path), 40)
    records = [record for _ in range(500) for record in reader.poll(max_rows=1)]
    reader.close()
    whole = pa.Table.from_batches([rows, rows.slice(0, 1)])
    assert pa.Table.from_batches([r.batch for r in records]).equals(whole)
    assert records[0].first_id == 40
    assert all(a.first_id + a.count == b.first_id for a, b in pairwise(records))
    assert max(r.batch.nbytes for r in records) < 1_100
    assert [r.boundary_us for r in records[-2:]] == [777, 778]
    assert {r.boundary_us for r in records[:-2]} == {BEGINNING_US}
