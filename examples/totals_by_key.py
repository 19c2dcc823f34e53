"""Totals per customer in a Delta table: one row for each, replaced whenever it changes.

pip install 'holdfast-streaming[delta]'
python examples/totals_by_key.py /tmp/totals
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import holdfast as hf

ORDERS = 5_000


def make_orders(folder: Path, day: int) -> None:
    """A day's orders; in earnest somebody else writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(day * ORDERS, (day + 1) * ORDERS)
    orders = {
        "at": pa.array([1_700_000_000_000_000 + n * 250_000 for n in numbers],
                       pa.timestamp("us", tz="UTC")),
        "customer": [n % 97 for n in numbers],
        "amount": [n % 500 for n in numbers],
    }  # fmt: skip
    pq.write_table(pa.table(orders), folder / f"day-{day}.parquet")


def totals(folder: Path) -> hf.Dataflow:
    """What each customer has spent so far, and how many customers have as many orders."""
    flow = hf.Dataflow("totals")
    orders = flow.source_files(str(folder / "orders"), time="at", trigger={"availableNow": True})
    per_customer = orders.key_by("customer").aggregate(
        "count(*) AS orders", "sum(amount) AS total", emit="changelog", name="totals"
    )
    per_customer.sink_delta(str(folder / "totals"))
    per_customer.key_by("orders").aggregate(
        "count(*) AS customers", emit="changelog", name="spread"
    ).sink("spread")
    return flow


def run(spark: SparkSession, folder: Path) -> None:
    """Work off two days; the second run goes on with the totals of the first one."""
    for day in range(2):
        make_orders(folder / "orders", day)
        query = totals(folder).start(spark, checkpointLocation=str(folder / "checkpoints"))
        query.awaitTermination()
    table = DeltaTable(folder / "totals").to_pyarrow_table()
    print(f"{table.num_rows} customers, {sum(table.column('total').to_pylist())} in all")
    query.to_dataframe("spread", as_table=True).orderBy("orders").show()


if __name__ == "__main__":
    run(hf.session("totals"), Path(sys.argv[1]))
