"""Write an archive of the classes that Spark loads: later JVMs map it, and need not read all jars.

Usage: class_archive.py FILE. A JVM takes it by -XX:SharedArchiveFile=FILE; where it does not fit,
the JVM goes without.
"""

import os
import sys
import tempfile
from pathlib import Path

archive = Path(sys.argv[1])
archive.parent.mkdir(parents=True, exist_ok=True)
options = os.environ.get("SPARK_SUBMIT_OPTS", "")
os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -XX:ArchiveClassesAtExit={archive}"

from pyspark.sql import functions as f  # noqa: E402

from holdfast.driver.session import session  # noqa: E402

spark = session("classes")
with tempfile.TemporaryDirectory() as folder:
    rows = spark.range(1_000).select(
        "id",
        (f.col("id") % 7).alias("k"),
        f.col("id").cast("string").alias("s"),
        f.timestamp_micros("id").alias("time"),
    )
    rows.write.parquet(f"{folder}/rows")
    read = spark.read.parquet(f"{folder}/rows")
    windows = f.window("time", "10 milliseconds")
    counts = read.groupBy(windows, "k").agg(f.count("*"), f.sum("id"), f.max("s"))
    read.join(counts, "k", "left").orderBy("id").limit(10).toPandas()
    read.union(read).where("k > 2").mapInArrow(lambda batches: batches, read.schema).collect()
    followed = spark.readStream.schema(read.schema).parquet(f"{folder}/rows")
    writing = followed.groupBy("k").count().writeStream.outputMode("complete")
    writing.format("memory").queryName("counts").trigger(availableNow=True).start().awaitTermination()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()  # So its JVM ends, and writes the archive.
sys.exit(gateway.proc.wait(timeout=120))
