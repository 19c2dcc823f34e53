"""Sinks outside of the location that Holdfast can read again: to show them, and to verify them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_LOOK_INTERVAL_S: Final = 0.05


@runtime_checkable
class ReadableSink(Protocol):
    """A sink, by its name in the dataflow and the checkpoint location."""

    def read(self, name: str, spark: SparkSession, location: str, schema: pa.Schema) -> DataFrame:
        """What it holds. Raises `UnsupportedError` if Spark cannot read it."""
        ...

    def promised_us(self, name: str, location: str) -> int:
        """Nothing older than this comes to it any more; `END_US` if nothing comes at all."""
        ...

    def is_published(self, name: str, location: str, wanted: Mapping[str, int]) -> bool:
        """Whether readers see, of each of its streams, all tuples before an id."""
        ...


def wait_until_published(
    sink: ReadableSink,
    name: str,
    location: str,
    wanted: Mapping[str, int],
    lives: Callable[[], bool],
) -> None:
    """Wait until readers see the tuples of the sink's streams up to these ids."""
    mine = {s: before for s, before in wanted.items() if s.rpartition("[")[0] == name and before}
    while not sink.is_published(name, location, mine) and lives():
        time.sleep(_LOOK_INTERVAL_S)  # Nodes tell nobody what they have published.
