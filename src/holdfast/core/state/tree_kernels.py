"""The inner loops of the T-tree, a node per page. [Lehman & Carey 1986; SGuard §4.3, Table 3]

Conventions as in `kernels.py`; super page and links as in `page_layout.py`, with two words of the
tree's own: the root, and the first of the emptied nodes (each leads to the next by its parent
word). Any other page is a node: parent, left, right, height (a leaf has 1), count; then `count`
records, ascending by their `k` key words (signed; the first word decides first). What is left of
a node is less than all of it, what is right of it greater; the heights of its sides differ by at
most one.

An insertion or removal has two phases. The first finds out what will change and touches it; it may
find a page missing, and then the tree is as before. The second changes it and cannot fail. The
first phase tells from the heights alone which nodes a rotation will involve.

* A new record goes into the node that covers its key; or to the end of the node before it, or else
  to the front of the one after it, if there is room; or into a new leaf where the search ended.
  Where the covering node is full, its least record moves out, to the end of the node before it
  (the rightmost of the left subtree) or into a new leaf there.
* An inner node (one with two children) that falls below `least_count` takes the greatest record of
  the node before it. So what shrinks in the end is a leaf, or a half-leaf (one child, which is a
  leaf). An empty leaf is dropped; and so is one whose records fit into the half-leaf above it, with
  a quarter to spare.
* A rotation may make an inner node of one with few records. It then gets some of the node that it
  has replaced at the top, so that inner nodes stay well filled.

Compiled code is cached by file, and the code of this file has `resolve` and `touch` inlined: after
an edit of these this file has to be compiled again.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.core.state.kernels import ENTRIES, kernel, resolve, touch
from holdfast.core.state.page_layout import FRESH, OWN, PAGES, Pages

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


# -- looking -----------------------------------------------------------------------------------


@kernel("int64(int64, int64)")
def node_capacity(shift: int, width: int) -> int:
    """How many records of `width` words a node holds."""
    return ((1 << shift) - NODE_WORDS) // width


@kernel("int64(int64)")
def least_count(capacity: int) -> int:
    """Records that an inner node tries to keep: three quarters of what it holds."""
    return max(1, capacity - capacity // 4)


@kernel(f"int64({PAGES}, int64)")
def _node(tree: Pages, link: int) -> int:
    """Physical word address of a node; to be written only once it is touched."""
    return tree[4][link - 1] << tree[3]


@kernel(f"int64({PAGES}, int64, int64)")
def _field(tree: Pages, link: int, field: int) -> int:
    return tree[0][_node(tree, link) + field]


@kernel(f"int64({PAGES}, int64)")
def _height(tree: Pages, link: int) -> int:
    return _field(tree, link, HEIGHT) if link != 0 else 0


@kernel(f"int64({PAGES}, int64)")
def _side(tree: Pages, link: int) -> int:
    """On which side of its parent a node is."""
    return LEFT if _field(tree, _field(tree, link, PARENT), LEFT) == link else RIGHT


@kernel(f"int64({PAGES}, int64, int64)")
def _outermost(tree: Pages, link: int, side: int) -> int:
    """The last node when going to one side only; `link` itself if it has no such child."""
    following = link
    while following != 0:
        link = following
        following = _field(tree, link, side)
    return link


@kernel(f"int64({PAGES})")
def _leftmost(tree: Pages) -> int:
    """The node with the least keys; 0 if the tree is empty."""
    return _outermost(tree, tree[0][resolve(tree[4], 0, tree[3]) + ROOT], LEFT)


@kernel(f"int64({PAGES}, int64)")
def _successor(tree: Pages, link: int) -> int:
    """The next node in key order, 0 after the last."""
    right = _field(tree, link, RIGHT)
    if right != 0:
        return _outermost(tree, right, LEFT)
    parent = _field(tree, link, PARENT)
    while parent != 0 and _field(tree, parent, RIGHT) == link:
        link = parent
        parent = _field(tree, link, PARENT)
    return parent


@kernel("int64(int64[::1], int64, int64[::1], int64, int64)")
def _compare(arena: np.ndarray, address: int, keys: np.ndarray, start: int, k: int) -> int:
    """-1, 0 or 1: the key at `address` of the arena is less, equal or greater."""
    for j in range(k):
        stored = arena[address + j]
        wanted = keys[start + j]
        if stored != wanted:
            return -1 if stored < wanted else 1
    return 0


@kernel(f"UniTuple(int64, 2)({PAGES}, int64[::1], int64, int64)")
def _descend(tree: Pages, keys: np.ndarray, start: int, k: int) -> tuple[int, int]:
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
        node = _node(tree, link)
        if _compare(arena, node + NODE_WORDS, keys, start, k) > 0:
            link = arena[node + LEFT]
        else:
            covering = link
            link = arena[node + RIGHT]
    return covering, last


@kernel(f"int64({PAGES}, int64, int64, int64[::1], int64, int64)")
def _lower_bound(tree: Pages, link: int, width: int, keys: np.ndarray, start: int, k: int) -> int:
    """Number of the node's first record with this key or a greater one; its count if none."""
    arena = tree[0]
    node = _node(tree, link)
    low = np.int64(0)
    high = arena[node + COUNT]
    while low < high:
        middle = (low + high) >> 1
        if _compare(arena, node + NODE_WORDS + middle * width, keys, start, k) < 0:
            low = middle + 1
        else:
            high = middle
    return low


@kernel(f"UniTuple(int64, 4)({PAGES}, int64, int64[::1], int64, int64)")
def _find(
    tree: Pages, width: int, keys: np.ndarray, start: int, k: int
) -> tuple[int, int, int, int]:
    """Where a key is, or belongs.

    Returns:
        The physical address of its record, or -1; what `_descend` returns; and the number that
        the record has, or would have, in the first of these nodes.
    """
    covering, last = _descend(tree, keys, start, k)
    if covering == 0:
        return -1, covering, last, 0
    at = _lower_bound(tree, covering, width, keys, start, k)
    address = _node(tree, covering) + NODE_WORDS + at * width
    if at == _field(tree, covering, COUNT) or _compare(tree[0], address, keys, start, k) != 0:
        address = -1
    return address, covering, last, at


@kernel(f"void({PAGES}, int64, int64[::1], int64, int64, int64[:,::1])")
def _find_abreast(
    tree: Pages, width: int, keys: np.ndarray, start: int, k: int, places: np.ndarray
) -> None:
    """`_descend` and `_lower_bound` for a key per row of `places`, all one step at a time.

    Args:
        places: int64 (n, 3): the covering node and the number in it; the third is for the search.
    """
    arena, _, _, shift, table = tree
    n = len(places)
    root = arena[resolve(table, 0, shift) + ROOT]
    for i in range(n):
        places[i, 0] = 0
        places[i, 1] = root
    for _ in range(_height(tree, root)):
        for i in range(n):
            link = places[i, 1]
            if link == 0:
                continue
            node = _node(tree, link)
            if _compare(arena, node + NODE_WORDS, keys, start + i * k, k) > 0:
                places[i, 1] = arena[node + LEFT]
            else:
                places[i, 0] = link
                places[i, 1] = arena[node + RIGHT]
    for i in range(n):
        places[i, 1] = 0
        places[i, 2] = _field(tree, places[i, 0], COUNT) if places[i, 0] != 0 else 0
    left = node_capacity(shift, width)
    while left > 0:  # No row has more records left to search.
        left >>= 1
        for i in range(n):
            if places[i, 1] == places[i, 2]:
                continue
            middle = (places[i, 1] + places[i, 2]) >> 1
            address = _node(tree, places[i, 0]) + NODE_WORDS + middle * width
            if _compare(arena, address, keys, start + i * k, k) < 0:
                places[i, 1] = middle + 1
            else:
                places[i, 2] = middle


# -- the first phase: touch what will change ---------------------------------------------------


@kernel(f"boolean({PAGES}, int64)")
def _touch(tree: Pages, link: int) -> bool:
    """Touch a node, if it is one; false if a free page is missing."""
    arena, marks, free, shift, table = tree
    return link == 0 or touch(arena, marks, free, shift, table, (link - 1) << shift) >= 0


@kernel(f"boolean({PAGES}, int64, int64)")
def _touch_rotation(tree: Pages, link: int, side: int) -> bool:
    """Touch all that `_rotate` may change."""
    child = _field(tree, link, side)
    inner = _field(tree, child, 3 - side)
    if not _touch(tree, _field(tree, link, PARENT)):
        return False
    if not (_touch(tree, link) and _touch(tree, child) and _touch(tree, inner)):
        return False
    if inner == 0:
        return True
    return _touch(tree, _field(tree, inner, LEFT)) and _touch(tree, _field(tree, inner, RIGHT))


@kernel(f"boolean({PAGES}, int64, int64)")
def _touch_growth(tree: Pages, link: int, side: int) -> bool:
    """Touch what `_balance` changes when the child at `side` of a node gets one level higher."""
    while link != 0:
        own = _height(tree, _field(tree, link, side))
        other = _height(tree, _field(tree, link, 3 - side))
        if own < other:
            return True
        if own > other:
            return _touch_rotation(tree, link, side)
        if not _touch(tree, link):
            return False
        parent = _field(tree, link, PARENT)
        if parent != 0:
            side = _side(tree, link)
        link = parent
    return True


@kernel(f"boolean({PAGES}, int64, int64)")
def _touch_shrinkage(tree: Pages, link: int, side: int) -> bool:
    """Touch what `_balance` changes when the child at `side` of a node gets one level lower."""
    while link != 0:
        sibling = _field(tree, link, 3 - side)
        own = _height(tree, _field(tree, link, side))
        other = _height(tree, sibling)
        if own == other:
            return True
        if own < other:
            if not _touch_rotation(tree, link, 3 - side):
                return False
            left = _height(tree, _field(tree, sibling, LEFT))
            if left == _height(tree, _field(tree, sibling, RIGHT)):
                return True  # Rotated, it is as high as before.
        if not _touch(tree, link):
            return False
        parent = _field(tree, link, PARENT)
        if parent != 0:
            side = _side(tree, link)
        link = parent
    return True


# -- the second phase: change what was touched -------------------------------------------------


@kernel("void(int64[::1], int64, int64, int64)")
def _move(arena: np.ndarray, source: int, target: int, words: int) -> None:
    """Copy words within the arena; the ranges may overlap."""
    a = arena[source : source + words]
    b = arena[target : target + words]
    if source >= target:
        for j in range(words):
            b[j] = a[j]
        return
    j = words
    while j >= 4:  # Four at a time: they go in one load and one store.
        j -= 4
        first, second, third, fourth = a[j], a[j + 1], a[j + 2], a[j + 3]
        b[j] = first
        b[j + 1] = second
        b[j + 2] = third
        b[j + 3] = fourth
    while j > 0:
        j -= 1
        b[j] = a[j]


@kernel(f"void({PAGES}, int64, int64, int64)")
def _set(tree: Pages, link: int, field: int, value: int) -> None:
    tree[0][_node(tree, link) + field] = value


@kernel(f"void({PAGES}, int64, int64)")
def _replace_child(tree: Pages, link: int, other: int) -> None:
    """Put another node, or none, where a node hangs from its parent or is the root."""
    arena, _, _, shift, table = tree
    parent = _field(tree, link, PARENT)
    if parent == 0:
        arena[resolve(table, 0, shift) + ROOT] = other
    else:
        _set(tree, parent, _side(tree, link), other)
    if other != 0:
        _set(tree, other, PARENT, parent)


@kernel(f"void({PAGES}, int64)")
def _set_height(tree: Pages, link: int) -> None:
    left = _height(tree, _field(tree, link, LEFT))
    right = _height(tree, _field(tree, link, RIGHT))
    _set(tree, link, HEIGHT, 1 + max(left, right))


@kernel(f"void({PAGES}, int64, int64)")
def _lift(tree: Pages, link: int, side: int) -> None:
    """Put the child at `side` of a node in the node's place, and the node below it."""
    lifted = _field(tree, link, side)
    inner = _field(tree, lifted, 3 - side)
    _replace_child(tree, link, lifted)
    _set(tree, lifted, 3 - side, link)
    _set(tree, link, PARENT, lifted)
    _set(tree, link, side, inner)
    if inner != 0:
        _set(tree, inner, PARENT, link)
    _set_height(tree, link)
    _set_height(tree, lifted)


@kernel(f"void({PAGES}, int64, int64, int64)")
def _refill(tree: Pages, link: int, donor: int, width: int) -> None:
    """Let a node have `least_count` records at the cost of its child `donor`, which keeps one.

    Only if they are neighbors in key order: nothing lies below the donor on the node's side.
    """
    arena = tree[0]
    side = _side(tree, donor)
    if _field(tree, donor, 3 - side) != 0:
        return
    count = _field(tree, link, COUNT)
    stock = _field(tree, donor, COUNT)
    moved = min(least_count(node_capacity(tree[3], width)) - count, stock - 1)
    if moved <= 0:
        return
    first = _node(tree, link) + NODE_WORDS
    source = _node(tree, donor) + NODE_WORDS
    if side == LEFT:
        _move(arena, first, first + moved * width, count * width)
        _move(arena, source + (stock - moved) * width, first, moved * width)
    else:
        _move(arena, source, first + count * width, moved * width)
        _move(arena, source + moved * width, source, (stock - moved) * width)
    _set(tree, link, COUNT, count + moved)
    _set(tree, donor, COUNT, stock - moved)


@kernel(f"int64({PAGES}, int64, int64, int64)")
def _rotate(tree: Pages, link: int, side: int, width: int) -> int:
    """Make one side of a node lower by one level; returns what stands in the node's place."""
    child = _field(tree, link, side)
    inner = _height(tree, _field(tree, child, 3 - side))
    donor = link
    if inner > _height(tree, _field(tree, child, side)):
        _lift(tree, child, 3 - side)
        donor = child
    _lift(tree, link, side)
    top = _field(tree, link, PARENT)
    _refill(tree, top, donor, width)
    return top


@kernel(f"void({PAGES}, int64, int64)")
def _balance(tree: Pages, link: int, width: int) -> None:
    """Set heights and rotate, from a node below which something changed, upwards."""
    while link != 0:
        old = _field(tree, link, HEIGHT)
        left = _height(tree, _field(tree, link, LEFT))
        right = _height(tree, _field(tree, link, RIGHT))
        if abs(left - right) > 1:
            link = _rotate(tree, link, LEFT if left > right else RIGHT, width)
        elif 1 + max(left, right) != old:  # What keeps its height was not touched.
            _set(tree, link, HEIGHT, 1 + max(left, right))
        if _field(tree, link, HEIGHT) == old:
            return
        link = _field(tree, link, PARENT)


# -- insertion ---------------------------------------------------------------------------------


@kernel(f"int64({PAGES}, int64, int64)")
def _touch_new_leaf(tree: Pages, parent: int, side: int) -> int:
    """A page for a leaf at `side` of a node, or for the root; 0 if a page is missing."""
    arena, _, _, shift, table = tree
    head = resolve(table, 0, shift)
    leaf = arena[head + EMPTIED]
    if leaf == 0:
        leaf = arena[head + FRESH] + 1
    if leaf > len(table) or not _touch(tree, leaf):
        return 0
    if not _touch(tree, parent) or not _touch_growth(tree, parent, side):
        return 0
    return leaf


@kernel(f"void({PAGES}, int64, int64, int64, int64)")
def _link_leaf(tree: Pages, leaf: int, parent: int, side: int, width: int) -> None:
    """Take a leaf, which holds its first record already, into the tree."""
    arena, _, _, shift, table = tree
    head = resolve(table, 0, shift)
    if arena[head + EMPTIED] == leaf:
        arena[head + EMPTIED] = _field(tree, leaf, PARENT)
    else:
        arena[head + FRESH] += 1
    _set(tree, leaf, PARENT, parent)
    _set(tree, leaf, LEFT, 0)
    _set(tree, leaf, RIGHT, 0)
    _set(tree, leaf, HEIGHT, 1)
    if parent == 0:
        arena[head + ROOT] = leaf
    else:
        _set(tree, parent, side, leaf)
    _balance(tree, parent, width)


@kernel(f"boolean({PAGES}, int64, int64, int64[::1])")
def _insert_at(tree: Pages, link: int, at: int, record: np.ndarray) -> bool:
    """Make the record number `at` of a node that has room."""
    if not _touch(tree, link):
        return False
    arena = tree[0]
    width = len(record)
    count = _field(tree, link, COUNT)
    address = _node(tree, link) + NODE_WORDS + at * width
    _move(arena, address, address + width, (count - at) * width)
    arena[address : address + width] = record
    _set(tree, link, COUNT, count + 1)
    return True


@kernel(f"boolean({PAGES}, int64, int64, int64[::1])")
def _insert_below(tree: Pages, parent: int, side: int, record: np.ndarray) -> bool:
    """Make the record a new leaf at `side` of a node, or the root."""
    leaf = _touch_new_leaf(tree, parent, side)
    if leaf == 0:
        return False
    _set(tree, leaf, COUNT, 0)
    _insert_at(tree, leaf, 0, record)
    _link_leaf(tree, leaf, parent, side, len(record))
    return True


@kernel(f"boolean({PAGES}, int64, int64, int64[::1])")
def _insert_into_full(tree: Pages, link: int, at: int, record: np.ndarray) -> bool:
    """Insert before record `at`, not the first, of a full node; its least record moves out."""
    arena = tree[0]
    width = len(record)
    before = _field(tree, link, LEFT)
    parent, side = link, LEFT
    if before != 0:
        before = _outermost(tree, before, RIGHT)
        parent, side = before, RIGHT
    taker = before
    if before == 0 or _field(tree, before, COUNT) == node_capacity(tree[3], width):
        taker = _touch_new_leaf(tree, parent, side)
        if taker == 0:
            return False
    if not (_touch(tree, link) and _touch(tree, taker)):
        return False
    if taker != before:
        _set(tree, taker, COUNT, 0)
    stock = _field(tree, taker, COUNT)
    first = _node(tree, link) + NODE_WORDS
    _move(arena, first, _node(tree, taker) + NODE_WORDS + stock * width, width)
    _set(tree, taker, COUNT, stock + 1)
    address = first + (at - 1) * width
    _move(arena, first + width, first, address - first)
    arena[address : address + width] = record
    if taker != before:
        _link_leaf(tree, taker, parent, side, width)
    return True


@kernel(f"boolean({PAGES}, int64, int64, int64, int64[::1])")
def _insert(tree: Pages, covering: int, last: int, at: int, record: np.ndarray) -> bool:
    """Add a record that belongs where `_find` says; false if a page is missing."""
    arena, marks, free, shift, table = tree
    if touch(arena, marks, free, shift, table, 0) < 0:
        return False
    capacity = node_capacity(shift, len(record))
    count = _field(tree, covering, COUNT) if covering != 0 else 0
    if covering != 0 and count < capacity:
        done = _insert_at(tree, covering, at, record)
    elif at < count:
        done = _insert_into_full(tree, covering, at, record)
    elif last == covering:
        done = _insert_below(tree, last, RIGHT, record)
    elif _field(tree, last, COUNT) < capacity:
        done = _insert_at(tree, last, 0, record)
    else:
        done = _insert_below(tree, last, LEFT, record)
    if done:
        arena[resolve(table, 0, shift) + ENTRIES] += 1
    return done


# -- removal -----------------------------------------------------------------------------------


@kernel(f"int64({PAGES}, int64, int64, int64)")
def _leaf_to_drop(tree: Pages, link: int, remaining: int, least: int) -> int:
    """The leaf that can go when this node is left with `remaining` records; 0: none."""
    left = _field(tree, link, LEFT)
    right = _field(tree, link, RIGHT)
    if left != 0 and right != 0:
        return 0
    if left + right != 0:
        child = left + right
        fits = remaining == 0 or remaining + _field(tree, child, COUNT) <= least
        return child if fits else 0
    if remaining == 0:
        return link
    parent = _field(tree, link, PARENT)
    if parent == 0 or (_field(tree, parent, LEFT) != 0 and _field(tree, parent, RIGHT) != 0):
        return 0
    return link if remaining + _field(tree, parent, COUNT) <= least else 0


@kernel(f"boolean({PAGES}, int64)")
def _touch_drop(tree: Pages, leaf: int) -> bool:
    """Touch what `_drop` changes; false if a free page is missing."""
    parent = _field(tree, leaf, PARENT)
    if not (_touch(tree, leaf) and _touch(tree, parent)):
        return False
    return parent == 0 or _touch_shrinkage(tree, parent, _side(tree, leaf))


@kernel(f"void({PAGES}, int64, int64)")
def _drop(tree: Pages, leaf: int, width: int) -> None:
    """Take a leaf out of the tree, its records into its parent, and keep the page for later."""
    arena, _, _, shift, table = tree
    parent = _field(tree, leaf, PARENT)
    count = _field(tree, leaf, COUNT)
    if count > 0:
        source = _node(tree, leaf) + NODE_WORDS
        first = _node(tree, parent) + NODE_WORDS
        stock = _field(tree, parent, COUNT)
        if _side(tree, leaf) == LEFT:
            _move(arena, first, first + count * width, stock * width)
            _move(arena, source, first, count * width)
        else:
            _move(arena, source, first + stock * width, count * width)
        _set(tree, parent, COUNT, stock + count)
    _replace_child(tree, leaf, 0)
    head = resolve(table, 0, shift)
    _set(tree, leaf, COUNT, 0)
    _set(tree, leaf, PARENT, arena[head + EMPTIED])
    arena[head + EMPTIED] = leaf
    _balance(tree, parent, width)


@kernel(f"boolean({PAGES}, int64, int64, int64, int64)")
def _take_out(tree: Pages, link: int, at: int, taken: int, width: int) -> bool:
    """Remove `taken` records of a node from number `at` on; of an inner node, one.

    False: a free page is missing, and nothing has changed.
    """
    arena, marks, free, shift, table = tree
    if touch(arena, marks, free, shift, table, 0) < 0 or not _touch(tree, link):
        return False
    least = least_count(node_capacity(shift, width))
    count = _field(tree, link, COUNT)
    left = _field(tree, link, LEFT)
    shrinking = link
    remaining = count - taken
    if left != 0 and _field(tree, link, RIGHT) != 0 and remaining < least:
        shrinking = _outermost(tree, left, RIGHT)
        remaining = _field(tree, shrinking, COUNT) - 1
    leaf = _leaf_to_drop(tree, shrinking, remaining, least)
    if not _touch(tree, shrinking) or (leaf != 0 and not _touch_drop(tree, leaf)):
        return False
    first = _node(tree, link) + NODE_WORDS
    if shrinking == link:
        after = at + taken
        _move(arena, first + after * width, first + at * width, (count - after) * width)
    else:
        _move(arena, first, first + width, at * width)
        greatest = _node(tree, shrinking) + NODE_WORDS + remaining * width
        _move(arena, greatest, first, width)
    _set(tree, shrinking, COUNT, remaining)
    arena[resolve(table, 0, shift) + ENTRIES] -= taken
    if leaf != 0:
        _drop(tree, leaf, width)
    return True


# -- what `OrderedMap` calls -------------------------------------------------------------------


@kernel(f"int64({PAGES}, int64[:,::1], int64[:,::1], int64)")
def tree_put(tree: Pages, keys: np.ndarray, values: np.ndarray, start: int) -> int:
    """Insert or replace rows `start..`; the first row not done for want of pages, n if all are."""
    arena = tree[0]
    n, k = keys.shape
    v = values.shape[1]
    flat = keys.reshape(n * k)
    record = np.empty(k + v, dtype=np.int64)
    for i in range(start, n):
        address, covering, last, at = _find(tree, k + v, flat, i * k, k)
        if address >= 0:
            if not _touch(tree, covering):
                return i
            address = _node(tree, covering) + NODE_WORDS + at * (k + v) + k
            for j in range(v):
                arena[address + j] = values[i, j]
            continue
        for j in range(k):
            record[j] = keys[i, j]
        for j in range(v):
            record[k + j] = values[i, j]
        if not _insert(tree, covering, last, at, record):
            return i
    return n


@kernel(f"void({PAGES}, int64[:,::1], boolean[::1], int64[:,::1])")
def tree_get(tree: Pages, keys: np.ndarray, found: np.ndarray, values: np.ndarray) -> None:
    """Copy the values of keys into values[n, v]; zeros where `found` is false."""
    arena = tree[0]
    n, k = keys.shape
    v = values.shape[1]
    flat = keys.reshape(n * k)
    places = np.empty((ABREAST, 3), dtype=np.int64)
    for i in range(n):
        place = i % ABREAST
        if place == 0:
            _find_abreast(tree, k + v, flat, i * k, k, places[: min(ABREAST, n - i)])
        link, at = places[place, 0], places[place, 1]
        found[i] = False
        address = np.int64(0)
        if link != 0 and at < _field(tree, link, COUNT):
            address = _node(tree, link) + NODE_WORDS + at * (k + v)
            found[i] = _compare(arena, address, flat, i * k, k) == 0
        for j in range(v):
            values[i, j] = arena[address + k + j] if found[i] else 0


@kernel(f"int64({PAGES}, int64[:,::1], int64, int64, boolean[::1])")
def tree_remove(tree: Pages, keys: np.ndarray, v: int, start: int, removed: np.ndarray) -> int:
    """Remove the keys of rows `start..`; the first row not done for want of pages."""
    n, k = keys.shape
    flat = keys.reshape(n * k)
    for i in range(start, n):
        address, covering, _, at = _find(tree, k + v, flat, i * k, k)
        removed[i] = address >= 0
        if address >= 0 and not _take_out(tree, covering, at, 1, k + v):
            return i
    return n


@kernel(f"int64({PAGES}, int64, int64[:,::1])")
def tree_pop_first(tree: Pages, start: int, out: np.ndarray) -> int:
    """Move the first records to rows `start..` of `out`; the first row not done.

    There are as many records as rows to fill. Those of one node go together.
    """
    arena = tree[0]
    n, width = out.shape
    done = start
    while done < n:
        link = _leftmost(tree)
        first = _node(tree, link) + NODE_WORDS
        taken = min(_field(tree, link, COUNT), n - done)
        for i in range(taken):
            for j in range(width):
                out[done + i, j] = arena[first + i * width + j]
        if not _take_out(tree, link, 0, taken, width):
            return done
        done += taken
    return n


@kernel(f"int64({PAGES}, int64, int64, int64[::1], int64[::1], int64, int64[:,::1])")
def tree_range(
    tree: Pages, k: int, v: int, low: np.ndarray, high: np.ndarray, limit: int, out: np.ndarray
) -> int:
    """Count the records with keys in [low, high), at most `limit`, and copy the first to `out`.

    A bound without words is none.
    """
    arena = tree[0]
    width = k + v
    link = _leftmost(tree)
    at = np.int64(0)
    if len(low) > 0:
        _, covering, _, number = _find(tree, width, low, 0, k)
        if covering != 0:
            link, at = covering, number
    seen = np.int64(0)
    while link != 0 and seen < limit:
        first = _node(tree, link) + NODE_WORDS
        count = _field(tree, link, COUNT)
        stop = count
        if len(high) > 0:
            stop = _lower_bound(tree, link, width, high, 0, k)
        stop = min(stop, at + limit - seen)
        for r in range(at, stop):
            if seen < out.shape[0]:
                for j in range(width):
                    out[seen, j] = arena[first + r * width + j]
            seen += 1
        if stop < count:
            break
        link = _successor(tree, link)
        at = np.int64(0)
    return seen
