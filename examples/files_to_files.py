"""Parquet files in, Parquet files out: fares per zone and hour.

    python examples/files_to_files.py /tmp/fares

Kill the driver while it runs, or one of its nodes, and start it again: each fare counts once.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import holdfast as hf

TRIPS = 20_000
FILES = 4


def make_trips(folder: Path) -> None:
    """Some trips; in earnest somebody else writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(FILES):
        numbers = range(file * TRIPS, (file + 1) * TRIPS)
        picked_up = [1_700_000_000_000_000 + number * 1_000_000 for number in numbers]
        trips = {
            "picked_up": pa.array(picked_up, pa.timestamp("us", tz="UTC")),
            "zone": [f"zone {number % 7}" for number in numbers],
            "fare": [5.0 + number % 40 for number in numbers],
        }
        pq.write_table(pa.table(trips), folder / f"trips-{file}.parquet")


def fares(folder: Path) -> hf.Dataflow:
    """What to do with them."""
    flow = hf.Dataflow("fares")
    trips = flow.source_files(str(folder / "trips"), time="picked_up", ends=True)
    hours = trips.key_by("zone").window(hf.tumbling("1 hour"))
    hourly = hours.aggregate("count(*) AS trips", "sum(fare) AS fares", name="hourly")
    hourly.sink_files(str(folder / "hourly"), partition_by="zone", every="1 second")
    return flow


def run(spark: SparkSession, folder: Path) -> None:
    """Run it to its end, and read the result as anybody would."""
    if not (folder / "trips").exists():
        make_trips(folder / "trips")
    query = fares(folder).start(spark, checkpointLocation=str(folder / "checkpoints"))
    query.awaitTermination()
    spark.read.parquet(str(folder / "hourly")).orderBy("window_start", "zone").show()


if __name__ == "__main__":
    run(hf.session("fares"), Path(sys.argv[1]))
