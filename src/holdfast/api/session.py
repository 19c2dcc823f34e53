"""A Spark session in which nodes start quickly."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.python.daemon.module": "holdfast.shell.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}


def register(spark: SparkSession) -> None:
    """Make `format("holdfast")` known to a session, with filter push-down; twice does no harm."""
    from holdfast.shell.spark.data_source import register as register_source

    register_source(spark)


def session(name: str = "holdfast", slots: int = 8) -> SparkSession:
    """A local session with `slots` task slots and the warm daemon; an existing one is returned.

    On a cluster, set `spark.python.daemon.module` to `holdfast.shell.spark.daemon` at submission.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(f"local[{slots},8]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    return spark
