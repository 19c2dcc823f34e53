"""The batch twin of a loop: laps until nothing new comes back.

What has gone round n times holds all that had gone round n - 1 times, as operators of loops only
add rows to what more rows give. So as many rows as before are the same rows, copies counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


def looped(went_in: DataFrame, came_back: Callable[[DataFrame], DataFrame]) -> DataFrame:
    """All that ever is in a loop.

    Args:
        went_in: What goes in from outside.
        came_back: Of what is in the loop what comes back.

    Cost: laps times what one lap over all rows costs.
    """
    present = went_in.localCheckpoint()
    count = present.count()
    while True:
        after = went_in.unionByName(came_back(present)).localCheckpoint()
        found = after.count()
        if found == count:
            return after
        present, count = after, found
