"""`holdfast view LOCATION`: a page that shows a query, in a browser."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from holdfast.driver.asking import require_location
from holdfast.shell.storage.places import local_path
from holdfast.view.serving import LOOPBACK, PORT, serve
from holdfast.view.watching import Location

_WAIT_S = 0.5


def view(
    location: Annotated[
        str, typer.Argument(metavar="LOCATION", help="The query's checkpointLocation.")
    ],
    *,
    port: Annotated[int, typer.Option(help="Where to serve; 0 takes any free port.")] = PORT,
    address: Annotated[str, typer.Option(help="Elsewhere than here TLS is needed.")] = LOOPBACK,
    certificate: Annotated[str | None, typer.Option(help="For TLS: a PEM file.")] = None,
    key: Annotated[str | None, typer.Option(help="The certificate's key: a PEM file.")] = None,
    allow_actions: Annotated[
        bool, typer.Option("--allow-actions", help="The page may kill, promote and stop.")
    ] = False,
) -> None:
    """Show a query in a browser: whether it runs, has ended or died.

    It needs no more than the location. It serves this machine alone, and changes nothing, unless
    you say otherwise.
    """
    require_location(local_path(location))
    served = serve(
        Location(location),
        port=port,
        address=address,
        certificate=certificate,
        key=key,
        allow_actions=allow_actions,
    )
    sys.stdout.write(f"{served.url}\n")
    sys.stdout.flush()
    try:
        while not served.wait(_WAIT_S):
            pass
    except KeyboardInterrupt:
        served.stop()
