"""What commands show in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.api.inspection import CheckpointInfo
    from holdfast.api.query import Query
    from holdfast.flights.demo import DemoResult


def progress(query: Query, now: dict[str, Any], elapsed_s: float) -> Group:
    """The live view: nodes, rates, latency, failures."""
    nodes = Table(title=f"{query.name}: {elapsed_s:5.1f} s", title_justify="left")
    for column in ("node", "state", "pid", "in", "out", "kept for replay", "state size"):
        nodes.add_column(column, justify="left" if column in ("node", "state") else "right")
    for node, status in query.status["nodes"].items():
        color = "green" if status["state"] == "running" else "bold red"
        nodes.add_row(
            node,
            Text(status["state"], style=color),
            str(status["pid"] or ""),
            f"{status.get('input_tuples', 0):,}",
            f"{status.get('output_tuples', 0):,}",
            f"{status.get('retained_tuples', 0):,}",
            f"{status.get('state_bytes', 0) / 1e6:.1f} MB",
        )
    latency = now["latencyMs"]
    line = Text(
        f"in {now['numInputRows']:,} tuples ({now['inputRowsPerSecond']:,.0f}/s), "
        f"out {now['numOutputRows']:,}, latency p50 {latency['p50'] or '-'} ms, "
        f"p99 {latency['p99'] or '-'} ms"
    )
    failures = [
        Text(f"{f['at_s']:6.2f} s  {f['node']} lost: {f['reason']}", style="bold red")
        for f in now["failures"]
    ]
    failures += [
        Text(f"          {r['node']} back after {r['recovered_ms']} ms", style="bold green")
        for r in now["recovery"]
    ]
    return Group(nodes, line, *failures)


def print_result(console: Console, result: DemoResult) -> None:
    """The closing view."""
    summary = result.summary
    console.print(_table("Worst carriers of 2013", result.carriers))
    console.print(_table("Worst weather", result.weather))
    timeline = Table(title="The failure", title_justify="left", show_header=False)
    timeline.add_column(justify="right")
    timeline.add_column()
    for entry in summary["timeline"]:
        timeline.add_row(f"{entry['ms']:,} ms", entry["event"])
    if summary["timeline"]:
        console.print(timeline)
    latency = summary["latency_ms"]
    console.print(
        f"{summary['flights']:,} departures read, {summary['cancelled']:,} of them cancelled; "
        f"{summary['input_tuples']:,} tuples in (with the weather), "
        f"{summary['output_tuples']:,} out"
    )
    console.print(
        f"replayed in {summary['seconds']} s: {summary['throughput_tps']:,.0f} tuples/s; latency "
        f"p50 {latency['p50']:.1f} ms, p99 {latency['p99']:.1f} ms, the failure included"
    )
    answer = "[bold green]yes[/]" if result.is_identical else "[bold red]NO[/]"
    console.print(f"identical to Spark SQL: {answer}")


def _table(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in rows[0] if rows else ():
        table.add_column(column)
    for row in rows:
        table.add_row(*(f"{v:,}" if isinstance(v, (int, float)) else str(v) for v in row.values()))
    return table


def print_checkpoints(
    console: Console, found: list[CheckpointInfo], operators: dict[str, str]
) -> None:
    """All checkpoints of a location as a table, and which operators have state."""
    table = Table(title="Checkpoints")
    table.add_column("node", overflow="fold")
    table.add_column("checkpoint", overflow="fold")
    for name in ("age", "state", "pages", "changed", "written", "outputs"):
        table.add_column(name, justify="right")
    for c in found:
        number = f"{c.checkpoint} {c.role}" + (f": {c.problem}" if c.problem else "")
        table.add_row(
            c.node,
            number,
            f"{c.age_s:,.0f} s",
            _size(c.state_bytes),
            f"{c.pages:,}",
            f"{c.changed_pages:,}",
            _size(c.written_bytes),
            f"{c.output_tuples:,}",
        )
    console.print(table)
    for name, unit in operators.items():
        console.print(f"operator {name} of unit {unit}: --state {name}", highlight=False)


def print_rows(console: Console, title: str, rows: pa.Table, limit: int) -> None:
    """The first rows of a table."""
    table = Table(title=f"{title}: {len(rows):,} rows")
    for name in rows.column_names:
        table.add_column(name, overflow="fold")
    for row in rows.slice(0, limit).to_pylist():
        table.add_row(*("null" if value is None else str(value) for value in row.values()))
    console.print(table)


def _size(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
