"""A Kafka topic of Avro records in, a Delta table out, each record once.

pip install 'holdfast-streaming[avro,delta]'
python examples/kafka_avro_to_delta.py broker:9092 http://registry:8081 /tmp/orders
"""

from __future__ import annotations

import sys
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

import holdfast as hf


def copied(servers: str, registry: str, folder: Path) -> hf.Dataflow:
    """Orders as they are; what is no record of a known schema is put aside."""
    flow = hf.Dataflow("orders")
    orders = flow.source_kafka(
        servers=servers,
        topic="orders",
        format="avro",
        registry=registry,  # It says which columns there are.
        time="at",
        end="latest",  # What there is at the first start; without it the query goes on.
        dead_letters="undecodable",
    )
    orders.sink_delta(str(folder / "table"), name="table", partition_by="country")
    return flow


def run(spark: SparkSession, servers: str, registry: str, folder: Path) -> None:
    """Copy what is there."""
    query = copied(servers, registry, folder).start(
        spark, checkpointLocation=str(folder / "checkpoints")
    )
    query.awaitTermination()
    table = DeltaTable(folder / "table").to_pyarrow_table()
    print(f"{table.num_rows} orders of {', '.join(sorted(set(table['country'].to_pylist())))}")
    query.to_dataframe("undecodable").select("partition", "offset", "error").show(truncate=False)


if __name__ == "__main__":
    run(hf.session("orders"), sys.argv[1], sys.argv[2], Path(sys.argv[3]))
