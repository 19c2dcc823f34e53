"""What commands show in a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.driver.footprint_inspection import EventualCheckpointInfo
    from holdfast.driver.inspection import CheckpointInfo
    from holdfast.flights.demo import Demo, DemoResult


_WIDE = 90
"""Columns that the whole table of nodes takes."""


def progress(
    name: str,
    nodes_of_query: dict[str, Any],
    now: dict[str, Any],
    elapsed_s: float | None,
    width: int,
) -> Group:
    """The live view: nodes, rates, latency, failures. Narrow terminals show what matters most.

    Args:
        name: The query's.
        nodes_of_query: As `query.status["nodes"]` has them.
        now: As `query.lastProgress` is.
        elapsed_s: Since the start; None: not shown.
        width: Of the terminal, in columns.
    """
    shown = _SHOWN if width >= _WIDE else [column for column in _SHOWN if column in _NARROW]
    since = "" if elapsed_s is None else f": {elapsed_s:5.1f} s"
    nodes = Table(title=f"{name}{since}", title_justify="left")
    for column in shown:
        is_text = column in ("node", "state")
        nodes.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for node, status in nodes_of_query.items():
        color = "green" if status["state"] == "running" else "bold red"
        cells: dict[str, str | Text] = {
            "node": node,
            "state": Text(status["state"], style=color),
            "pid": str(status["pid"] or ""),
            "in": f"{status.get('input_tuples', 0):,}",
            "out": f"{status.get('output_tuples', 0):,}",
            "kept for replay": f"{status.get('retained_tuples', 0):,}",
            "state size": f"{status.get('state_bytes', 0) / 1e6:.1f} MB",
        }
        nodes.add_row(*(cells[column] for column in shown))
    failures = [Text(line, style="bold red") for line in _failures(now)]
    failures += [Text(line, style="bold green") for line in _recoveries(now)]
    missing = [Text(line, style="bold yellow") for line in _missing(now)]
    return Group(nodes, Text(_rates(now)), *missing, *failures)


def demo(run: Demo, nodes: dict[str, Any], now: dict[str, Any], width: int) -> Group:
    """The demo's live view: that of every query, and the newest days if an airport is silent."""
    shown = progress(run.query.name, nodes, now, run.elapsed_s, width)
    if not run.days:
        return shown
    days = Table(title="The newest days, as known now", title_justify="left")
    for column in ("day", "departures", ""):
        days.add_column(column, justify="right" if column == "departures" else "left")
    for row in run.days:
        kind = row["_type"]
        style = "green" if kind == "stable" else "bold yellow"
        days.add_row(str(row["day"]), f"{row['departures']:,}", Text(kind, style=style))
    return Group(shown, days)


def _missing(now: dict[str, Any]) -> list[str]:
    """What units go on without, or correct."""
    lines: list[str] = []
    for unit, block in now.get("units", {}).items():
        said = block["consistency"]
        if said["state"] == "up_failure":
            lacks = ", ".join(said["missing"])
            rows = f"{said['tentativeRows'] - said['undoneRows']:,} tentative rows stand"
            lines.append(f"{unit} goes on without {lacks}: {rows}")
        elif said["state"] == "stabilization":
            lines.append(f"{unit} corrects what it gave as tentative")
    return lines


_SHOWN = ("node", "state", "pid", "in", "out", "kept for replay", "state size")
_NARROW = ("node", "state", "in", "out")


def _rates(now: dict[str, Any]) -> str:
    latency = now["latencyMs"]
    return (
        f"in {now['numInputRows']:,} tuples ({now['inputRowsPerSecond']:,.0f}/s), "
        f"out {now['numOutputRows']:,}, latency p50 {_ms(latency['p50'])}, "
        f"p99 {_ms(latency['p99'])}"
    )


def _ms(value: float | None) -> str:
    """Milliseconds, to three digits or so."""
    if not value:
        return "-"
    return f"{value:.1f} ms" if value < 100 else f"{value:,.0f} ms"


def _failures(now: dict[str, Any]) -> list[str]:
    return [f"{f['at_s']:6.2f} s  {f['node']} lost: {f['reason']}" for f in now["failures"]]


def _recoveries(now: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for recovery in now["recoveries"]:
        node, caught_up_ms = recovery["node"], recovery["caught_up_ms"]
        lines.append(f"          {node} back after {recovery['recovered_ms']} ms")
        if caught_up_ms is not None:
            lines.append(f"          {node} caught up after {caught_up_ms} ms")
    return lines


def what_failed(failures: list[dict[str, Any]]) -> str:
    """A line for each node that failed: it is back after so long, or why it failed."""
    lines = []
    for one in failures:
        if (back_ms := one.get("recovered_ms")) is None:
            lines.append(f"{one['node']} lost: {one['reason']}")
        else:
            lines.append(
                f"{one['node']} back after {back_ms} ms, {one['replayed_tuples']:,} tuples replayed"
            )
    return "\n".join(lines) or "none"


class Lines:
    """Progress where there is no terminal: a line every two seconds, and one for every event."""

    def __init__(self, console: Console, name: str) -> None:
        """Write to `console`."""
        self._console = console
        self._name = name
        self._due_s = 0.0
        self._said: set[str] = set()

    def __call__(self, now: dict[str, Any]) -> None:
        """Say what is new in a progress report."""
        told = (*_states(now), *_failures(now), *_recoveries(now))
        lines = [line for line in told if line not in self._said]
        self._said.update(lines)
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _LINE_INTERVAL_S
            lines.append(f"{self._name}: {_rates(now)}")
        for line in lines:
            self._console.print(line.strip(), markup=False, highlight=False, soft_wrap=True)


_LINE_INTERVAL_S = 2.0


def _states(now: dict[str, Any]) -> list[str]:
    """Units that have begun to go on without input, each failure once."""
    return [
        f"{unit} goes on without {', '.join(block['consistency']['missing'])}, as tentative"
        for unit, block in now.get("units", {}).items()
        if block["consistency"]["state"] == "up_failure"
    ]


def _print_silence(console: Console, result: DemoResult) -> None:
    silence = result.summary["silence"]
    table = Table(title="The silence", title_justify="left", show_header=False)
    table.add_column(justify="right")
    table.add_column()
    for entry in silence["events"]:
        table.add_row(f"{entry['ms']:,} ms", entry["event"])
    console.print(table)
    if result.corrected:
        console.print(_table("Days that were tentative first", result.corrected))
    console.print(
        f"{silence['airport']} was silent for {silence['seconds']:g} s; nothing waited for it for "
        f"longer than {silence['waited_ms_max']:,} ms (the bound is {silence['bound']}), and for "
        f"the correction for {silence['waited_for_correction_ms_max']:,} ms; "
        f"{silence['tentative_rows']:,} rows were tentative, {silence['undone_rows']:,} of them "
        "undone"
    )


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
    if "silence" in summary:
        _print_silence(console, result)
    latency = summary["latency_ms"]
    console.print(
        f"{summary['flights']:,} departures read, {summary['cancelled']:,} of them cancelled; "
        f"{summary['input_tuples']:,} tuples in (with the weather), "
        f"{summary['output_tuples']:,} out"
    )
    console.print(
        f"replayed in {summary['seconds']} s: {summary['throughput_tps']:,.0f} tuples/s; latency "
        f"p50 {_ms(latency['p50'])}, p99 {_ms(latency['p99'])}, the failure included"
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


def print_eventual_checkpoints(console: Console, found: list[EventualCheckpointInfo]) -> None:
    """What replacements of nodes would read and replay, as a table."""
    table = Table(title="Eventual checkpoints")
    table.add_column("node", overflow="fold")
    for name in ("footprints", "records", "extent", "to replay", "recovery"):
        table.add_column(name, justify="right")
    for c in found:
        counts = (f"{c.footprints:,}", f"{c.records:,}", _size(c.extent_bytes), f"{c.tuples:,}")
        numbers = (*counts, f"{c.predicted_recovery_ms:,.1f} ms")
        table.add_row(f"{c.node}: {c.problem}" if c.problem else c.node, *numbers)
    console.print(table)


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
