"""How many pages several structures take together."""

from __future__ import annotations

from typing import Protocol


class Paged(Protocol):
    """A structure in pages."""

    @property
    def page_count(self) -> int:
        """How many pages it takes."""
        ...


def total_pages(*structures: Paged | None) -> int:
    """The pages of all of them; None takes none."""
    return sum(structure.page_count for structure in structures if structure is not None)
