"""Sinks outside of the location that Holdfast can read again: to show them, and to verify them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_LOOK_INTERVAL_S: Final = 0.05
Said = TypeVar("Said")


@runtime_checkable
class ReadableSink(Protocol):
    """A sink, by its name in the dataflow and the checkpoint location."""

    def read(self, name: str, spark: SparkSession, location: str, schema: pa.Schema) -> DataFrame:
        """What it holds. Raises `UnsupportedError` if Spark cannot read it."""
        ...

    def promised_us(self, name: str, location: str, instances: int | None = None) -> int:
        """Nothing older than this comes to it any more; `END_US` if nothing comes at all.

        Of so many instances; None: all that have written it are there.
        """
        ...

    def is_published(self, name: str, location: str, wanted: Mapping[str, int]) -> bool:
        """Whether readers see, of each of its streams, all tuples before an id."""
        ...


def present(streams: Mapping[str, Said], instances: int | None) -> list[Said]:
    """What is said of each of a sink's streams, e.g. `counts[0]`, that an instance writes today."""
    return [
        said
        for stream, said in streams.items()
        if instances is None or int(stream.rpartition("[")[2].removesuffix("]")) < instances
    ]


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
