"""What has been translated of a plan: a stream, and the names of the plan's columns in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.model.column_names import quoted

if TYPE_CHECKING:
    from holdfast.api.streams import Stream
    from holdfast.driver.catalyst.trees import Expression


@dataclass(frozen=True, slots=True)
class Native:
    """A stream of Holdfast's that has a plan's columns.

    Attributes:
        stream: The stream.
        names: By Spark's number of a column, its name in the stream; of a window two.
        time: The number of the column with the tuple time; None: no column has it.
    """

    stream: Stream
    names: dict[int, str | tuple[str, str]]
    time: int | None

    def written(self, tree: Expression) -> str | None:
        """How the stream's columns are written."""
        if tree.kind == "AttributeReference" and tree.id in self.names:
            name = self.names[tree.id]
            return quoted(name) if isinstance(name, str) else None
        if tree.kind == "GetStructField" and tree.children[0].kind == "AttributeReference":
            bounds = self.names.get(tree.children[0].id)
            if isinstance(bounds, tuple):
                return quoted(bounds[tree.fields["ordinal"]])
        return None


@dataclass(slots=True)
class Columns:
    """The columns that a plan puts out, as they are found: one text each, two of a window."""

    texts: list[str] = field(default_factory=list)
    names: dict[int, str | tuple[str, str]] = field(default_factory=dict)

    def add(self, number: int, name: str, text: str) -> None:
        """A column computed by a text."""
        given = self._unique(name, number)
        self.texts.append(f"{text} AS {quoted(given)}")
        self.names[number] = given

    def add_window(self, number: int, name: str, bounds: tuple[str, str]) -> None:
        """The column of a window, whose start and end are these columns."""
        given = self._unique(f"{name}_start", number), self._unique(f"{name}_end", number)
        texts = zip(bounds, given, strict=True)
        self.texts += [f"{quoted(bound)} AS {quoted(name)}" for bound, name in texts]
        self.names[number] = given

    @property
    def own(self) -> Iterator[str]:
        """The columns' names in the stream."""
        for each in self.names.values():
            yield from (each,) if isinstance(each, str) else each

    def _unique(self, name: str, number: int) -> str:
        """Streams have each name once, whatever its case; Spark's plans need not."""
        taken = {each.lower() for each in self.own}
        return f"{name}_{number}" if name.lower() in taken else name
