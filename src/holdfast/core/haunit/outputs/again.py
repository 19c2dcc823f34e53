"""Stable tuples at the end of a stream that operators give once more. [DPC "SOutput"]

A node in up_failure puts out as stable what missing input does not reach. When its operators go
back to the cut, they give that again. It is out, under the same ids, and is left out here. The same
rows may be given as tentative first, if the correction before was one in part: 1. A stream is
there, and its tuples up to 70 are out. 2. Another one has come up to 25; all is corrected up to
there. 3. Then the first one is missing, too. 4. What is given of it up to 70 is stable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class PutOutAgain:
    """Of one stream. Volatile: all fields."""

    __slots__ = ("_of_run", "tuples")

    def __init__(self) -> None:
        """The operators are at its end."""
        self.tuples = 0
        """So many of its tuples, the last ones, are still to come once more."""
        self._of_run = 0  # the same of the present run

    def went_back(self, tuples: int) -> None:
        """The operators are where they gave the first of so many tuples next."""
        self.tuples = tuples

    def new_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Of rows that are given as stable those that are not out."""
        if not self.tuples:
            return batch
        skipped = min(self.tuples, batch.num_rows)
        self.tuples -= skipped
        return batch.slice(skipped)

    def run_begins(self) -> None:
        """From here on rows are tentative, until the operators go back once more."""
        self._of_run = self.tuples

    def new_of_run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Of rows that are given as tentative those that do not stand for stable ones."""
        skipped = min(self._of_run, batch.num_rows)
        self._of_run -= skipped
        return batch.slice(skipped)
