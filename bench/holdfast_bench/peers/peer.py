"""The peers: how each is had, what it reads and writes, and what is odd about it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

QUERIES: Final = ("q1", "q3", "q8", "q12")


@dataclass(frozen=True, slots=True)
class Peer:
    """One system under the same contract as all others; see `jobs/contract.py`.

    Attributes:
        name: As `--peer` takes it.
        title: For people.
        job: The script in `jobs/`.
        input: Format of its input: `parquet`, `csv`, `bare-csv` (no header) or `log`.
        output: How its output is read, a key of `rows.OUTPUTS`.
        requirements: Of its environment, pinned; none means the package's own.
        jars: Artifacts that it needs beside it, as Maven names them: `group:artifact:version`.
        needs_warm_up: Whether it compiles while it runs.
        tuples_max: In the race it reads no more than the first so many events, as more would take
            it many minutes.
        restarts_itself: Whether it is fault-tolerant by the process: only those that its script
            names are killed, and nobody starts it again.
        closes: Whether its windowed join puts out matches when the window has closed; others do as
            they find them.
        ends: Whether it ends when its input does; others are ended when their output is whole.
        refuses: Queries that it cannot do, and why.
        absence: Why it does not run at all; empty if it does.
        quirks: What a reader of its figures should know.
    """

    name: str
    title: str
    job: str = ""
    input: str = "parquet"
    output: str = "parts"
    requirements: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    needs_warm_up: bool = False
    tuples_max: int = 1 << 40
    restarts_itself: bool = False
    closes: bool = False
    ends: bool = True
    refuses: dict[str, str] = field(default_factory=dict)
    absence: str = ""
    quirks: tuple[str, ...] = ()

    def why_not(self, query: str) -> str:
        """Why it does not run a query; empty if it does."""
        return self.absence or self.refuses.get(query, "")

    def is_final(self, query: str) -> bool:
        """Whether results come when their window has closed."""
        return query == "q12" or (query == "q8" and self.closes)


HOLDFAST: Final = Peer(
    "holdfast",
    "Holdfast",
    job="holdfast_job.py",
    input="log",
    output="log",
    needs_warm_up=True,
    restarts_itself=True,
    quirks=("Killed is the node that holds the state, as Spark replaces it alone.",),
)

HOLDFAST_WHOLE: Final = replace(
    HOLDFAST, name="holdfast-whole", title="Holdfast, driver and all", restarts_itself=False
)
"""Holdfast killed as the peers are, with everything that belongs to it, and started again."""

HOLDFAST_SOON: Final = replace(
    HOLDFAST, name="holdfast-soon", title="Holdfast, commit_interval=None"
)
"""Holdfast with one transaction of Kafka after the other."""

HOLDFAST_REPEATS: Final = replace(
    HOLDFAST, name="holdfast-at-least-once", title="Holdfast, exactly_once=False"
)
"""Holdfast without transactions, as Spark writes to Kafka."""

HOLDFAST_FILES: Final = replace(
    HOLDFAST, job="holdfast_parquet_job.py", input="parquet", output="parquet"
)
"""Holdfast on users' own files, as its peers are."""

PYFLINK: Final = Peer(
    "pyflink",
    "PyFlink",
    job="pyflink_job.py",
    input="bare-csv",
    output="parts",
    requirements=("apache-flink==2.3.0",),
    needs_warm_up=True,
    closes=True,
    quirks=(
        "Its file sink shows results with the checkpoint after them. Its two readers take "
        "files in no order, so that windows wait for stragglers (1 s; an hour of event time in "
        "a replay), or it drops events as late.",
    ),
)

PYFLINK_FILES: Final = replace(
    PYFLINK,
    job="pyflink_parquet_job.py",
    input="parquet",
    output="parquet",
    jars=(
        "org.apache.flink:flink-sql-parquet:2.3.0",
        "org.apache.hadoop:hadoop-client-runtime:3.5.0",
    ),
)
"""PyFlink from and into Parquet."""

PEERS: Final = (
    HOLDFAST,
    Peer(
        "spark",
        "Structured Streaming",
        job="spark_job.py",
        output="spark",
        needs_warm_up=True,
        quirks=(
            "Results become visible when a micro-batch is committed; the race is in eight of them.",
        ),
    ),
    PYFLINK,
    Peer(
        "pathway",
        "Pathway",
        job="pathway_job.py",
        input="csv",
        output="lines",
        requirements=("pathway==0.33.0",),
        tuples_max=2_000_000,
        ends=False,
        quirks=(
            "A stream of files has no end for it: it is ended when its output is whole. Started "
            "again it empties its output file, so that every start writes a file of its own.",
        ),
    ),
    Peer(
        "bytewax",
        "Bytewax",
        job="bytewax_job.py",
        output="lines",
        requirements=("bytewax==0.21.1", "pyarrow==26.0.1"),
        tuples_max=500_000,
        closes=True,
        quirks=(
            "Its clock of event time is one per key: a window closes with a later event of its own "
            "key, or as the machine's clock goes on. Events are read by one of its two workers, as "
            "two lose each other's order, and windows wait for stragglers (1 s; an hour in a "
            "replay, so that they close at its end), or it drops events as late.",
        ),
    ),
    Peer(
        "spark-python",
        "Structured Streaming, Python state",
        job="spark_python_job.py",
        output="spark",
        requirements=("pyspark==4.3.0", "pandas==2.3.3", "pyarrow==26.0.1", "protobuf==6.33.6"),
        tuples_max=500_000,
        needs_warm_up=True,
        refuses={"q1": "it has no state, so this is the native query."},
    ),
    Peer(
        "spark-realtime",
        "Structured Streaming, real-time mode",
        job="spark_realtime_job.py",
        output="spark",
        quirks=(
            "Its documentation (Structured Streaming Programming Guide, Real-time Mode) names "
            "Kafka as source, Kafka and foreach as sinks, update as its only output mode, and "
            "neither stream-stream joins nor Python state. It is asked for files like the others, "
            "and runs from topic to topic, below.",
        ),
    ),
    Peer(
        "quix",
        "Quix Streams",
        job="quix_job.py",
        requirements=("quixstreams==3.28.1",),
        quirks=("It needs a Kafka broker for its input, its output and the log of its state.",),
    ),
)


def named(name: str) -> Peer:
    """The peer of a name. Raises `KeyError` if there is none."""
    return {peer.name: peer for peer in PEERS}[name]


FROM_FILES: Final = (HOLDFAST_FILES, named("spark"), PYFLINK_FILES)
"""Who runs from Parquet files into Parquet files."""
