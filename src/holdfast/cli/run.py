"""`holdfast run`: run the dataflow that a file defines, until it ends or is stopped."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from holdfast.cli import flow_file, views
from holdfast.cli.interrupts import INTERRUPTED, Interrupts
from holdfast.errors import OptionError, QueryEndedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.api.protections import Protection
    from holdfast.driver.query import Query

_POLL_S: Final = 0.2

ProtectionName = Annotated[
    str | None,
    typer.Option(help="Of all units; by default `protection` of the file, if it has one."),
]
Interval = Annotated[
    str | None, typer.Option(help="Period of checkpoints, or of a standby's differences.")
]
Guarantee = Annotated[
    str | None, typer.Option(help="precise, rollback or gap; the protection's own by default.")
]
Parallelism = Annotated[int, typer.Option(help="Instances of every stateful unit.")]
Slots = Annotated[int, typer.Option(help="Task slots of a local Spark.")]
Conf = Annotated[
    list[str] | None, typer.Option(help="A setting, e.g. spark.holdfast.keepAliveMs=50.")
]
Keep = Annotated[
    list[str] | None,
    typer.Option(help="Of a changed dataflow, an operator that keeps what it holds."),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(help="Of a changed dataflow, an operator or source to let go of what it holds."),
]


@dataclass(frozen=True, slots=True)
class _Served:
    """At which ports of this machine something is served; None: it is not."""

    metrics_port: int | None
    view_port: int | None


def run(
    target: Annotated[
        str, typer.Argument(metavar="FLOW.py", help="A file, or file.py:name; by default `flow`.")
    ],
    *,
    location: Annotated[
        str, typer.Option(help="The checkpointLocation: a folder or URL that all hosts see.")
    ],
    protection: ProtectionName = None,
    interval: Interval = None,
    guarantee: Guarantee = None,
    parallelism: Parallelism = 1,
    slots: Slots = 16,
    conf: Conf = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve metrics for Prometheus at this port of 127.0.0.1.")
    ] = None,
    view_port: Annotated[
        int | None, typer.Option(help="Serve the live view at this port of 127.0.0.1; read-only.")
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another driver runs it; then take over.")
    ] = False,
    keep: Keep = None,
    drop: Drop = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only, at the end.")] = False,
) -> None:
    """Run the dataflow of a file until it ends, fails or is stopped.

    Ctrl-C and SIGTERM stop it in order; run it again at the same location, and it goes on. A
    driver in standby takes over then.
    """
    file = flow_file.file_and_name(target)
    start = arguments(location, protection, guarantee, interval, parallelism, conf)
    start |= {"standby": standby, "state": wishes(keep, drop)}
    console = Console(stderr=True)
    served = _Served(metrics_port, view_port)
    summary = _run(file, start, slots, served, console, is_quiet=as_json)
    if summary is not None:
        _show(summary, console, as_json=as_json)


def arguments(
    location: str,
    protection: str | None,
    guarantee: str | None,
    interval: str | None,
    parallelism: int,
    conf: list[str] | None,
) -> dict[str, Any]:
    """What options say, as `flow.start` takes it. Raises `OptionError`."""
    given: dict[str, Any] = {
        "checkpointLocation": location,
        "parallelism": parallelism,
        "options": _settings(conf or []),
    }
    if chosen := _protection(protection, guarantee, interval):
        given["protection"] = chosen
    return given


def wishes(keep: list[str] | None, drop: list[str] | None) -> dict[str, str]:
    """`state` as `flow.start` takes it. Raises `OptionError`."""
    if both := set(keep or ()) & set(drop or ()):
        raise OptionError(f"{', '.join(sorted(both))} cannot be kept and dropped")
    return dict.fromkeys(keep or (), "keep") | dict.fromkeys(drop or (), "drop")


def _run(
    file: tuple[str, str],
    start: dict[str, Any],
    slots: int,
    served: _Served,
    console: Console,
    *,
    is_quiet: bool,
) -> dict[str, Any] | None:
    """Run until it ends; how it went, or None if another driver has ended it meanwhile.

    Args:
        file: The module, and the dataflow's name in it.
        start: Arguments of `Dataflow.start`.
        slots: Of a local Spark.
        served: At which ports to serve what.
        console: What to say goes there.
        is_quiet: Whether to say nothing while it runs.

    Raises:
        Exit: The user has interrupted it.
    """
    from holdfast.driver.session import session

    flow_file.check(file[0])  # Before Spark starts, which takes seconds.
    interrupts = Interrupts()
    stops: list[Callable[[], None]] = []
    summary: dict[str, Any] = {}
    if served.metrics_port is not None:
        stops.append(_serve_metrics(served.metrics_port, console))
    try:
        with interrupts.asking():
            spark = session("holdfast-run", slots=slots)
            stops.insert(0, lambda: _stop_spark(spark))
            interrupts.take_over()
        flow, of_file = flow_file.loaded(file, spark)
        interrupts.take_over()  # The file may have made a session of its own.
        query = flow.start(spark, **of_file | start)
        stops.insert(0, lambda: query.stop(is_over=False))
        if served.view_port is not None:
            stops.insert(0, _serve_view(query, served.view_port, console))
        with interrupts.asking():
            _watch(query, interrupts, console, is_quiet=is_quiet)
        summary = _summary(query, start["checkpointLocation"])
    except QueryEndedError as ended:
        console.print(str(ended), highlight=False)
        return None
    except KeyboardInterrupt:
        console.print("asked to stop; stopping the nodes")
    finally:
        interrupts.stop(*stops)
    if interrupts.is_asked:
        raise typer.Exit(INTERRUPTED)
    return summary


def _stop_spark(spark: SparkSession) -> None:
    """All that matters has been said: what Spark says of tasks that end with it is noise."""
    spark.sparkContext.setLogLevel("OFF")
    spark.stop()


def _serve_metrics(port: int, console: Console) -> Callable[[], None]:
    """Serve metrics; how to stop that."""
    from holdfast.view.metrics import serve_metrics

    metrics = serve_metrics(port)
    console.print(f"metrics at {metrics.url}", highlight=False)
    return metrics.stop


def _serve_view(query: Query, port: int, console: Console) -> Callable[[], None]:
    """Serve the live view; how to stop that."""
    view = query.view(port=port)
    console.print(f"view at {view.url}", highlight=False)
    return view.stop


def _show(summary: dict[str, Any], console: Console, *, as_json: bool) -> None:
    """Say how it went. Raises `typer.Exit` if it has failed."""
    if as_json:
        sys.stdout.write(json.dumps(summary, indent=2, default=str) + "\n")
    elif summary["exception"] is None:
        console.print(f"{summary['name']} has ended: {summary['numOutputRows']:,} rows put out")
    if summary["exception"] is not None:
        console.print(summary["exception"], style="bold red", markup=False, highlight=False)
        raise typer.Exit(1)


def _watch(query: Query, interrupts: Interrupts, console: Console, *, is_quiet: bool) -> None:
    lines = views.Lines(console, query.name)
    while query.isActive and not interrupts.is_asked:
        if not is_quiet:
            lines(query.lastProgress)
        time.sleep(_POLL_S)  # Progress is asked for; nothing tells of it.


def _summary(query: Query, location: str) -> dict[str, Any]:
    query.stop()
    error = query.exception()
    progress = query.lastProgress
    rows = {key: progress[key] for key in ("numInputRows", "numOutputRows", "lateRows")}
    return {
        "name": query.name,
        "id": query.id,
        "location": location,
        **rows,
        "failures": query.failures,
        "recoveries": query.recoveries,
        "exception": None if error is None else str(error),
    }


def _settings(given: list[str]) -> dict[str, str]:
    """Settings as `flow.start` takes them. Raises `OptionError`."""
    settings: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals:
            raise OptionError(f"--conf {each!r}; write name=value")
        settings[key] = value
    return settings


def _protection(name: str | None, guarantee: str | None, interval: str | None) -> Protection | None:
    from holdfast.api.protections import parse_protection

    if name is None:
        if guarantee is not None or interval is not None:
            raise OptionError("--guarantee and --interval are of a --protection; name one")
        return None
    return parse_protection(name, guarantee, interval)
