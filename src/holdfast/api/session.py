"""A Spark session in which nodes start quickly."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.python.daemon.module": "holdfast.shell.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}


def session(name: str = "holdfast", slots: int = 8) -> SparkSession:
    """A local session with `slots` task slots and the warm daemon; an existing one is returned.

    The daemon starts in the background: it takes seconds, and the first query need not wait.
    On a cluster, set `spark.python.daemon.module` to `holdfast.shell.spark.daemon` at submission.
    """
    from pyspark.sql import SparkSession

    from holdfast.shell.spark.data_source import register

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(f"local[{slots},8]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    register(spark)
    context = spark.sparkContext
    threading.Thread(target=_warm_up, args=(context,), name="holdfast-warm-up", daemon=True).start()
    return spark


def _warm_up(context: SparkContext) -> None:
    """Have Spark start its Python daemon."""
    with contextlib.suppress(Exception):  # The session may be stopped at any time.
        context.setJobGroup("holdfast/warm-up", "Holdfast starts its Python daemon")
        context.parallelize([0], 1).foreach(lambda _: None)
