"""PyFlink from and into Parquet files: Flink's own format, which its package leaves out.

Documentation: the format's jar is among `pipeline.jars`. It needs Hadoop's classes, which Flink
finds by `HADOOP_CLASSPATH`.
"""

from __future__ import annotations

import os

from contract import read
from pyflink_job import PARQUET, main

if __name__ == "__main__":
    jars = read().jars.split(",")
    os.environ["HADOOP_CLASSPATH"] = os.pathsep.join(jars)  # Java starts with the first table.
    main(PARQUET)
