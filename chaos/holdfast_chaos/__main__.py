"""Real runs by seed, of replicated units or of those that recover together.

python -m holdfast_chaos --seeds 0:100
python -m holdfast_chaos --protection together --seeds 0:100
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast as hf
from holdfast_chaos import replicated_runs, together_runs
from holdfast_chaos.seeds import seeds_in
from holdfast_chaos.together_runs import SLOTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _replicated(spark: SparkSession, seeds: range) -> dict[str, Any]:
    outcomes = replicated_runs.execute_all(
        spark, seeds, lambda outcome: print(replicated_runs.told(outcome), flush=True)
    )
    summary = replicated_runs.summary_of(outcomes)
    return {**summary, "outcomes": [asdict(each) for each in outcomes]}


def _together(spark: SparkSession, seeds: range) -> dict[str, Any]:
    summary = together_runs.execute_all(
        spark, seeds, lambda outcome: print(together_runs.told(outcome), flush=True)
    )
    return {**summary.to_json(), "outcomes": [each.to_json() for each in summary.outcomes]}


_RUNS = {"replicated": _replicated, "together": _together}


def main() -> int:
    """Run the seeds, say how each went; 1 if something was not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_chaos", description=__doc__)
    parser.add_argument("--protection", choices=list(_RUNS), default="replicated")
    parser.add_argument("--seeds", default="0:10", help="from:to")
    parser.add_argument("--report", help="a JSON file for all outcomes; those in it are kept")
    given = parser.parse_args()
    spark = hf.session("holdfast-chaos", SLOTS)
    spark.sparkContext.setLogLevel("OFF")  # A killed task is no news here.
    try:
        found = _RUNS[given.protection](spark, seeds_in(given.seeds))
    finally:
        spark.stop()
    print(json.dumps({**found, "outcomes": len(found["outcomes"])}, indent=2))
    if given.report:
        _keep(Path(given.report), {"protection": given.protection, "seeds": given.seeds, **found})
    return 1 if found["violations"] else 0


def _keep(report: Path, found: dict[str, Any]) -> None:
    """Write what was found behind what is there."""
    former = json.loads(report.read_text()) if report.exists() else []
    report.write_text(json.dumps([*former, found], indent=1))


if __name__ == "__main__":
    sys.exit(main())
