"""Parquet files in, a Delta table out, which any Delta reader sees with each row once.

pip install 'holdfast-streaming[delta]'
python examples/files_to_delta.py /tmp/orders
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import holdfast as hf

ORDERS = 10_000


def make_orders(folder: Path) -> None:
    """Some orders; in earnest somebody else writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    at = [1_700_000_000_000_000 + number * 250_000 for number in range(ORDERS)]
    orders = {
        "at": pa.array(at, pa.timestamp("us", tz="UTC")),
        "country": [("de", "fr", "nl")[number % 3] for number in range(ORDERS)],
        "amount": [number % 500 for number in range(ORDERS)],
    }
    pq.write_table(pa.table(orders), folder / "orders.parquet")


def large_orders(folder: Path) -> hf.Dataflow:
    """The large ones, by country."""
    flow = hf.Dataflow("large-orders")
    orders = flow.source_files(str(folder / "orders"), time="at", trigger={"availableNow": True})
    orders.filter("amount >= 400").sink_delta(str(folder / "large"), partition_by="country")
    return flow


def run(spark: SparkSession, folder: Path) -> None:
    """Work off what is there; a later run goes on with the files that have come since."""
    if not (folder / "orders").exists():
        make_orders(folder / "orders")
    query = large_orders(folder).start(spark, checkpointLocation=str(folder / "checkpoints"))
    query.awaitTermination()
    table = DeltaTable(folder / "large")
    print(f"version {table.version()}, {table.to_pyarrow_table().num_rows} large orders")


if __name__ == "__main__":
    run(hf.session("large-orders"), Path(sys.argv[1]))
