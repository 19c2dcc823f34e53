"""Real runs of replicated units, by seed: `python -m holdfast_chaos --seeds 0:100`."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

import holdfast as hf
from holdfast_chaos.replicated_runs import execute_all, summary_of, told


def main() -> int:
    """Run the seeds, say how each went; 1 if something was not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m holdfast_chaos", description=__doc__)
    parser.add_argument("--protection", choices=["replicated"], default="replicated")
    parser.add_argument("--seeds", default="0:10", help="from:to")
    parser.add_argument("--report", help="a JSON file for all outcomes; those in it are kept")
    given = parser.parse_args()
    first, _, stop = given.seeds.partition(":")
    spark = hf.session("holdfast-chaos")
    spark.sparkContext.setLogLevel("OFF")  # A killed task is no news here.
    try:
        outcomes = execute_all(
            spark,
            range(int(first), int(stop or int(first) + 1)),
            lambda outcome: print(told(outcome), flush=True),
        )
    finally:
        spark.stop()
    summary = summary_of(outcomes)
    print(json.dumps(summary, indent=2))
    if given.report:
        with open(given.report, "w") as file:
            json.dump({**summary, "outcomes": [asdict(each) for each in outcomes]}, file, indent=1)
    return 1 if summary["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
