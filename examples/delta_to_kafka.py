"""A Delta table in, a Kafka topic out, in which each row is once for readers of committed records.

pip install 'holdfast-streaming[avro,delta]'
python examples/delta_to_kafka.py /tmp/orders/table broker:9092 http://registry:8081 /tmp/told
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast as hf


def told(table: str, servers: str, registry: str) -> hf.Dataflow:
    """The large orders of a table, as Avro; the registry gets the schema from the columns."""
    flow = hf.Dataflow("large-orders")
    orders = flow.source_delta(table, time="at", ends=True)  # Without it, later versions come too.
    orders.filter("amount >= 400").sink_kafka(
        "told",
        servers=servers,
        topic="large-orders",
        format="avro",
        registry=registry,
        key="country",
    )
    return flow


def run(spark: SparkSession, table: str, servers: str, registry: str, folder: Path) -> None:
    """Tell what is there."""
    query = told(table, servers, registry).start(
        spark, checkpointLocation=str(folder / "checkpoints")
    )
    query.awaitTermination()
    print(f"{query.lastProgress['numOutputRows']} large orders told")


if __name__ == "__main__":
    table, servers, registry, folder = sys.argv[1:]
    run(hf.session("large-orders"), table, servers, registry, Path(folder))
