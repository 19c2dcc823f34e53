"""The driver of cluster runs: `spark-submit` begins it, and it takes runs from a folder.

A submitted Python program has no standard input, so words are files, each written under another
name first: `run-<n>.json` asks for a run, `status.json` says what the present one does,
`result-<n>.json` how it went, and `end` ends the driver. What Python logs goes into `python.log`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.protections import (
    ActiveStandby,
    Checkpointed,
    CommunicationInduced,
    Coordinated,
    PassiveStandby,
    Protection,
    Replicated,
    Uncoordinated,
    UpstreamBackup,
)
from holdfast.driver.session import session
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import KINDS, build
from holdfast.nexmark.source import NexmarkSource, counts_of
from holdfast.shell.processes import die_with_parent
from holdfast.shell.spark import executors
from holdfast_chaos.promises import BY_ARRIVAL
from holdfast_chaos.standalone import DISK_VARIABLE
from holdfast_chaos.tap import TappedSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.api.dataflow import Dataflow
    from holdfast.api.streams import Stream
    from holdfast.driver.query import Query

STATUS: Final = "status.json"
END: Final = "end"
LOGGED: Final = "python.log"
_INTERVAL_S: Final = 0.1
_SPEED: Final = 5.0
_TIMEOUT_S: Final = 900.0
_OPTIONS: Final = {
    "spark.holdfast.failuresMax": "1000",
    "spark.holdfast.launchTimeoutMs": "240000",
}
_CHUNKS: Final = EmbeddedStore(copies=2, data_nodes=3, local_directory=f"${DISK_VARIABLE}")
PROTECTIONS: Final[dict[str, Protection]] = {
    "embedded": Checkpointed(interval="500 milliseconds", store=_CHUNKS),
    "folder": Checkpointed(interval="500 milliseconds"),
    "upstream": UpstreamBackup(),
    "active": ActiveStandby(strict=True),
    "passive": PassiveStandby(strict=True),
    "replicated": Replicated(replicas=2, delay="5 seconds"),
    "aligned": Coordinated(interval="500 milliseconds"),
    "unaligned": Coordinated(interval="500 milliseconds", aligned=False),
    "uncoordinated": Uncoordinated(interval="500 milliseconds", jitter="100 milliseconds"),
    "induced": CommunicationInduced(
        interval="500 milliseconds", jitter="100 milliseconds", scope="all"
    ),
}
"""Of all units. `embedded`: checkpoints in data nodes on the workers' own disks."""
TOGETHER: Final = ("aligned", "unaligned", "uncoordinated", "induced")
"""With these the query reads its events from two sources, as they come."""
CHECKPOINTED: Final = ("embedded", "folder", *TOGETHER)


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """One run of a NexMark query.

    Attributes:
        query: Which; one of `BY_ARRIVAL` reads each kind of event from two sources, as they come.
        protection: One of `PROTECTIONS`.
        seconds: For how long there is input.
        origin_us: When it begins.
        location: The checkpoint location.
        emit: For q12.
        rate: Tuples per second.
        seed: Of the generator.
        parallelism: Instances of every unit.
        verifies: Whether the driver compares the output with Spark SQL's.
        is_standby: Whether a driver waits as long as another one leads.
        tap: The file of a `Tap` that says how far the sources may flow; empty: to their end.
    """

    query: str
    protection: str
    seconds: float
    origin_us: int
    location: str
    emit: str = "changes"
    rate: float = 10_000.0
    seed: int = 1
    parallelism: int = 1
    verifies: bool = False
    is_standby: bool = False
    tap: str = ""

    @property
    def is_by_arrival(self) -> bool:
        """Whether the order of what comes out is not known."""
        return self.query in BY_ARRIVAL

    @property
    def sink(self) -> str:
        """The name of the only sink: that of the NexMark query."""
        return BY_ARRIVAL.get(self.query, self.query)

    def flow(self) -> Dataflow:
        """The dataflow; its event time runs ahead of the clock, so that windows close meanwhile."""
        if not self.is_by_arrival:
            emit = self.emit if self.sink == "q12" else "final"
            return build(self.sink, self._source, emit=emit)

        def both(flow: Dataflow, kind: str) -> Stream:
            first, second = (self._source(flow, kind, half) for half in (1, 2))
            return first.union(second, order="arrival")

        return build(self.sink, both)

    def _source(self, flow: Dataflow, kind: str, half: int = 0) -> Stream:
        """The source of a kind of event, or one of its two."""
        counts, parts = self._counts(), 2 if half else 1
        read = sum(counts[each] for each in KINDS[self.sink])
        events_per_second = max(1, int(self.rate * self._events() / read / _SPEED))
        config = NexmarkConfig(seed=self.seed + half, events_per_second=events_per_second)
        rate = self.rate * counts[kind] / read / parts
        source = NexmarkSource(kind, counts[kind] // parts, config, rate, self.origin_us)
        name = f"{kind}s-{half}" if half else f"{kind}s"
        unit = "ingest" if len(KINDS[self.sink]) == 1 and not half else name
        tapped = TappedSource(source, self.tap) if self.tap else source
        return flow.source_generator(tapped, name=name, unit=unit, partitions=self.parallelism)

    @property
    def most(self) -> int:
        """How many tuples the largest source has."""
        counts = self._counts()
        return max(counts[kind] for kind in KINDS[self.sink]) // (1 + self.is_by_arrival)

    def _events(self) -> int:
        """How many there are of all kinds."""
        counts = counts_of(5_000)
        read = sum(counts[kind] for kind in KINDS[self.sink]) / 5_000
        return max(50, int(self.rate * self.seconds / read) // 50 * 50)

    def _counts(self) -> dict[str, int]:
        return counts_of(self._events())


def put(path: Path, value: object) -> None:
    """Write a word as a whole."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    draft.write_text(json.dumps(value, default=str))
    draft.rename(path)


def serve(spark: SparkSession, folder: Path) -> None:
    """Take runs until told to end."""
    number = 0
    while True:
        wanted = folder / f"run-{number}.json"
        if (folder / END).exists():
            return
        if not wanted.exists():
            put(folder / STATUS, {"run": number, "is_active": False})
            time.sleep(_INTERVAL_S)  # Its master puts files, and has no other way to call.
            continue
        run = ClusterRun(**json.loads(wanted.read_text()))
        put(folder / f"result-{number}.json", _result(spark, folder, number, run))
        number += 1


def _result(spark: SparkSession, folder: Path, number: int, run: ClusterRun) -> dict[str, Any]:
    flow = run.flow()
    result: dict[str, Any] = {"run": asdict(run)}
    query = None
    try:
        query = flow.start(
            spark,
            checkpointLocation=run.location,
            protection=PROTECTIONS[run.protection],
            parallelism=run.parallelism,
            options=_OPTIONS,
            standby=run.is_standby,
        )
        _follow(query, folder, number)
        verified = _verified(query) if run.verifies else {}
    except Exception as error:  # A run that fails is what we look for, whatever it says.
        return {**result, **_seen(query), "error": f"{type(error).__name__}: {error}"[:4000]}
    finally:
        if query is not None:
            query.stop()
    return {
        **result,
        **_seen(query),
        "error": None,
        **verified,
    }


def _verified(query: Query) -> dict[str, Any]:
    found = query.verify()
    return {
        "is_identical": found.is_identical,
        "lost": found.lost,
        "doubled": found.doubled,
        "gaps": found.gaps,
        "output_tuples": found.actual,
        "sample": found.sample,
    }


def _seen(query: Query | None) -> dict[str, Any]:
    if query is None:
        return {"failures": [], "recoveries": [], "notes": [], "tentative": 0}
    units = [block["consistency"] for block in query.lastProgress["units"].values()]
    return {
        "failures": query.failures,
        "recoveries": query.recoveries,
        "notes": query.status["notes"],
        "tentative": sum(unit["tentativeRows"] or 0 for unit in units),
    }


def _follow(query: Query, folder: Path, number: int) -> None:
    """Say what happens until the query ends. Raises what it raises."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    while not query.awaitTermination(_INTERVAL_S):
        status, progress = query.status, query.lastProgress
        word = {
            "run": number,
            "is_active": True,
            "input_tuples": progress["numInputRows"],
            "output_tuples": progress["numOutputRows"],
            "recovered": [recovery["node"] for recovery in query.recoveries],
            "failures": len(progress["failures"]),
            "checkpoints": len(query.checkpoints),
            "nodes": {name: node["replicas"] for name, node in status["nodes"].items()},
            "data_nodes": status["dataNodes"],
            "notes": status["notes"],
        }
        put(folder / STATUS, word)
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"still running after {_TIMEOUT_S:.0f} s: {json.dumps(status)}")


def main() -> None:
    """The entry point: the folder is the only argument."""
    die_with_parent()  # Spark's JVM has begun this process, and may be killed alone.
    logging.basicConfig(level=logging.WARNING, filename=Path(sys.argv[1], LOGGED))
    logging.getLogger(executors.__name__).setLevel(logging.INFO)
    spark = session("holdfast-cluster")
    spark.sparkContext.setLogLevel("INFO")  # Into a file, for whoever wonders afterwards.
    try:
        serve(spark, Path(sys.argv[1]))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
