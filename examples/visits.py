"""A class with timers, written for PySpark: the pages that somebody looks at in one visit.

    python examples/visits.py /tmp/visits

`Visits` runs unchanged in Structured Streaming and in Holdfast. A visit ends when its user has done
nothing for a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import holdfast as hf

PAUSE_MS = 60_000
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Visits(StatefulProcessor):
    """Keeps the pages of a visit, and a timer at its end."""

    def init(self, handle: Any) -> None:
        """A list of pages, and when the last one was looked at."""
        self.handle = handle
        self.pages = handle.getListState("pages", "page STRING")
        self.last = handle.getValueState("last", "ms BIGINT")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        """Have the visit end a minute after its last page; rows may be of several visits."""
        for row in sorted(rows, key=lambda row: row.ms):
            (last,) = self.last.get() or (row.ms,)
            if row.ms > last + PAUSE_MS:
                yield self.ended(key)
            self.pages.appendValue((row.page,))
            self.last.update((row.ms,))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(self.last.get()[0] + PAUSE_MS)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """The visit is over."""
        yield self.ended(key)

    def ended(self, key: Any) -> Row:
        """What there is to say of a visit."""
        pages = [page for (page,) in self.pages.get()]
        self.pages.clear()
        self.last.clear()
        return Row(user=key[0], pages=len(pages), first=pages[0])


def make_clicks(spark: SparkSession, folder: Path) -> None:
    """Some clicks; each of a hundred users comes back every ten minutes, for up to five pages."""
    clicks = spark.sql("""
        SELECT timestamp_millis(ms) AS at, ms, concat('user ', user) AS user,
            concat('page ', page) AS page
        FROM (
            SELECT id % 100 AS user, page, 1700000000000 + id DIV 100 * 600000 + page * 7000 AS ms
            FROM range(1000) LATERAL VIEW explode(sequence(0, id % 5)) AS page
        )
    """)
    clicks.coalesce(1).sortWithinPartitions("at").write.parquet(str(folder / "clicks"))


def visits(spark: SparkSession, folder: Path) -> DataFrame:
    """The query, as it has always been."""
    clicks = spark.readStream.schema("at TIMESTAMP, ms BIGINT, user STRING, page STRING")
    marked = clicks.parquet(str(folder / "clicks")).withWatermark("at", "1 second")
    return marked.groupBy("user").transformWithState(
        Visits(), "user STRING, pages INT, first STRING", "Append", "EventTime"
    )


def run(spark: SparkSession, folder: Path) -> None:
    """Run the class in both. Neither tells of the last visits: more clicks may still come."""
    if not (folder / "clicks").exists():
        make_clicks(spark, folder)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    query = visits(spark, folder)

    before = query.writeStream.format("memory").queryName("visits_before")
    before.trigger(availableNow=True).start().awaitTermination()

    flow = hf.Dataflow.from_dataframe(query, name="visits", trigger={"availableNow": True})
    now = flow.start(spark, checkpointLocation=str(folder / "checkpoints"))
    now.awaitTermination()

    found = now.to_dataframe()
    found.groupBy("pages").count().orderBy("pages").show()
    rest = spark.table("visits_before").exceptAll(found).count()
    print(f"{found.count()} visits; {rest} of Structured Streaming's are not among them")


if __name__ == "__main__":
    run(hf.session("visits"), Path(sys.argv[1]))
