"""Events released chunk by chunk, and how late results are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast_bench.peers.paced import TICK_S, Follower, Staged, stage


class Given:
    """An output that puts out what it is given."""

    def __init__(self, *tables: pa.Table) -> None:
        self._tables = list(tables)

    def poll(self) -> list[pa.Table]:
        """All at once."""
        found, self._tables = self._tables, []
        return found


def staged(tmp_path: Path, query: str = "q12", *, is_final: bool = True) -> Staged:
    """Two seconds of events."""
    return stage(query, "parquet", 1_840, 2.0, tmp_path, is_final=is_final)


def test_a_chunk_holds_the_events_of_one_tick(tmp_path: Path) -> None:
    paced = staged(tmp_path)
    assert paced.chunks == 40
    paced.release()
    paced.release()
    files = sorted(Path(paced.inputs["bid"]).iterdir())
    assert len(files) == 2
    times_us = pq.read_table(files[1]).column("date_time").cast(pa.int64()).to_pylist()
    tick_us = int(TICK_S * 1e6)
    since = [time_us - paced.config.base_time_us for time_us in times_us]
    assert tick_us <= min(since) <= max(since) < 2 * tick_us
    assert paced.closed_us == times_us[-1]


def test_a_window_waits_for_the_chunk_with_the_first_event_beyond_it(tmp_path: Path) -> None:
    paced = staged(tmp_path)
    end_us = paced.config.base_time_us + 1_000_000
    result = pa.table({"window_end": [end_us]})
    assert paced.chunk_of(paced.cause_us(result)).tolist() == [20]


def test_a_match_waits_for_its_auction(tmp_path: Path) -> None:
    paced = staged(tmp_path, "q3", is_final=False)
    assert paced.inputs.keys() == {"person", "auction"}
    paced.release()
    auctions = pq.read_table(next(Path(paced.inputs["auction"]).iterdir()))
    result = pa.table({"id": auctions.column("id")})
    expected = auctions.column("date_time").cast(pa.int64()).to_pylist()
    assert paced.cause_us(result).tolist() == expected


def test_a_match_in_a_window_waits_for_its_person_its_auction_or_the_end(tmp_path: Path) -> None:
    paced = staged(tmp_path, "q8", is_final=False)
    paced.release()
    paced.release()
    kinds = ("person", "auction")
    read = {kind: pq.read_table(paced.inputs[kind]).sort_by("id") for kind in kinds}
    times_us = {kind: table.column("date_time").cast(pa.int64()) for kind, table in read.items()}
    first, last = read["person"].column("id")[0], read["person"].column("id")[-1]
    ids = [first, last]
    auctions = [read["auction"].column("id")[-1], read["auction"].column("id")[0]]
    end_us = paced.config.base_time_us + 10_000_000
    matches = pa.table({"id": ids, "auction": auctions, "window_end": [end_us] * 2})
    assert paced.cause_us(matches).tolist() == [
        times_us["auction"][-1].as_py(),
        times_us["person"][-1].as_py(),
    ]
    paced.is_final = True
    assert paced.cause_us(matches).tolist() == [end_us] * 2


def test_latency_counts_from_the_release_of_the_cause(tmp_path: Path) -> None:
    paced = staged(tmp_path)
    for _ in range(3):
        paced.release()
    paced.released_at_s[1] -= 5_000.0
    causes = [paced.config.base_time_us + tick * 50_000 for tick in (0, 1, 30)]
    follower = Follower(Given(pa.table({"window_end": causes})), paced)
    follower.poll()
    (latency_s,) = follower.latencies_s(first_chunk=1)
    assert 5_000.0 <= latency_s < 10_000.0
    assert follower.newest_chunk == 30
    assert not follower.glance(), "an output that cannot be glanced at is read at once"


def test_what_was_glanced_at_counts_from_then(tmp_path: Path) -> None:
    paced = staged(tmp_path)
    paced.release()
    paced.released_at_s[0] = 1_000.0
    given = Given()
    given.glance = lambda: True  # type: ignore[attr-defined]
    table = pa.table({"window_end": [paced.config.base_time_us]})
    given.glanced_at = lambda: [(table, 1_003.0)]  # type: ignore[attr-defined]
    follower = Follower(given, paced)
    assert follower.glance()
    assert follower.latencies_s(first_chunk=0).tolist() == [3.0]
