"""The metrics of all queries in Spark's own metrics system, for the sinks that Spark has.

Nodes are Python processes. Spark gives those no way to the metrics of their executor's JVM: only
the driver's can be reached from Python. The driver knows what nodes report, so all of it stands
among the driver's metrics, as gauges of a source `AccumulatorSource` [Spark's own].
"""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Any, Final

from holdfast.view.metrics import FAMILIES, shown_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from holdfast.driver.query import Query

_LOG = logging.getLogger(__name__)
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_]+")
INTERVAL_S: Final = 10.0


class SparkMetrics:
    """Keeps Spark's metrics system up to date until it is stopped."""

    def __init__(
        self, spark: SparkSession, queries: Callable[[], Iterable[Query]], interval_s: float
    ) -> None:
        """Use `metrics_to_spark`."""
        context = spark.sparkContext
        self._jvm: Any = context._jvm
        jsc: Any = context._jsc
        self._sc: Any = jsc.sc()
        self._queries = queries
        self._interval_s = interval_s
        self._values: dict[str, Any] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="holdfast-spark-metrics", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Change them no more."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self._interval_s) and not self._sc.isStopped():
            try:
                self._update()
            except Exception:  # Spark stops, or a query does: nobody's results depend on it.
                if not self._is_over.is_set():
                    _LOG.warning("metrics do not reach Spark this time", exc_info=True)

    def _update(self) -> None:
        values: dict[str, float] = {}
        for query in self._queries():
            shown = shown_of(query)
            for family in FAMILIES:
                for labels, value in family.samples(shown):
                    if value is not None:
                        values[name_of(query.name, family.name, labels)] = value
        self._register([name for name in values if name not in self._values])
        for name, value in values.items():
            self._values[name].setValue(float(value))

    def _register(self, names: list[str]) -> None:
        """Have Spark show gauges of these names."""
        if not names:
            return
        made = {name: self._jvm.org.apache.spark.util.DoubleAccumulator() for name in names}
        sources = self._jvm.org.apache.spark.metrics.source
        source = getattr(getattr(sources, "DoubleAccumulatorSource$"), "MODULE$")
        shown = self._jvm.java.util.HashMap()
        for name, value in made.items():
            shown.put(name, value)
        in_scala = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(shown)
        source.register(self._sc, in_scala)
        self._values.update(made)


def name_of(query: str, family: str, labels: Iterable[str]) -> str:
    """As Spark shows it: the query, the metric and its labels, with `_` for strange characters."""
    return ".".join(_STRANGE.sub("_", part) for part in ("holdfast", query, family, *labels))


def metrics_to_spark(spark: SparkSession, interval_s: float = INTERVAL_S) -> SparkMetrics:
    """Put the metrics of all queries of this process into Spark's metrics system.

    They come out of every sink that Spark's configuration names, e.g. Graphite, JMX or StatsD, as
    metrics of the driver: `AccumulatorSource.holdfast.QUERY.METRIC.LABELS`.

    Args:
        spark: The session whose driver's metrics they become.
        interval_s: Every how many seconds they are renewed.
    """
    from holdfast.driver.listeners import queries

    return SparkMetrics(spark, lambda: queries.active, interval_s)
