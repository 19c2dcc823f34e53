"""A PySpark daemon that has everything a node needs imported and compiled before it forks.

Set `spark.python.daemon.module` to `holdfast.shell.spark.daemon`; a node's process is then a fork
that starts in milliseconds. What it has imported is left out of garbage collections ever after: to
look through all of it takes 65 ms, and would copy memory that all share.
"""

from __future__ import annotations

import gc


def main() -> None:
    """Warm up, then serve forks as PySpark's own daemon does."""
    # The worker's own module is half of what a fork would otherwise have to load.
    from pyspark import daemon, worker

    from holdfast.shell.spark import task

    del worker
    task.warm_up()
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
