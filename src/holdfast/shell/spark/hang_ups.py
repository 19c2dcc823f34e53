"""Keeps PySpark's server of accumulators quiet when the JVM closes a connection to it.

The JVM connects again with the next update, and nothing is lost. PySpark prints a traceback all the
same, amid the lines by which Holdfast says what has failed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext


def pass_over_hang_ups(context: SparkContext) -> None:
    """From now on an end of a connection is no error there; every other error is printed."""
    server: Any = getattr(context, "_accumulatorServer", None)
    if server is None or "handle_error" in vars(server):
        return
    print_error = server.handle_error

    def handle_error(request: object, address: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError):
            print_error(request, address)

    server.handle_error = handle_error
