"""A Spark session in which nodes start quickly."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.python.daemon.module": "holdfast.shell.spark.daemon",
    "spark.locality.wait": "500ms",
    "spark.decommission.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}

_LOGGERS_OF_LOST_TASKS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)

_ENVIRONMENT_OF_SQL = {"SPARK_SIMPLIFIED_TRACEBACK": "1"}
"""What Spark SQL's Python workers find set. Spark has a daemon for each set of variables, so that
nodes and Python in queries share one only if these are set for both."""

_KERNELS_OF_THE_OTHER_END: Final = "holdfast.core.operators.bsort"

LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def _submitted_settings() -> dict[str, str]:
    """What `spark-submit` was told, if it has begun this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def register(spark: SparkSession) -> None:
    """Make `format("holdfast")` known to a session, with filter push-down; twice does no harm."""
    from holdfast.shell.spark.data_source import register as register_source

    register_source(spark)


def session(name: str = "holdfast", slots: int = 8) -> SparkSession:
    """A session with the warm daemon; an existing one is returned.

    The daemon starts in the background: it takes seconds, and the first query need not wait.
    Begun by `spark-submit`, it is on the master named there, and what is set there holds; otherwise
    it is a local one with `slots` task slots. `format("holdfast")` is found by Spark itself when it
    is first asked for (see the package `pyspark_holdfast`): to register it here takes seconds more.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    submitted = _submitted_settings()
    settings = SETTINGS
    if submitted.get("spark.master", "local").startswith("local"):
        settings = {"spark.master": f"local[{slots},8]"} | LOCAL_SETTINGS | SETTINGS
    settings = {key: value for key, value in settings.items() if key not in submitted}
    settings["spark.app.name"] = name
    threading.Thread(target=_import_ahead, name="holdfast-import", daemon=True).start()
    # The daemon takes longer than the rest of the session: it is begun as soon as it can be.
    context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    context.environment.update(_ENVIRONMENT_OF_SQL)
    threading.Thread(target=_warm_up, args=(context,), name="holdfast-warm-up", daemon=True).start()
    spark: SparkSession = SparkSession.builder.config(map=settings).getOrCreate()
    if settings.keys() >= {"spark.master", "spark.log.level"}:
        _say_less_of_lost_tasks(spark)
    return spark


def _say_less_of_lost_tasks(spark: SparkSession) -> None:
    """In local mode Spark prints a page for each task that dies, before it starts it again.

    A node is replaced then, which the driver says in one line. Where nothing replaces a task, its
    job fails, and raises what Spark would have printed.
    """
    jvm: Any = spark.sparkContext._jvm
    log4j = jvm.org.apache.logging.log4j
    for logger in _LOGGERS_OF_LOST_TASKS:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)


def _import_ahead() -> None:
    """Import what a dataflow needs while Java starts; whoever needs it sooner waits for it.

    The first time, kernels are compiled, for half a minute. The daemon does so in the order of its
    imports, so this begins at the other end: each then finds what the other has compiled.
    """
    with contextlib.suppress(Exception):  # Whoever needs it is told.
        importlib.import_module(_KERNELS_OF_THE_OTHER_END)
        importlib.import_module("holdfast.api.dataflow")
        importlib.import_module("holdfast.driver.starting")


def _warm_up(context: SparkContext) -> None:
    """Have Spark start its Python daemon."""
    with contextlib.suppress(Exception):  # The session may be stopped at any time.
        context.setJobGroup("holdfast/warm-up", "Holdfast starts its Python daemon")
        context.parallelize([0], 1).foreach(lambda _: None)
