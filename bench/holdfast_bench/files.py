"""A user's own Parquet files, read by Holdfast's nodes and by Structured Streaming.

Both read the same files and write Parquet files, in turn, in one run, with the start of the query
included; sessions are warm.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.driver.delta_sink import delta_sink
from holdfast.driver.files_sink import files_sink
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast_bench import boundary, cold_start, moments, reading, visible
from holdfast_bench.inputs import FILES_PER_TRIGGER, TRIGGERS, Recording, record_parquet
from holdfast_bench.reporter import former_results, machine_of, table, write_page
from holdfast_bench.running import BenchFailed, median
from holdfast_bench.spine import machine, use_cores
from holdfast_bench.structured_streaming import Baseline, digest
from holdfast_bench.throughput import Sizes, last_written_s, shares_of
from holdfast_chaos import delta_kills

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FULL: Final = Sizes({"q1": 50_000_000, "q3": 6_000_000, "q8": 1_200_000, "q12": 60_000_000}, 2)
QUICK: Final = Sizes({"q12": 2_000_000}, 1)
READ: Final = {"parquet": 10_000_000, "csv": 2_000_000, "json": 1_000_000}
"""Rows of each format that the readers alone read."""
EXPERIMENTS: Final = (
    *("queries", "delta", "reading", "boundary"),
    *("visible", "kills", "iceberg_kills", "cold_start"),
)
KILLS: Final = 50
ICEBERG_KILLS: Final = 30
DELTA_ROWS: Final = 10_000_000
BOUNDARY_ROWS: Final = 10_000_000
DELTA_TARGET: Final = 1e6
"""Rows per second into a Delta table, at least."""
_SMALL: Final = 1_000
"""A query is also run with so many times less input, to tell what is the same for any size."""
_EVERY: Final = "250 milliseconds"
"""How late rows may appear in Holdfast's files and tables."""
TARGETS: Final = {"q1": 5, "q3": 20, "q8": 20, "q12": 20}
_READERS: Final = ("holdfast", "pyarrow")
_TIMEOUT_S: Final = 600.0
_INTRODUCTION: Final = f"""\
# From a user's own files

`holdfast bench files` made this page: NexMark events, {TRIGGERS * FILES_PER_TRIGGER} Parquet files
of each kind. `flow.source_files` reads them in the nodes, and `sink_files` writes Parquet files, a
row within {_EVERY}. Structured Streaming reads the same files in {TRIGGERS} micro-batches,
and in a single one, which gives no result before all input is read; it writes Parquet files too.
Times are from the start of the query to its last result, in sessions that have
run the query once before. Medians; the single micro-batch runs once.

"""
_READING: Final = """
## The readers alone

A node's own reader beside pyarrow alone: eight files, three of four columns, in one process,
without a dataflow.

"""
_DELTA: Final = f"""
## Into a Delta table

Q1 from the same kind of files, by `sink_delta(every="{_EVERY}")`, from the start of the query to
the table's last version. The table holds what Spark SQL gives: {{identical}}.

"""
_KILLS: Final = """
## Under kills

Files come all the time, two nodes read them, a third one counts windows, and rows and counts go to
two Delta tables, whose small files are merged every two seconds. Meanwhile processes are killed at
drawn moments. In the end plain Delta readers say what the tables hold.

"""
_ICEBERG_KILLS: Final = """
## Under kills, into Iceberg tables

The same with two Iceberg tables.

"""
_START: Final = """
## Cold start

From `python` to the last row shown: the README's ten lines, and the same aggregate in plain
PySpark, which keeps nothing and checks nothing; and how long each takes from one step to the next.

"""


def run(
    sizes: Sizes, say: Callable[[str], None], only: tuple[str, ...] = EXPERIMENTS
) -> dict[str, Any]:
    """Experiments, the queries on both systems in turn."""
    from holdfast.driver.session import session

    use_cores()
    results: dict[str, Any] = {"machine": machine(), "sizes": asdict(sizes)}
    if {"queries", "delta"} & set(only):
        spark = session("holdfast-files")
        with closing(Baseline()) as baseline:
            try:
                results |= _with_queries(spark, baseline, sizes, say, only)
            finally:
                spark.stop()
    if "reading" in only:
        say("the readers alone, beside pyarrow")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            results["reading"] = reading.measure(READ, sizes.repeats, Path(folder))
    is_full = sizes.repeats > 1
    if "boundary" in only:
        say("rows of a DataFrame that is no plain scan")
        rows = BOUNDARY_ROWS if is_full else BOUNDARY_ROWS // 10
        spark = session("holdfast-files")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            results["boundary"] = boundary.measure(spark, rows, sizes.repeats, Path(folder))
        spark.stop()
    if "visible" in only:
        results["visible"] = visible.measure(visible.FULL if is_full else visible.QUICK, say)
    if "kills" in only:
        say("files into Delta tables under kills")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            found = delta_kills.run(KILLS if is_full else KILLS // 10, 1, Path(folder))
        results["kills"] = found.to_json() | {"is_right": found.is_right}
    if "iceberg_kills" in only:
        say("files into Iceberg tables under kills")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            kills = ICEBERG_KILLS if is_full else ICEBERG_KILLS // 10
            found = delta_kills.run(kills, 1, Path(folder), "iceberg")
        results["iceberg_kills"] = found.to_json() | {"is_right": found.is_right}
    if "cold_start" in only:
        say("cold start, beside plain PySpark")
        results["cold_start"] = cold_start.measure(sizes.repeats)
    return results


def combined(before: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """What was measured now, and what stands in a report beside it."""
    queries = before.get("queries", {}) | results.get("queries", {})
    commits = before.get("commits") or (_commits_of(before) if before else {})
    return before | results | {"queries": queries, "commits": commits | _commits_of(results)}


def _commits_of(results: dict[str, Any]) -> dict[str, str]:
    """By experiment, and query, the commit that it ran on."""
    measured = [name for name in EXPERIMENTS if name != "queries" and name in results]
    return dict.fromkeys([*results.get("queries", {}), *measured], results["machine"]["commit"])


def _with_queries(
    spark: SparkSession,
    baseline: Baseline,
    sizes: Sizes,
    say: Callable[[str], None],
    only: tuple[str, ...],
) -> dict[str, Any]:
    results: dict[str, Any] = {}
    if "queries" in only:
        results["queries"] = {}
        for query in sizes.tuples:
            say(f"{query}: {sizes.tuples[query]:,} tuples on both systems")
            with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
                results["queries"][query] = _compare(spark, baseline, query, sizes, Path(folder))
    if "delta" in only:
        rows = DELTA_ROWS if sizes.repeats > 1 else DELTA_ROWS // 10
        say(f"{rows:,} rows into a Delta table")
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            results["delta"] = _into_delta(spark, baseline, rows, sizes.repeats, Path(folder))
    return results


def _into_delta(
    spark: SparkSession, baseline: Baseline, rows: int, repeats: int, folder: Path
) -> dict[str, Any]:
    """Q1 into a table; once unmeasured."""
    inputs = {"bid": record_parquet("bid", rows, NexmarkConfig(), folder)}
    runs = [_run_holdfast(spark, "q1", inputs, "delta") for _ in range(repeats + 1)]
    places = {"bid": inputs["bid"].parquet}
    expected = baseline.digest("q1", places, timeout_s=_TIMEOUT_S)["digest"]
    seconds = [run["seconds"] for run in runs[1:]]
    return {
        "rows": rows,
        "seconds": seconds,
        "rows_per_s": round(rows / median(seconds)),
        "is_identical": runs[-1]["digest"] == expected,
    }


def _compare(
    spark: SparkSession, baseline: Baseline, query: str, sizes: Sizes, folder: Path
) -> dict[str, Any]:
    """Both run once unmeasured, then in turn; Holdfast's output is checked against Spark SQL."""
    inputs = _recorded(query, sizes.tuples[query], folder)
    places = {kind: recording.parquet for kind, recording in inputs.items()}
    peers = {"triggers": FILES_PER_TRIGGER, "at_once": None}
    seconds: dict[str, list[float]] = {name: [] for name in ("holdfast", "log", *peers)}
    baseline.run(query, places, timeout_s=_TIMEOUT_S)
    small = _recorded(query, sizes.tuples[query] // _SMALL, folder / "small")
    pyarrow_cpu_s = _run_holdfast(spark, query, inputs, "files", has_pyarrow=True)["pyarrow_cpu_s"]
    runs: list[dict[str, Any]] = []
    thousandths: list[float] = []
    for repeat in range(sizes.repeats):
        found = _run_holdfast(spark, query, inputs, "files")
        runs.append(found)
        seconds["holdfast"].append(found["seconds"])
        thousandths.append(_run_holdfast(spark, query, small, "files")["seconds"])
        seconds["log"].append(_run_holdfast(spark, query, inputs, "log")["seconds"])
        for name, files in peers.items() if repeat == 0 else [("triggers", FILES_PER_TRIGGER)]:
            theirs = baseline.run(query, places, files_per_trigger=files, timeout_s=_TIMEOUT_S)
            seconds[name].append(theirs["seconds_with_start"])
    expected = baseline.digest(query, places, timeout_s=_TIMEOUT_S)["digest"]
    medians = {name: median(times) for name, times in seconds.items()}
    return {
        "tuples": sum(recording.count for recording in inputs.values()),
        "seconds": seconds,
        "median_seconds": medians,
        "ratio": {name: round(medians[name] / medians["holdfast"], 2) for name in peers},
        "moments": sorted(runs, key=lambda run: run["seconds"])[len(runs) // 2]["moments"],
        "thousandth_seconds": median(thousandths),
        "pyarrow_cpu_s": pyarrow_cpu_s,
        "is_identical": found["digest"] == expected,
    }


def _recorded(query: str, tuples: int, folder: Path) -> dict[str, Recording]:
    """So many tuples in files, by kind."""
    config, shares = NexmarkConfig(), shares_of(query, tuples)
    return {kind: record_parquet(kind, n, config, folder) for kind, n in shares.items()}


def _run_holdfast(
    spark: SparkSession,
    query: str,
    inputs: dict[str, Recording],
    into: str,
    *,
    has_pyarrow: bool = False,
) -> dict[str, Any]:
    """Seconds from `start` to the last result, moments on the way, and the results' digest.

    Args:
        spark: The session.
        query: Of NexMark.
        inputs: Files by kind of event.
        into: `log`, `files` or `delta`.
        has_pyarrow: Whether pyarrow reads and writes the same files afterwards.
    """

    def source(flow: Dataflow, kind: str) -> Stream:
        place, unit = inputs[kind].parquet, "ingest" if len(inputs) == 1 else f"{kind}s"
        return flow.source_files(place, time="date_time", name=f"{kind}s", unit=unit, ends=True)

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        location, out = f"{folder}/run", f"{folder}/out"
        flow = build(query, source)
        schema = flow.sinks[query].schema
        if into == "files":
            flow.outside_sinks[query] = files_sink(
                out, schema=schema, format="parquet", partition_by=(), every=_EVERY
            )
        elif into == "delta":
            sink = delta_sink(out, schema=schema, partition_by=(), every=_EVERY)
            flow.outside_sinks[query] = sink
        watched = moments.Watched(spark)
        running = flow.start(spark, checkpointLocation=location)
        found = watched.finish(running, f"Holdfast, {query}", _TIMEOUT_S)
        if into == "log":
            seconds = last_written_s(location, query) - watched.began_s
        else:
            found |= watched.shown(location, _shown_files(out, into))
            seconds = found["last"]
        read, given = running.lastProgress["numInputRows"], sum(r.count for r in inputs.values())
        if read != given:
            raise BenchFailed(f"Holdfast, {query}: read {read} of {given}")
        rows = spark.read.parquet(out) if into == "files" else running.to_dataframe()
        told: dict[str, Any] = {
            "seconds": round(seconds, 3),
            "moments": found,
            "digest": digest(rows),
        }
        if has_pyarrow:
            places = {kind: recording.parquet for kind, recording in inputs.items()}
            told["pyarrow_cpu_s"] = moments.by_pyarrow(query, places, _shown_files(out, into))
        return told


def _shown_files(folder: str, into: str) -> list[Path]:
    """Results as readers see them: files by their names, or versions of a table."""
    return list(Path(folder).glob("[!._]*" if into == "files" else "_delta_log/*.json"))


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `files.json` and `files.md` into `folder`; the page's path."""
    return write_page("files", results, render(results), folder)


def former(folder: Path) -> dict[str, Any]:
    """What an earlier run has left in a folder.

    Queries that were measured into the log alone, as this benchmark once did, have no place in a
    table of files into files.
    """
    found = former_results("files", folder)
    queries = found.get("queries", {})
    into_files = {name: q for name, q in queries.items() if "log" in q["median_seconds"]}
    return {**found, "queries": into_files} if queries else found


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    given = machine_of(results)
    rows: list[tuple[str, ...]] = []
    for query, found in results.get("queries", {}).items():
        medians, ratio = found["median_seconds"], found["ratio"]
        is_met = ratio["triggers"] >= TARGETS[query]
        rows.append(
            (
                query.upper(),
                f"{found['tuples']:,}",
                *(f"{medians[name]:.2f}" for name in ("holdfast", "log", "triggers", "at_once")),
                f"{found['tuples'] / medians['holdfast'] / 1e6:.2f} M",
                f"{ratio['triggers']:.1f}",
                f"{ratio['at_once']:.1f}",
                f"{TARGETS[query]}: {'met' if is_met else 'not met'}",
                "yes" if found["is_identical"] else "**no**",
            )
        )
    header = (
        *("query", "tuples", "Holdfast, s", "into its log, s"),
        *("Structured Streaming, s", "in one batch, s"),
        *("tuples/s", "times", "times, in one batch", "target", "identical to Spark SQL"),
    )
    size = f"{results['sizes']['repeats']} runs each"
    page = f"{_INTRODUCTION}Machine: {given}. {size}.{_measured_on(results)}\n\n"
    page += table(header, rows) if rows else ""
    page += moments.render(results.get("queries", {}))
    page += _rendered_limits(results)
    page += _rendered_delta(results) + _rendered_readers(results)
    page += boundary.render(results["boundary"]) if "boundary" in results else ""
    page += visible.render(results["visible"]) if "visible" in results else ""
    page += _rendered_kills(results.get("kills"), _KILLS)
    page += _rendered_kills(results.get("iceberg_kills"), _ICEBERG_KILLS)
    return page + _rendered_start(results)


def _rendered_limits(results: dict[str, Any]) -> str:
    """What keeps queries from their targets; nothing if all meet them."""
    cores, said = int(results["machine"].get("cores", 1)), []
    for query, found in results.get("queries", {}).items():
        is_met = found["ratio"]["triggers"] >= TARGETS[query]
        if is_met or "cpu_driver" not in found.get("moments", {}):
            continue
        spent_s = found["moments"]["cpu_nodes"] + found["moments"]["cpu_driver"]
        wanted_s = found["median_seconds"]["triggers"] / TARGETS[query]
        said.append(
            f"- {query.upper()} would have to take {wanted_s:.1f} s for its target. Its "
            f"{spent_s:.1f} CPU seconds alone fill all cores for {spent_s / cores:.1f} s, and "
            f"{found['thousandth_seconds']:.1f} s are the same for any size.\n"
        )
    return f"\nWhat keeps queries from their targets:\n\n{''.join(said)}" if said else ""


def _measured_on(results: dict[str, Any]) -> str:
    """Which commit each part ran on, where it was another one."""
    now = results["machine"]["commit"]
    former = {name: c for name, c in results.get("commits", {}).items() if c != now}
    said = [f"{name.replace('_', ' ')} on {commit}" for name, commit in former.items()]
    return f" Measured before: {', '.join(said)}." if said else ""


def _rendered_delta(results: dict[str, Any]) -> str:
    """Nothing if it was not measured."""
    if "delta" not in results:
        return ""
    found = results["delta"]
    is_met = found["rows_per_s"] >= DELTA_TARGET
    target = f"{DELTA_TARGET / 1e6:.0f} M: {'met' if is_met else 'not met'}"
    row = (f"{found['rows']:,}", f"{found['rows_per_s'] / 1e6:.2f} M", target)
    said = _DELTA.replace("{identical}", "yes" if found["is_identical"] else "**no**")
    return f"\n{said}{table(('rows', 'rows/s', 'target, at least'), [row])}"


def _rendered_kills(found: dict[str, Any] | None, said: str) -> str:
    """Nothing if it was not measured."""
    if found is None:
        return ""
    kinds = [(delta_kills.KINDS[kind], count) for kind, count in found["kills"].items()]
    return (
        f"{said}{table(('fault', 'how often'), kinds)}\n"
        f"Of {found['rows']:,} rows, and of the windows that had closed, {found['lost']} were "
        f"lost, {found['doubled']} were doubled and {found['wrong']} had another count. The table "
        f"of rows came to version {found['versions']}, in {found['seconds']:.0f} s, by "
        f"{found['drivers']} drivers one after the other.\n"
    )


def _rendered_readers(results: dict[str, Any]) -> str:
    """Nothing if it was not measured."""
    rows = [
        (
            found["format"],
            f"{found['rows']:,}",
            *(f"{found['rows'] / found['seconds'][who] / 1e6:.1f} M" for who in _READERS),
            f"{found['ratio']:.2f}",
            f"{reading.TARGET}: {'met' if found['ratio'] >= reading.TARGET else 'not met'}",
        )
        for found in results.get("reading", ())
    ]
    header = ("format", "rows", "Holdfast, rows/s", "pyarrow, rows/s", "times", "target")
    return f"\n{_READING}{table(header, rows)}" if rows else ""


def _rendered_start(results: dict[str, Any]) -> str:
    """Nothing if it was not measured."""
    if "cold_start" not in results:
        return ""
    seconds, ratio = results["cold_start"]["seconds"], results["cold_start"]["ratio"]
    is_met = ratio <= cold_start.TARGET
    header = ("Holdfast, s", "plain PySpark, s", "times", "target, at most")
    row = (
        *(f"{seconds[name]:.1f}" for name in ("holdfast", "pyspark")),
        f"{ratio:.2f}",
        f"{cold_start.TARGET}: {'met' if is_met else 'not met'}",
    )
    return f"\n{_START}{table(header, [row])}{cold_start.render(results['cold_start'])}"


def is_wrong(results: dict[str, Any]) -> bool:
    """Whether some output was another one than Spark SQL's."""
    found = [*results.get("queries", {}).values()]
    found += [results["delta"]] if "delta" in results else []
    kills = [results.get(name, {}) for name in ("kills", "iceberg_kills")]
    is_right = all(found.get("is_right", True) for found in kills)
    return not (is_right and all(each["is_identical"] for each in found))
