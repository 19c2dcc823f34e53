"""`holdfast`: run dataflows and look after them; the demo, NexMark queries and benchmarks."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.cli import checkout, on_call
from holdfast.cli.advise import advise
from holdfast.cli.change import check, drain
from holdfast.cli.interrupts import INTERRUPTED, Interrupts
from holdfast.cli.run import run
from holdfast.cli.settings import settings
from holdfast.cli.view import view
from holdfast.errors import HoldfastError, OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.flights.demo import Demo
    from holdfast.nexmark.run import Kill, NexmarkRun

app = typer.Typer(
    help="Streaming jobs on Spark that survive crashes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(run)
app.command()(check)
app.command()(drain)
app.command()(on_call.status)
app.command()(on_call.stop)
app.command()(on_call.kill)
app.command()(on_call.promote)
app.command()(view)
app.command()(advise)
app.command()(settings)
_console = Console(stderr=True)
_LOCATION = "The checkpointLocation; on a cluster a folder or URL that all hosts see."


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,  # It explains itself.
)
def simulate(context: typer.Context) -> None:
    """Run the cores under seeded faults; in a checkout."""
    commands = checkout.load("holdfast.cli.simulate", for_command="holdfast simulate")
    commands.app(args=context.args, prog_name=context.command_path)


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,  # Benchmarks explain themselves.
)
def bench(context: typer.Context) -> None:
    """Measure what the documents claim; in a checkout."""
    commands = checkout.load("holdfast_bench.commands", for_command="holdfast bench")
    commands.app(args=context.args, prog_name=context.command_path)


@app.command()
def demo(
    *,
    seconds: Annotated[float, typer.Option(help="Replay the year in about so many seconds.")] = 15,
    location: Annotated[str | None, typer.Option(help=_LOCATION)] = None,
    silence: Annotated[
        str | None, typer.Option(help="Silence the feed of ewr, jfk or lga for a while.")
    ] = None,
    silence_seconds: Annotated[float, typer.Option(help="For how long.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """A year of flights through Spark and Holdfast, with a node killed in the middle.

    With --silence, results come in time without that airport, as tentative, and are corrected.
    """
    from holdfast.cli import views
    from holdfast.driver.session import session
    from holdfast.flights.demo import Demo
    from holdfast.flights.silence import Silence

    interrupts = Interrupts()
    silent = None if silence is None else Silence(silence, seconds / 4, silence_seconds)
    with ExitStack() as places:
        stops: list[Callable[[], None]] = []
        try:
            with interrupts.asking():
                spark = session("holdfast-demo")
                stops.append(spark.stop)
                interrupts.take_over()
            spark.sparkContext.setLogLevel("OFF")  # A killed task is no news here.
            run = Demo(spark, _place(spark, location, places), seconds, silent)
            stops.insert(0, run.stop)
            with interrupts.asking(), _watching(run, as_json=as_json) as show:
                while run.query.isActive and not interrupts.is_asked:
                    show(run.watch())
                    time.sleep(0.1)  # Progress is asked for; nothing tells of it.
            result = run.finish()
        except KeyboardInterrupt:
            _console.print("interrupted; stopping the nodes")
        finally:
            interrupts.stop(*stops)
    if interrupts.is_asked:
        raise typer.Exit(INTERRUPTED)
    if as_json:
        tables = {"carriers": result.carriers, "weather": result.weather}
        _print_json({**result.summary, **tables, "corrected": result.corrected})
    else:
        views.print_result(Console(), result)
    raise typer.Exit(0 if result.is_identical else 1)


@contextmanager
def _watching(run: Demo, *, as_json: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Shows progress: nothing beside JSON, a table that changes in a terminal, else lines."""
    from holdfast.cli import views

    if as_json:
        yield lambda _: None
    elif _console.is_terminal:
        with Live(console=_console, refresh_per_second=8) as live:
            yield lambda now: live.update(
                views.demo(run, run.query.status["nodes"], now, _console.width)
            )
    else:
        yield views.Lines(_console, run.query.name)


@app.command()
def nexmark(
    query: Annotated[str, typer.Argument(help="q1, q3, q8 or q12.")],
    *,
    rate: Annotated[str, typer.Option(help="Tuples per second, or max.")] = "10000",
    seconds: Annotated[float, typer.Option(help="Length of the run at that rate.")] = 20,
    events: Annotated[int, typer.Option(help="With --rate max: how many events.")] = 5_000_000,
    parallelism: Annotated[int, typer.Option(help="Instances of every unit.")] = 1,
    protection: Annotated[
        str,
        typer.Option(
            help="amnesia, upstream-backup, passive-standby, active-standby, checkpointed, none."
        ),
    ] = "upstream-backup",
    interval: Annotated[
        str | None, typer.Option(help="Period of checkpoints, or of a standby's differences.")
    ] = None,
    guarantee: Annotated[
        str | None, typer.Option(help="precise, rollback or gap; the protection's own by default.")
    ] = None,
    emit: Annotated[str, typer.Option(help="q8 and q12: final or changes.")] = "final",
    hot_ratio: Annotated[float, typer.Option(help="Share of hot items.")] = 0.0,
    kill: Annotated[list[str] | None, typer.Option(help="unit@seconds, e.g. counts@8s.")] = None,
    verify: Annotated[bool, typer.Option(help="Compare with Spark SQL.")] = False,
    location: Annotated[str | None, typer.Option(help=_LOCATION)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Run a NexMark query, kill nodes if wanted, compare with Spark SQL."""
    from holdfast.api.protections import parse_protection
    from holdfast.nexmark.queries import KINDS
    from holdfast.nexmark.run import Kill, NexmarkRun

    kinds = KINDS.get(query)
    if kinds is None:
        raise typer.BadParameter(f"{query!r}; there are {', '.join(KINDS)}", param_hint="QUERY")
    pace = None if rate == "max" else _pace(rate)
    if pace is not None:
        events = _events_of(kinds, pace, seconds)
    protected = parse_protection(protection, guarantee, interval)
    run = NexmarkRun(query, events, pace, parallelism, protected, emit, hot_ratio=hot_ratio)
    kills = [Kill.parse(k) for k in kill or []]
    report = _run_nexmark(run, kills, location, is_verified=verify)
    _print_report(f"NexMark {query}", report, as_json=as_json)
    raise typer.Exit(1 if report["verified"] is False else 0)


def _run_nexmark(
    run: NexmarkRun, kills: list[Kill], location: str | None, *, is_verified: bool
) -> dict[str, Any]:
    """What came of it. Raises `Exit` when the user has interrupted it."""
    from holdfast.driver.session import session
    from holdfast.nexmark.run import run_nexmark

    interrupts = Interrupts()
    with ExitStack() as places:
        stops: list[Callable[[], None]] = []
        try:
            with interrupts.asking():
                spark = session("holdfast-nexmark", slots=max(8, 3 * run.parallelism + 2))
                stops.append(spark.stop)
                interrupts.take_over()
            if kills:
                spark.sparkContext.setLogLevel("OFF")  # A killed task is no news here.
            place = _place(spark, location, places)
            report = run_nexmark(spark, run, kills=kills, verify=is_verified, location=place)
        except KeyboardInterrupt:
            _console.print("interrupted; stopping the nodes")
        finally:
            interrupts.stop(*stops)
    if interrupts.is_asked:
        raise typer.Exit(INTERRUPTED)
    return report


def _pace(rate: str) -> float:
    """Tuples per second. Raises `BadParameter` when it is no positive number."""
    try:
        pace = float(rate)
    except ValueError:
        raise typer.BadParameter(f"{rate!r} is neither a number nor max") from None
    if pace <= 0:
        raise typer.BadParameter("--rate and --seconds must be positive")
    return pace


def _events_of(kinds: Sequence[str], pace: float, seconds: float) -> int:
    """How many events have as many tuples of these kinds as come in so many seconds."""
    from holdfast.nexmark.source import counts_of

    if seconds <= 0:
        raise typer.BadParameter("--rate and --seconds must be positive")
    per_event = sum(counts_of(5000)[kind] for kind in kinds) / 5000
    return max(50, int(pace * seconds / per_event) // 50 * 50)


def _print_report(title: str, report: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        _print_json(report)
        return
    from holdfast.cli import views

    table = Table(title=title, show_header=False)
    for key, value in report.items():
        told = views.what_failed(value) if key == "failures" else json.dumps(value)
        table.add_row(key, Text(told))
    Console().print(table)


@app.command()
def inspect(
    location: Annotated[
        str, typer.Argument(metavar="LOCATION", help="A query's checkpointLocation.")
    ],
    *,
    state: Annotated[str | None, typer.Option(help="Show the state of this operator.")] = None,
    limit: Annotated[int, typer.Option(help="With --state: so many rows at most.")] = 20,
    store: Annotated[str | None, typer.Option(help="Where checkpoints are, if moved.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """List the checkpoints and footprints of a query, or show what the newest checkpoints hold."""
    from holdfast.api.protections import Checkpointed
    from holdfast.cli import views
    from holdfast.driver.footprint_inspection import eventual_checkpoints
    from holdfast.driver.inspection import Inspection, has_checkpoints

    eventual = eventual_checkpoints(location) if state is None else []
    if eventual and not as_json:
        views.print_eventual_checkpoints(Console(), eventual)
    if eventual and not has_checkpoints(location):
        if as_json:
            _print_json([checkpoint.to_json() for checkpoint in eventual])
        return
    spec = None if store is None else Checkpointed(store=store).store_spec(location)
    inspection = Inspection(location, spec)
    if state is None:
        found = inspection.checkpoints()
        if as_json:
            _print_json([c.to_json() for c in eventual] + [c.to_json() for c in found])
        else:
            views.print_checkpoints(Console(), found, inspection.operators)
        return
    rows = inspection.state(state)
    if as_json:
        _print_json(rows.slice(0, limit).to_pylist())
    else:
        views.print_rows(Console(), state, rows, limit)


def _place(spark: SparkSession, given: str | None, places: ExitStack) -> str:
    """The location given, or a folder that is deleted when `places` is closed.

    Raises:
        OptionError: None is given, and the executors of a cluster would not see one of this host.
    """
    if given is not None:
        return given
    if not spark.sparkContext.master.startswith("local"):
        raise OptionError("on a cluster name a --location: a folder or URL that all hosts see")
    return places.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-"))


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def main() -> None:
    """The entry point: errors of Holdfast are one line, without a traceback."""
    try:
        app()
    except HoldfastError as error:
        _console.print(f"[bold red]{type(error).__name__}:[/]", end=" ")
        said = "\n".join([str(error), *getattr(error, "__notes__", ())])
        _console.print(said, markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
