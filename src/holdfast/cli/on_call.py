"""`holdfast status | stop | kill | promote LOCATION`: from a shell, against a running query.

The query may run in any process, on any machine that sees its checkpoint location. The commands
put a request there, which the query's driver carries out (`driver/requests.py`).
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console

Location = Annotated[
    str, typer.Argument(metavar="LOCATION", help="The query's checkpointLocation.")
]
Timeout = Annotated[float, typer.Option(help="Wait so many seconds for the query's answer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON only.")]


def status(location: Location, *, timeout: Timeout = 15, as_json: AsJson = False) -> None:
    """Show a running query: nodes, rates, failures, and what its user should know."""
    from holdfast.cli import views

    found = _ask(location, "status", "", timeout)
    if as_json:
        _print_json(found)
        return
    console = Console()
    shown, progress = found["status"], found["progress"]
    console.print(views.progress(found["name"], shown["nodes"], progress, None, console.width))
    for note in shown["notes"]:
        console.print(f"note: {note}", markup=False, highlight=False)


def stop(location: Location, *, timeout: Timeout = 60, as_json: AsJson = False) -> None:
    """Stop a running query in order; started again, it goes on where it stopped."""
    from holdfast.driver import asking

    has_stopped = asking.stop(location, timeout)
    _say({"stopped" if has_stopped else "stopping": True}, as_json=as_json)


def kill(
    location: Location,
    target: Annotated[str, typer.Argument(metavar="UNIT", help="A unit, or a node: counts[0].")],
    *,
    timeout: Timeout = 15,
    as_json: AsJson = False,
) -> None:
    """SIGKILL the nodes of a unit, to see it recover, or to get rid of one that hangs."""
    _say(_ask(location, "kill", target, timeout), as_json=as_json)


def promote(
    location: Location,
    unit: Annotated[str, typer.Argument(help="A unit with a standby.")],
    *,
    timeout: Timeout = 30,
    as_json: AsJson = False,
) -> None:
    """Have the secondaries of a unit take over, e.g. before maintenance of a machine."""
    _say(_ask(location, "promote", unit, timeout), as_json=as_json)


def _ask(location: str, action: str, target: str, timeout_s: float) -> dict[str, Any]:
    from holdfast.driver.asking import ask

    return ask(location, action, target, timeout_s)


def _say(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        _print_json(answer)
        return
    for key, value in answer.items():
        text = ", ".join(value) if isinstance(value, list) else "" if value is True else value
        sys.stdout.write(f"{key} {text}".rstrip() + "\n")


def _print_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
