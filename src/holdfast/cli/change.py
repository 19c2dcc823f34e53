"""`holdfast drain` and `holdfast check`: have a location go on with a changed dataflow."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import flow_file
from holdfast.cli.run import (
    Conf,
    Drop,
    Guarantee,
    Interval,
    Keep,
    Parallelism,
    ProtectionName,
    Slots,
    arguments,
    wishes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Target = Annotated[
    str, typer.Argument(metavar="FLOW.py", help="A file, or file.py:name; by default `flow`.")
]
Location = Annotated[str, typer.Argument(metavar="LOCATION", help="The checkpointLocation.")]


def drain(
    target: Target,
    location: Location,
    *,
    protection: ProtectionName = None,
    interval: Interval = None,
    guarantee: Guarantee = None,
    parallelism: Parallelism = 1,
    slots: Slots = 16,
    conf: Conf = None,
) -> None:
    """Work off what was recorded, and leave a location so that a changed dataflow can go on.

    The file is the one that has run there, as it was.
    """
    given = arguments(location, protection, guarantee, interval, parallelism, conf)
    _with_flow(target, slots, given, lambda flow, spark, how: flow.drain(spark, **how))
    sys.stdout.write(f"{location} was left at a cut: a changed dataflow can go on there\n")


def check(
    target: Target,
    location: Location,
    *,
    protection: ProtectionName = None,
    interval: Interval = None,
    guarantee: Guarantee = None,
    parallelism: Parallelism = 1,
    slots: Slots = 16,
    conf: Conf = None,
    keep: Keep = None,
    drop: Drop = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Say what would happen if a changed dataflow went on at a location. Nothing is done.

    Exit code 1 when it would be refused.
    """
    given = arguments(location, protection, guarantee, interval, parallelism, conf)
    given["state"] = wishes(keep, drop)
    found = _with_flow(target, slots, given, lambda flow, spark, how: flow.changes(spark, **how))
    if as_json:
        sys.stdout.write(json.dumps(found.to_json(), indent=2) + "\n")
    else:
        sys.stdout.write((str(found) or "nothing has changed") + "\n")
    raise typer.Exit(1 if found.refused else 0)


def _with_flow(
    target: str, slots: int, given: dict[str, Any], act: Callable[[Any, Any, dict[str, Any]], Any]
) -> Any:
    """Do something with the dataflow of a file, and a session that ends with it."""
    from holdfast.driver.session import session

    file = flow_file.file_and_name(target)
    flow_file.check(file[0])  # Before Spark starts, which takes seconds.
    spark = session("holdfast-change", slots=slots)
    try:
        flow, of_file = flow_file.loaded(file, spark)
        return act(flow, spark, of_file | given)
    finally:
        spark.stop()
