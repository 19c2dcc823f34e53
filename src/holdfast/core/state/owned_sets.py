"""Whose page sets are, so that one owner's state can be emptied while the others' stays.

Whoever is about to work says so (`owner`); what is created from then on is its own. Its lasting
page sets are created anew under the ids that they had (`built_anew`): a later life, and a snapshot
that is gone back to, find them in the order of every life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.core.state.page_manager import PageManager
    from holdfast.core.state.snapshot import PageSetId

T = TypeVar("T")


class OwnedSets:
    """The owners of one manager's page sets. Volatile: all fields."""

    def __init__(self) -> None:
        """There are no page sets."""
        self.owner = 0
        """Whose page sets are created from now on."""
        self._owners: dict[PageSetId, int] = {}

    def created(self, page_set: PageSetId) -> None:
        """There is one more."""
        self._owners[page_set] = self.owner

    def destroyed(self, page_set: PageSetId) -> None:
        """One is gone."""
        self._owners.pop(page_set, None)

    def of(self, owner: int) -> list[PageSetId]:
        """All of an owner. Cost: O(page sets of all)."""
        return [page_set for page_set, whose in self._owners.items() if whose == owner]

    def all(self) -> dict[PageSetId, int]:
        """Every page set with its owner, for `restore`."""
        return dict(self._owners)

    def restore(self, owners: Mapping[PageSetId, int]) -> None:
        """There are these page sets again."""
        self._owners = dict(owners)


def built_anew(pages: PageManager, owner: int, first_set: int, build: Callable[[], T]) -> T:
    """Release all page sets of an owner, and build what it is.

    Args:
        pages: Of the page sets.
        owner: Whose state goes.
        first_set: The first page set that it had built.
        build: Makes the owner, empty, with as many lasting page sets as before.
    """
    for page_set in pages.owned.of(owner):
        pages.destroy_page_set(page_set)
    pages.owned.owner = owner
    following, pages.next_set = pages.next_set, first_set
    try:
        return build()
    finally:
        pages.next_set = following
