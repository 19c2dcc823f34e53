"""Results of all systems in one form, and how they differ."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.core.model.tuples import TupleType, with_time
from holdfast.shell.storage.paths import stream_path
from holdfast.shell.storage.stream_log import StreamLogWriter
from holdfast_bench.peers import rows


def counts(*found: tuple[int, int]) -> pa.Table:
    """Results of Q12: (end of the window in seconds, bids), all of one bidder."""
    ends = [end * 1_000_000 for end, _ in found]
    return pa.table(
        {
            "window_start": [end - 10_000_000 for end in ends],
            "window_end": ends,
            "bidder": [7] * len(found),
            "bids": [bids for _, bids in found],
        }
    )


def test_the_same_rows_in_another_order_are_identical() -> None:
    found, expected = counts((20, 5), (10, 3)), counts((10, 3), (20, 5))
    assert rows.difference(found, expected).is_identical


def test_a_row_missing_is_lost_and_a_row_twice_is_surplus() -> None:
    result = rows.difference(counts((10, 3), (10, 3)), counts((10, 3), (20, 5)))
    assert (result.expected, result.lost, result.surplus) == (2, 1, 1)


def test_a_wrong_count_is_both_lost_and_surplus() -> None:
    result = rows.difference(counts((10, 4)), counts((10, 3)))
    assert (result.lost, result.surplus) == (1, 1)


def test_windows_that_no_event_has_closed_do_not_count() -> None:
    assert rows.closed(counts((10, 3), (20, 5)), 15_000_000).num_rows == 1


def test_decimals_floats_timestamps_and_integers_come_to_the_same() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    at_us = int(at.timestamp()) * 1_000_000
    spark = {"auction": [1], "bidder": [2], "price": [Decimal("90.800")], "date_time": [at]}
    other = {"auction": [1], "bidder": [2], "price": [90.80000000000001], "date_time": [at_us]}
    one, two = (rows.canonical(pa.table(table), "q1") for table in (spark, other))
    assert one.to_pylist() == two.to_pylist()
    assert one.to_pylist()[0]["price"] == 90_800


def test_lines_are_read_once_and_only_when_they_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "part_0"
    output = rows.Lines(str(tmp_path), "q12")
    file.write_text("0,10000000,7,3\n10000000,2000")
    assert [table.to_pylist()[0]["bids"] for table in output.poll()] == [3]
    assert output.poll() == []
    with file.open("a") as more:
        more.write("0000,7,5\n")
    assert [table.to_pylist()[0]["bids"] for table in output.poll()] == [5]


def test_a_header_names_the_columns_and_what_comes_later_needs_none(tmp_path: Path) -> None:
    file = tmp_path / "q12.csv"
    output = rows.Lines(str(tmp_path), "q12")
    file.write_text("window_start,window_end,bidder,bids,time,diff\n0,10000000,7,3,99,1\n")
    assert [table.to_pylist()[0]["bids"] for table in output.poll()] == [3]
    with file.open("a") as more:
        more.write("10000000,20000000,7,5,100,1\n")
    assert [table.to_pylist()[0]["bids"] for table in output.poll()] == [5]


def test_files_being_written_are_not_visible(tmp_path: Path) -> None:
    (tmp_path / ".part-0.inprogress").write_text("0,10000000,7,3\n")
    output = rows.Parts(str(tmp_path), "q12")
    assert output.poll() == []
    (tmp_path / ".part-0.inprogress").rename(tmp_path / "part-0")
    assert len(output.poll()) == 1
    assert output.poll() == []


def test_a_file_of_spark_counts_once_its_log_has_it(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    pq.write_table(counts((10, 3)), tmp_path / "part-0.parquet")
    output = rows.SparkFiles(str(tmp_path), "q12")
    assert output.poll() == []
    entry = json.dumps({"path": f"file://{tmp_path}/part-0.parquet"})
    (log / "0").write_text(f"v1\n{entry}")
    assert [table.num_rows for table in output.poll()] == [1]
    (log / "9.compact").write_text(f"v1\n{entry}")
    assert output.poll() == []


def test_a_log_that_was_only_glanced_at_says_when_each_record_became_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr("holdfast_bench.peers.rows.time.time", lambda: now_s)
    output = rows.Log(str(tmp_path), "q12")
    assert not output.glance(), "there is no log yet"
    schema = with_time(counts((10, 1)).schema)
    place = stream_path(str(tmp_path), "q12", 0)
    with StreamLogWriter(place, schema, "q12", 1, segment_bytes=1_000) as log:
        seen_s = []
        for bids in range(6):
            table = counts((10, bids), (20, bids))
            batch = table.append_column(schema.field(4), table.column(1)).to_batches()[0]
            log.append(TupleType.STABLE, log.next_id, batch, 0, 0)
            if bids % 2:  # Two records become visible at once.
                now_s += 1
                assert output.glance()
                assert not output.glance()
                seen_s += [now_s, now_s]
        log.append(TupleType.STABLE, log.next_id, batch, 0, 0)
    assert len(list(Path(place).glob("*.seg"))) > 1
    found = output.glanced_at()
    assert [at_s for _, at_s in found] == seen_s, "the last one was never seen"
    assert [table.column("bids").to_pylist() for table, _ in found] == [[n, n] for n in range(6)]
    assert found[0][0].column_names == list(rows.COLUMNS["q12"])
