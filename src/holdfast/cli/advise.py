"""`holdfast advise`: measure a dataflow, or take what a query has left, and say what to protect."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli import flow_file
from holdfast.errors import AdviceError

if TYPE_CHECKING:
    from holdfast.api.dataflow import Dataflow
    from holdfast.driver.advice import Advice, Option, UnitAdvice
    from holdfast.driver.measurements import Measurements

_SLOTS = 16
_POLL_S = 0.05
UNPLANNED = (
    "the dataflow is not at hand, and the query left nothing of what it refuses: no option was "
    "tried by the planner, and start may refuse what is advised here"
)


def advise(
    target: Annotated[
        str, typer.Argument(help="A checkpointLocation, file.py:flow, or q1, q3, q8, q12.")
    ],
    *,
    recovery_ms: Annotated[
        float | None, typer.Option(help="From a failure until the state is there again.")
    ] = None,
    delay_ms: Annotated[
        float | None, typer.Option(help="Added to results while nothing fails.")
    ] = None,
    overhead_percent: Annotated[
        float | None, typer.Option(help="Bytes for protection, of those of the input.")
    ] = None,
    guarantee: Annotated[
        str, typer.Option(help="The least that will do: precise, rollback or gap.")
    ] = "precise",
    seconds: Annotated[float, typer.Option(help="A dataflow: run it for so long.")] = 15,
    rate: Annotated[float, typer.Option(help="A NexMark query: tuples per second.")] = 10_000,
    parallelism: Annotated[int, typer.Option(help="A dataflow: instances of every unit.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Predict what each protection costs each unit, and name the cheapest that is enough.

    Exit code 1 when for some unit none is.
    """
    from holdfast.driver.advice import Objectives
    from holdfast.driver.advice import advise as give_advice

    objectives = Objectives(recovery_ms, delay_ms, overhead_percent, guarantee)
    measured = _measured(target, seconds, rate, parallelism)
    advice = give_advice(measured, objectives)
    if as_json:
        sys.stdout.write(json.dumps(advice.to_json(), indent=2) + "\n")
    else:
        _show(Console(), advice)
    raise typer.Exit(0 if all(unit.choice for unit in advice.units) else 1)


# -- measuring ------------------------------------------------------------------------------


def _measured(target: str, seconds: float, rate: float, parallelism: int) -> Measurements:
    from holdfast.driver.measurements import Measurements
    from holdfast.nexmark.queries import KINDS

    if seconds <= 0 or rate <= 0:
        raise typer.BadParameter("--seconds and --rate must be positive")
    if os.path.isdir(target):
        return Measurements.load(target)
    if target in KINDS:
        return _run(lambda _: _nexmark(target, seconds, rate, parallelism), seconds, parallelism)
    place = flow_file.split(target)
    if place is not None:
        path, name = place
        return _run(
            lambda spark: flow_file.dataflow_of(flow_file.module_of(path), name, spark),
            seconds,
            parallelism,
        )
    raise AdviceError(f"{target!r} is no folder, no file.py:name, and none of {', '.join(KINDS)}")


def _run(build: Any, seconds: float, parallelism: int) -> Measurements:
    """Run a dataflow for a while at a location of its own."""
    from holdfast.driver.session import session

    spark = session("holdfast-advise", slots=max(_SLOTS, 4 * parallelism + 2))
    with tempfile.TemporaryDirectory(prefix="holdfast-advise-") as location:
        try:
            flow: Dataflow = build(spark)
            query = flow.start(spark, checkpointLocation=location, parallelism=parallelism)
            try:
                _watch(query, seconds)
            finally:
                query.stop()
            error = query.exception()
            if error is not None:
                raise error
            measured: Measurements = query.measurements()
            return measured
        finally:
            spark.stop()


def _watch(query: Any, seconds: float) -> None:
    """Wait until it has had input for so long, or ends."""
    until_s: float | None = None
    while query.isActive and (until_s is None or time.monotonic() < until_s):
        if until_s is None and query.lastProgress["numInputRows"]:
            until_s = time.monotonic() + seconds
        time.sleep(_POLL_S)  # Progress is asked for; nothing tells of it.


def _nexmark(query: str, seconds: float, rate: float, parallelism: int) -> Dataflow:
    from holdfast.api.protections import UpstreamBackup
    from holdfast.nexmark.queries import KINDS
    from holdfast.nexmark.run import NexmarkRun
    from holdfast.nexmark.source import counts_of

    per_event = sum(counts_of(5000)[kind] for kind in KINDS[query]) / 5000
    events = max(50, int(rate * (seconds + 5) / per_event) // 50 * 50)
    flow, _ = NexmarkRun(query, events, rate, parallelism, UpstreamBackup()).flow()
    return flow


# -- showing --------------------------------------------------------------------------------


def _show(console: Console, advice: Advice) -> None:
    for unit in advice.units:
        console.print(_table(unit))
        color = "green" if unit.choice is not None else "bold red"
        console.print(Text(f"  {unit.reason}", style=color))
        console.print()
    console.print(Text("around them: " + "; ".join(f"{k} {v}" for k, v in _said(advice))))
    if not advice.is_planned:
        console.print(Text(UNPLANNED, style="yellow"))
    choices = advice.protection
    if all(choices.values()):
        lines = ", ".join(f'"{unit}": {choice}' for unit, choice in choices.items())
        console.print(Text(f"protection={{{lines}}}", style="bold"))
    else:
        missing = ", ".join(unit for unit, choice in choices.items() if choice is None)
        console.print(Text(f"no protection meets the objectives for {missing}", style="bold red"))


def _said(advice: Advice) -> list[tuple[str, str]]:
    return list(advice.assumptions.items())


def _table(unit: UnitAdvice) -> Table:
    m = unit.measured
    title = (
        f"{m.unit}: {m.input_tuples_per_s:,.0f} tuples/s of {m.input_tuple_bytes:g} B in, "
        f"{m.output_tuples_per_s:,.0f} out, {m.tuple_cost_us:g} µs each; state "
        f"{m.state_bytes / 1e6:,.2f} MB, {m.state_tuples:,.0f} tuples back, "
        f"{m.changed_bytes_per_s / 1e6:,.2f} MB/s changing; {m.operator_class}; "
        f"{m.instances} × on {m.hosts} host{'s' if m.hosts > 1 else ''}; now {m.protection}"
    )
    table = Table(title=title, title_justify="left")
    for column in ("", "guarantee", "recovery ms", "of it replay", "delay ms", "overhead", "slots"):
        table.add_column(column, justify="left" if column in ("", "guarantee") else "right")
    for option in unit.options:
        mark = "→ " if option is unit.choice else "  "
        name = option.approach + (" (refused)" if option.refused else "")
        table.add_row(
            Text(mark + name, style="bold" if option is unit.choice else ""),
            option.guarantee,
            _cell(option, "recovery_ms", f"{option.recovery_ms:,.0f}"),
            f"{option.parts_ms['replay']:,.0f}",
            _cell(option, "delay_ms", f"{option.delay_ms:g}"),
            _cell(option, "overhead_percent", _overhead(option)),
            f"+{option.slots}" if option.slots else "",
        )
    return table


def _overhead(option: Option) -> str:
    return f"{option.overhead_percent:,.1f} % ({option.overhead_bytes_per_s / 1e3:,.1f} kB/s)"


def _cell(option: Option, objective: str, text: str) -> Text:
    return Text(text, style="red" if objective in option.misses else "")
