"""Tables as sinks that can be read: each says itself how far every stream of a sink is."""

from __future__ import annotations

import abc
import os
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.core.model.ids import BEGINNING_US
from holdfast.driver.readable_sinks import present
from holdfast.shell.sinks.claimed_table import made_up_name
from holdfast.shell.sinks.collecting import CUT_TUPLES
from holdfast.shell.storage.places import store_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.shell.sinks.claimed_table import Said


class TableSink(abc.ABC):
    """What all such sinks do; see `OutsideSink` and `ReadableSink`."""

    __slots__ = ()
    unsynced_max: ClassVar[int] = 2 * CUT_TUPLES  # Some are collected while others are written.

    @abc.abstractmethod
    def _opened(self) -> Any:
        """The table as it is now."""

    @abc.abstractmethod
    def _said(self, table: Any, name: str) -> Said:
        """What it says of a stream that it knows by a name that was made up."""

    def feed_spec(self, sink: str, feed: str, instance: int, place: str) -> None:
        """Tables have no place for what is tentative."""
        return

    def promised_us(self, name: str, location: str, instances: int | None = None) -> int:
        """See `ReadableSink`."""
        said = present(self._said_of(name, location), instances)
        return min((each.boundary_us for each in said), default=BEGINNING_US)

    def is_published(self, name: str, location: str, wanted: Mapping[str, int]) -> bool:
        """See `ReadableSink`."""
        said = self._said_of(name, location)
        return all(
            stream in said and (said[stream].next_id or 0) >= before
            for stream, before in wanted.items()
        )

    def _said_of(self, name: str, location: str) -> dict[str, Said]:
        """Of each stream of a sink that has been written."""
        table, path = self._opened(), os.path.join(location, "streams", name)
        return {
            f"{name}[{index}]": self._said(
                table, made_up_name(os.path.join(path, index), f"{name}[{index}]")
            )
            for index in store_at(path).children()
        }
