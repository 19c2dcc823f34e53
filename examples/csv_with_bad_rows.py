"""CSV files in which some lines are bad: good ones are counted, bad ones put aside.

python examples/csv_with_bad_rows.py /tmp/readings
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast as hf

READINGS = """\
at,sensor,celsius
2026-11-25T08:00:00Z,cellar,11.5
2026-11-25T08:00:10Z,attic,n/a
2026-11-25T08:00:20Z,cellar,11.7
yesterday,attic,19.0
2026-11-25T08:01:00Z,attic,19.5
"""


def warmest(folder: Path) -> hf.Dataflow:
    """The warmest reading of each sensor and minute."""
    flow = hf.Dataflow("warmest")
    readings = flow.source_files(
        str(folder / "in"),
        format="csv",
        options={"header": "true"},
        schema="at TIMESTAMP, sensor STRING, celsius DOUBLE",
        time="at",
        name="readings",
        ends=True,
        dead_letters="bad",
    )
    minutes = readings.key_by("sensor").window(hf.tumbling("1 minute"))
    minutes.aggregate("max(celsius) AS celsius", name="warmest").sink("warmest")
    return flow


def run(spark: SparkSession, folder: Path) -> None:
    """Run it to its end, and show both."""
    (folder / "in").mkdir(parents=True, exist_ok=True)
    (folder / "in" / "readings.csv").write_text(READINGS)
    query = warmest(folder).start(spark, checkpointLocation=str(folder / "checkpoints"))
    query.awaitTermination()
    query.to_dataframe("warmest").show()
    query.to_dataframe("bad").show(truncate=False)


if __name__ == "__main__":
    run(hf.session("warmest"), Path(sys.argv[1]))
