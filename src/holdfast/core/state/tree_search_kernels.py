"""Finding one's way in a T-tree; what a node looks like is in `tree_kernels.py`."""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.state.kernels import kernel, resolve
from holdfast.core.state.page_layout import OWN, PAGES, Pages

ROOT: Final = OWN
EMPTIED: Final = OWN + 1

PARENT: Final = 0
LEFT: Final = 1
RIGHT: Final = 2
HEIGHT: Final = 3
COUNT: Final = 4
NODE_WORDS: Final = 5
"""Before the records: so few that a node's first key is in the cache line of its links."""
ABREAST: Final = 32
"""Keys looked up at the same time: what they wait for in memory comes together."""


@kernel("int64(int64, int64)")
def node_capacity(shift: int, width: int) -> int:
    """How many records of `width` words a node holds."""
    return ((1 << shift) - NODE_WORDS) // width


@kernel("int64(int64)")
def least_count(capacity: int) -> int:
    """Records that an inner node tries to keep: three quarters of what it holds."""
    return max(1, capacity - capacity // 4)


@kernel(f"int64({PAGES}, int64)")
def node_at(tree: Pages, link: int) -> int:
    """Physical word address of a node; to be written only once it is touched."""
    return tree[4][link - 1] << tree[3]


@kernel(f"int64({PAGES}, int64, int64)")
def field_of(tree: Pages, link: int, field: int) -> int:
    """A word of a node."""
    return tree[0][node_at(tree, link) + field]


@kernel(f"int64({PAGES}, int64)")
def height_of(tree: Pages, link: int) -> int:
    """The height of a subtree; 0: it is empty."""
    return field_of(tree, link, HEIGHT) if link != 0 else 0


@kernel(f"int64({PAGES}, int64)")
def side_of(tree: Pages, link: int) -> int:
    """On which side of its parent a node is."""
    return LEFT if field_of(tree, field_of(tree, link, PARENT), LEFT) == link else RIGHT


@kernel(f"int64({PAGES}, int64, int64)")
def outermost(tree: Pages, link: int, side: int) -> int:
    """The last node when going to one side only; `link` itself if it has no such child."""
    following = link
    while following != 0:
        link = following
        following = field_of(tree, link, side)
    return link


@kernel(f"int64({PAGES})")
def leftmost(tree: Pages) -> int:
    """The node with the least keys; 0 if the tree is empty."""
    return outermost(tree, tree[0][resolve(tree[4], 0, tree[3]) + ROOT], LEFT)


@kernel(f"int64({PAGES}, int64)")
def successor(tree: Pages, link: int) -> int:
    """The next node in key order, 0 after the last."""
    right = field_of(tree, link, RIGHT)
    if right != 0:
        return outermost(tree, right, LEFT)
    parent = field_of(tree, link, PARENT)
    while parent != 0 and field_of(tree, parent, RIGHT) == link:
        link = parent
        parent = field_of(tree, link, PARENT)
    return parent


@kernel("int64(int64[::1], int64, int64[::1], int64, int64)")
def compare_keys(arena: np.ndarray, address: int, keys: np.ndarray, start: int, k: int) -> int:
    """-1, 0 or 1: the key at `address` of the arena is less, equal or greater."""
    for j in range(k):
        stored = arena[address + j]
        wanted = keys[start + j]
        if stored != wanted:
            return -1 if stored < wanted else 1
    return 0


@kernel(f"UniTuple(int64, 2)({PAGES}, int64[::1], int64, int64)")
def descend(tree: Pages, keys: np.ndarray, start: int, k: int) -> tuple[int, int]:
    """The last node that begins at or before the key (0: none), and where the search ended.

    These are the same if the first has no right child; else the second is the next node in key
    order, and has no left child.
    """
    arena, _, _, shift, table = tree
    link = arena[resolve(table, 0, shift) + ROOT]
    covering = np.int64(0)
    last = np.int64(0)
    while link != 0:
        last = link
        node = node_at(tree, link)
        if compare_keys(arena, node + NODE_WORDS, keys, start, k) > 0:
            link = arena[node + LEFT]
        else:
            covering = link
            link = arena[node + RIGHT]
    return covering, last


@kernel(f"int64({PAGES}, int64, int64, int64[::1], int64, int64)")
def lower_bound(tree: Pages, link: int, width: int, keys: np.ndarray, start: int, k: int) -> int:
    """Number of the node's first record with this key or a greater one; its count if none."""
    arena = tree[0]
    node = node_at(tree, link)
    low = np.int64(0)
    high = arena[node + COUNT]
    while low < high:
        middle = (low + high) >> 1
        if compare_keys(arena, node + NODE_WORDS + middle * width, keys, start, k) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(f"UniTuple(int64, 4)({PAGES}, int64, int64[::1], int64, int64)")
def find_key(
    tree: Pages, width: int, keys: np.ndarray, start: int, k: int
) -> tuple[int, int, int, int]:
    """Where a key is, or belongs.

    Returns:
        The physical address of its record, or -1; what `descend` returns; and the number that
        the record has, or would have, in the first of these nodes.
    """
    covering, last = descend(tree, keys, start, k)
    if covering == 0:
        return -1, covering, last, 0
    at = lower_bound(tree, covering, width, keys, start, k)
    address = node_at(tree, covering) + NODE_WORDS + at * width
    if at == field_of(tree, covering, COUNT) or compare_keys(tree[0], address, keys, start, k) != 0:
        address = -1
    return address, covering, last, at


@kernel(f"void({PAGES}, int64, int64[::1], int64, int64, int64[:,::1])")
def find_abreast(
    tree: Pages, width: int, keys: np.ndarray, start: int, k: int, places: np.ndarray
) -> None:
    """`descend` and `lower_bound` for a key per row of `places`, all one step at a time.

    Args:
        places: int64 (n, 3): the covering node and the number in it; the third is for the search.
    """
    arena, _, _, shift, table = tree
    n = len(places)
    root = arena[resolve(table, 0, shift) + ROOT]
    for i in range(n):
        places[i, 0] = 0
        places[i, 1] = root
    for _ in range(height_of(tree, root)):
        for i in range(n):
            link = places[i, 1]
            if link == 0:
                continue
            node = node_at(tree, link)
            if compare_keys(arena, node + NODE_WORDS, keys, start + i * k, k) > 0:
                places[i, 1] = arena[node + LEFT]
            else:
                places[i, 0] = link
                places[i, 1] = arena[node + RIGHT]
    for i in range(n):
        places[i, 1] = 0
        places[i, 2] = field_of(tree, places[i, 0], COUNT) if places[i, 0] != 0 else 0
    left = node_capacity(shift, width)
    while left > 0:  # No row has more records left to search.
        left >>= 1
        for i in range(n):
            if places[i, 1] == places[i, 2]:
                continue
            middle = (places[i, 1] + places[i, 2]) >> 1
            address = node_at(tree, places[i, 0]) + NODE_WORDS + middle * width
            if compare_keys(arena, address, keys, start + i * k, k) < 0:
                places[i, 1] = middle + 1
            else:
                places[i, 2] = middle
