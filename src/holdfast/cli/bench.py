"""`holdfast bench`: measure what the documents claim."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(help="Measure; each benchmark has --quick and --json.", no_args_is_help=True)
EXPERIMENTS = ("throughput", "latency", "recovery", "protection", "start")


@app.callback()
def bench() -> None:
    """Measure; each benchmark has --quick and --json."""


@app.command()
def spine(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="About a minute; rough.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(EXPERIMENTS)}; repeatable.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Also write spine.md, spine.json and plots here.")
    ] = None,
) -> None:
    """The main job: throughput beside Structured Streaming, latency, recovery, cost, start."""
    from holdfast.api.session import session
    from holdfast.bench import report as reports
    from holdfast.bench.spine import FULL, QUICK, Spine, machine

    wanted = tuple(only or EXPERIMENTS)
    for name in wanted:
        if name not in EXPERIMENTS:
            raise typer.BadParameter(f"{name!r}; there are {', '.join(EXPERIMENTS)}")
    console = Console(stderr=True)
    results: dict[str, object] = {"machine": machine(), "size": "quick" if quick else "full"}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        spark = session("holdfast-bench")
        try:
            experiments = Spine(spark, folder, QUICK if quick else FULL, console.print)
            # Starting is measured first, while the session has run nothing.
            for name in sorted(wanted, key=lambda name: name != "start"):
                results[name] = getattr(experiments, name)()
        finally:
            spark.stop()
    if report is not None:
        console.print(f"wrote {reports.write(results, report)}")
    if as_json:
        sys.stdout.write(json.dumps(results, indent=2) + "\n")
    else:
        Console().print(reports.render(results), markup=False)
