"""Run with a copy of Holdfast that has CONTRIBUTING.md's example: flights, with `drop_nulls`.

The dataflow of the flights leaves out cancelled ones by a filter. Here the new operator does it,
under the faults of some seeds; every invariant has to hold.
"""

from typing import Any

import pytest

from holdfast.api.streams import Stream
from holdfast.core.operators import drop_nulls
from holdfast.errors import DataflowError
from holdfast.sim.seeds import Run, simulate

SEEDS = range(8)
CONDITION = "dep_delay IS NOT NULL"


def main() -> None:
    by_condition, used = Stream.filter, []

    def filter_(self: Any, condition: str, **more: Any) -> Any:
        if condition != CONDITION:
            return by_condition(self, condition, **more)
        used.append(condition)
        with pytest.raises(DataflowError, match="name columns of the stream"):
            self.drop_nulls("nothing")
        return self.drop_nulls("dep_delay")

    process, dropped = drop_nulls.DropNulls.process, [0]

    def counted(self: Any, inputs: Any, low: Any, boundary_us: int) -> Any:
        output = process(self, inputs, low, boundary_us)
        given = 0 if inputs[0] is None else len(inputs[0].time_us)
        dropped[0] += given - sum(len(piece.time_us) for piece in output.pieces)
        return output

    drop_nulls.DropNulls.process = counted
    Stream.filter = filter_
    for seed in SEEDS:
        outcome = simulate(Run(seed, dataflow="flights"))
        assert outcome.invariant is None, outcome
        assert outcome.rows > 0
    assert used
    assert dropped[0] > 0
    print(f"{dropped[0]} rows were dropped")


if __name__ == "__main__":
    main()
