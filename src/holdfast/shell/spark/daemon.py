"""A PySpark daemon that has everything a node needs imported and compiled before it forks.

Set `spark.python.daemon.module` to `holdfast.shell.spark.daemon`; a node's process is then a fork
that starts in milliseconds. What it has imported is left out of garbage collections ever after: to
look through all of it takes 65 ms, and would copy memory that all share.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from typing import Any, Final

from holdfast.shell.spark import zipped_imports

_GONE: Final = 1
"""The exit code of a worker whose connection is closed: the daemon does not use it again."""


def main() -> None:
    """Warm up, then serve forks as PySpark's own daemon does."""
    sys.path[:] = zipped_imports.without_spark_zips(sys.path)
    # The worker's own module is half of what a fork would otherwise have to load.
    from pyspark import daemon, worker

    from holdfast.shell.spark import task

    del worker
    daemon.worker = _quiet(daemon.worker)
    task.warm_up()
    zipped_imports.keep_directories()
    gc.collect()
    gc.freeze()
    daemon.manager()


def _quiet(serve: Callable[..., int]) -> Callable[..., int]:
    """Serve as PySpark does, but say nothing when Spark has read as much as it wanted.

    `show(5)` closes the connection while a worker still writes. PySpark prints a traceback then.
    """

    @functools.wraps(serve)
    def serve_quietly(*args: Any) -> int:
        try:
            return serve(*args)
        except (BrokenPipeError, ConnectionResetError):
            return _GONE

    return serve_quietly


if __name__ == "__main__":
    main()
