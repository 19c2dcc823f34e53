"""Real runs of units that recover together, by seed: nodes and drivers struck. [CheckMate]

The paper's queries, each kind of event from two sources that are merged as they come, and a loop.
The seed draws one of the protections, and what strikes (`runs.KINDS`). In some runs the driver is
killed as well, when results have come out, and the same is started again.

    python -m holdfast_chaos --protection together --seeds 0:100
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import holdfast as hf
from holdfast.sim.draw import Draw
from holdfast_chaos import runs
from holdfast_chaos.driver_process import DriverProcess, tell
from holdfast_chaos.promises import ARRIVAL, BY_ARRIVAL, LOOP, TOGETHER
from holdfast_chaos.runs import RealOutcome, RealRun, RealSummary, draw_faults, execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES: Final = (*BY_ARRIVAL, ARRIVAL, LOOP)
DRIVER: Final = "driver"
"""Among the kinds that struck: the driver was killed before anything else."""
SLOTS: Final = 16
"""Two instances of each unit of a query with two kinds of events."""
_DRIVER_PERCENT: Final = 10
_UP_S: Final = 15.0
"""Until a driver of its own has its session and its nodes."""
_TIMEOUT_S: Final = 400.0


def draw_run(seed: int) -> RealRun:
    """The run of a seed."""
    draw = Draw(f"{seed}/real/together")
    query = draw.one_of(QUERIES)
    faults = tuple(draw_faults(draw))
    emit = draw.one_of(("final", "changes"))
    return RealRun(seed, query, emit, draw.number(1, 2), faults, draw.one_of(TOGETHER))


def is_driver_killed(seed: int) -> bool:
    """Whether the driver of a seed's run is killed, too."""
    return Draw(f"{seed}/real/together/driver").percent(_DRIVER_PERCENT)


def execute_seed(spark: SparkSession, seed: int) -> RealOutcome:
    """Run a seed and check it: nobody goes back for nothing, so there must be checkpoints."""
    before = partial(_kill_driver, seed) if is_driver_killed(seed) else None
    outcome = execute(spark, draw_run(seed), before)
    if not outcome.checkpoints and not outcome.violations:
        outcome.violations.append("I-COUNT: no unit has taken a checkpoint")
    return outcome


def execute_all(
    spark: SparkSession, seeds: Iterable[int], say: Callable[[RealOutcome], None]
) -> RealSummary:
    """Run the seeds one after the other."""
    return runs.execute_all(spark, seeds, say, execute_seed)


def told(outcome: RealOutcome) -> str:
    """An outcome in a line."""
    run = outcome.run
    return (
        f"seed {run.seed}: {run.query}, {run.protection}, {run.parallelism} instances a unit; "
        f"{', '.join(outcome.struck) or 'no fault'}; {outcome.checkpoints} checkpoints; "
        f"{'; '.join(outcome.violations) or 'as it must be'}"
    )


# -- a driver that is killed ------------------------------------------------------------------


def _kill_driver(seed: int, folder: str, outcome: RealOutcome) -> int:
    """Run a driver of its own until results have come out, and kill it; see `runs.execute`.

    Windows may give none of what flows before something is struck: then until all of it was read.
    """
    origin_us = runs.first_event_us() + int(_UP_S * 1e6)
    arguments = [str(seed), folder, str(origin_us)]
    driver = DriverProcess(
        "holdfast_chaos.together_runs", arguments, Path(folder), results=0, has_read_all=False
    )
    try:
        deadline_s = time.monotonic() + _TIMEOUT_S
        while not (driver.told["results"] or driver.told["has_read_all"]):
            if driver.is_over.is_set() or time.monotonic() > deadline_s:
                raise TimeoutError(f"no result came of the driver that was to be killed: {driver}")
            time.sleep(0.01)  # Leaves the cores to what is waited for.
    finally:
        driver.kill()
    outcome.struck.append(DRIVER)
    return origin_us


def _drive(seed: int, folder: str, origin_us: int) -> None:
    """The driver that will be killed."""
    spark = hf.session("holdfast-together", SLOTS)
    run = draw_run(seed)
    flow = runs.flow_of(run, origin_us, runs.tap_of(run, folder))
    query = runs.start(spark, run, flow, runs.location_in(folder))
    while query.isActive:
        progress = query.lastProgress
        read = [each["numInputRows"] for each in progress["sources"]]
        has_read_all = bool(read) and min(read) >= runs.flows_at_first(run)
        tell({"results": progress["numOutputRows"], "has_read_all": has_read_all})
        time.sleep(0.05)  # Who listens has no other way to know.


if __name__ == "__main__":
    _drive(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
