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
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

import numpy as np

from holdfast.core.state.kernels import ENTRIES, kernel, resolve, touch
from holdfast.core.state.page_layout import FRESH, PAGES, Pages
from holdfast.core.state.tree_balance_kernels import (
    balance,
    move_words,
    replace_child,
    set_field,
    touch_growth,
    touch_node,
    touch_shrinkage,
)
from holdfast.core.state.tree_search_kernels import (
    ABREAST,
    COUNT,
    EMPTIED,
    HEIGHT,
    LEFT,
    NODE_WORDS,
    PARENT,
    RIGHT,
    ROOT,
    compare_keys,
    field_of,
    find_abreast,
    find_key,
    least_count,
    leftmost,
    lower_bound,
    node_at,
    node_capacity,
    outermost,
    side_of,
    successor,
)

# -- insertion ------------------------------------------------------------------------------


@kernel(f"int64({PAGES}, int64, int64)")
def _touch_new_leaf(tree: Pages, parent: int, side: int) -> int:
    """A page for a leaf at `side` of a node, or for the root; 0 if a page is missing."""
    arena, _, _, shift, table = tree
    head = resolve(table, 0, shift)
    leaf = arena[head + EMPTIED]
    if leaf == 0:
        leaf = arena[head + FRESH] + 1
    if leaf > len(table) or not touch_node(tree, leaf):
        return 0
    if not touch_node(tree, parent) or not touch_growth(tree, parent, side):
        return 0
    return leaf


@kernel(f"void({PAGES}, int64, int64, int64, int64)")
def _link_leaf(tree: Pages, leaf: int, parent: int, side: int, width: int) -> None:
    """Take a leaf, which holds its first record already, into the tree."""
    arena, _, _, shift, table = tree
    head = resolve(table, 0, shift)
    if arena[head + EMPTIED] == leaf:
        arena[head + EMPTIED] = field_of(tree, leaf, PARENT)
    else:
        arena[head + FRESH] += 1
    set_field(tree, leaf, PARENT, parent)
    set_field(tree, leaf, LEFT, 0)
    set_field(tree, leaf, RIGHT, 0)
    set_field(tree, leaf, HEIGHT, 1)
    if parent == 0:
        arena[head + ROOT] = leaf
    else:
        set_field(tree, parent, side, leaf)
    balance(tree, parent, width)


@kernel(f"boolean({PAGES}, int64, int64, int64[::1])")
def _insert_at(tree: Pages, link: int, at: int, record: np.ndarray) -> bool:
    """Make the record number `at` of a node that has room."""
    if not touch_node(tree, link):
        return False
    arena = tree[0]
    width = len(record)
    count = field_of(tree, link, COUNT)
    address = node_at(tree, link) + NODE_WORDS + at * width
    move_words(arena, address, address + width, (count - at) * width)
    for j in range(width):
        arena[address + j] = record[j]
    set_field(tree, link, COUNT, count + 1)
    return True


@kernel(f"boolean({PAGES}, int64, int64, int64[::1])")
def _insert_below(tree: Pages, parent: int, side: int, record: np.ndarray) -> bool:
    """Make the record a new leaf at `side` of a node, or the root."""
    leaf = _touch_new_leaf(tree, parent, side)
    if leaf == 0:
        return False
    set_field(tree, leaf, COUNT, 0)
    _insert_at(tree, leaf, 0, record)
    _link_leaf(tree, leaf, parent, side, len(record))
    return True


@kernel(f"boolean({PAGES}, int64, int64, int64[::1])")
def _insert_into_full(tree: Pages, link: int, at: int, record: np.ndarray) -> bool:
    """Insert before record `at`, not the first, of a full node; its least record moves out."""
    arena = tree[0]
    width = len(record)
    before = field_of(tree, link, LEFT)
    parent, side = link, LEFT
    if before != 0:
        before = outermost(tree, before, RIGHT)
        parent, side = before, RIGHT
    taker = before
    if before == 0 or field_of(tree, before, COUNT) == node_capacity(tree[3], width):
        taker = _touch_new_leaf(tree, parent, side)
        if taker == 0:
            return False
    if not (touch_node(tree, link) and touch_node(tree, taker)):
        return False
    if taker != before:
        set_field(tree, taker, COUNT, 0)
    stock = field_of(tree, taker, COUNT)
    first = node_at(tree, link) + NODE_WORDS
    move_words(arena, first, node_at(tree, taker) + NODE_WORDS + stock * width, width)
    set_field(tree, taker, COUNT, stock + 1)
    address = first + (at - 1) * width
    move_words(arena, first + width, first, address - first)
    for j in range(width):
        arena[address + j] = record[j]
    if taker != before:
        _link_leaf(tree, taker, parent, side, width)
    return True


@kernel(f"boolean({PAGES}, int64, int64, int64, int64[::1])")
def _insert(tree: Pages, covering: int, last: int, at: int, record: np.ndarray) -> bool:
    """Add a record that belongs where `find_key` says; false if a page is missing."""
    arena, marks, free, shift, table = tree
    if touch(arena, marks, free, shift, table, 0) < 0:
        return False
    capacity = node_capacity(shift, len(record))
    count = field_of(tree, covering, COUNT) if covering != 0 else 0
    if covering != 0 and count < capacity:
        done = _insert_at(tree, covering, at, record)
    elif at < count:
        done = _insert_into_full(tree, covering, at, record)
    elif last == covering:
        done = _insert_below(tree, last, RIGHT, record)
    elif field_of(tree, last, COUNT) < capacity:
        done = _insert_at(tree, last, 0, record)
    else:
        done = _insert_below(tree, last, LEFT, record)
    if done:
        arena[resolve(table, 0, shift) + ENTRIES] += 1
    return done


# -- removal --------------------------------------------------------------------------------


@kernel(f"int64({PAGES}, int64, int64, int64)")
def _leaf_to_drop(tree: Pages, link: int, remaining: int, least: int) -> int:
    """The leaf that can go when this node is left with `remaining` records; 0: none."""
    left = field_of(tree, link, LEFT)
    right = field_of(tree, link, RIGHT)
    if left != 0 and right != 0:
        return 0
    if left + right != 0:
        child = left + right
        fits = remaining == 0 or remaining + field_of(tree, child, COUNT) <= least
        return child if fits else 0
    if remaining == 0:
        return link
    parent = field_of(tree, link, PARENT)
    if parent == 0 or (field_of(tree, parent, LEFT) != 0 and field_of(tree, parent, RIGHT) != 0):
        return 0
    return link if remaining + field_of(tree, parent, COUNT) <= least else 0


@kernel(f"boolean({PAGES}, int64)")
def _touch_drop(tree: Pages, leaf: int) -> bool:
    """Touch what `_drop` changes; false if a free page is missing."""
    parent = field_of(tree, leaf, PARENT)
    if not (touch_node(tree, leaf) and touch_node(tree, parent)):
        return False
    return parent == 0 or touch_shrinkage(tree, parent, side_of(tree, leaf))


@kernel(f"void({PAGES}, int64, int64)")
def _drop(tree: Pages, leaf: int, width: int) -> None:
    """Take a leaf out of the tree, its records into its parent, and keep the page for later."""
    arena, _, _, shift, table = tree
    parent = field_of(tree, leaf, PARENT)
    count = field_of(tree, leaf, COUNT)
    if count > 0:
        source = node_at(tree, leaf) + NODE_WORDS
        first = node_at(tree, parent) + NODE_WORDS
        stock = field_of(tree, parent, COUNT)
        if side_of(tree, leaf) == LEFT:
            move_words(arena, first, first + count * width, stock * width)
            move_words(arena, source, first, count * width)
        else:
            move_words(arena, source, first + stock * width, count * width)
        set_field(tree, parent, COUNT, stock + count)
    replace_child(tree, leaf, 0)
    head = resolve(table, 0, shift)
    set_field(tree, leaf, COUNT, 0)
    set_field(tree, leaf, PARENT, arena[head + EMPTIED])
    arena[head + EMPTIED] = leaf
    balance(tree, parent, width)


@kernel(f"boolean({PAGES}, int64, int64, int64, int64)")
def _take_out(tree: Pages, link: int, at: int, taken: int, width: int) -> bool:
    """Remove `taken` records of a node from number `at` on; of an inner node, one.

    False: a free page is missing, and nothing has changed.
    """
    arena, marks, free, shift, table = tree
    if touch(arena, marks, free, shift, table, 0) < 0 or not touch_node(tree, link):
        return False
    least = least_count(node_capacity(shift, width))
    count = field_of(tree, link, COUNT)
    left = field_of(tree, link, LEFT)
    shrinking = link
    remaining = count - taken
    if left != 0 and field_of(tree, link, RIGHT) != 0 and remaining < least:
        shrinking = outermost(tree, left, RIGHT)
        remaining = field_of(tree, shrinking, COUNT) - 1
    leaf = _leaf_to_drop(tree, shrinking, remaining, least)
    if not touch_node(tree, shrinking) or (leaf != 0 and not _touch_drop(tree, leaf)):
        return False
    first = node_at(tree, link) + NODE_WORDS
    if shrinking == link:
        after = at + taken
        move_words(arena, first + after * width, first + at * width, (count - after) * width)
    else:
        move_words(arena, first, first + width, at * width)
        greatest = node_at(tree, shrinking) + NODE_WORDS + remaining * width
        move_words(arena, greatest, first, width)
    set_field(tree, shrinking, COUNT, remaining)
    arena[resolve(table, 0, shift) + ENTRIES] -= taken
    if leaf != 0:
        _drop(tree, leaf, width)
    return True


# -- what `OrderedMap` calls ----------------------------------------------------------------


@kernel(f"int64({PAGES}, int64[:,::1], int64[:,::1], int64)", allocates=True)
def tree_put(tree: Pages, keys: np.ndarray, values: np.ndarray, start: int) -> int:
    """Insert or replace rows `start..`; the first row not done for want of pages, n if all are."""
    arena = tree[0]
    n, k = keys.shape
    v = values.shape[1]
    flat = keys.reshape(n * k)
    record = np.empty(k + v, dtype=np.int64)
    for i in range(start, n):
        address, covering, last, at = find_key(tree, k + v, flat, i * k, k)
        if address >= 0:
            if not touch_node(tree, covering):
                return i
            address = node_at(tree, covering) + NODE_WORDS + at * (k + v) + k
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


@kernel(f"void({PAGES}, int64[:,::1], boolean[::1], int64[:,::1])", allocates=True)
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
            find_abreast(tree, k + v, flat, i * k, k, places[: min(ABREAST, n - i)])
        link, at = places[place, 0], places[place, 1]
        found[i] = False
        address = np.int64(0)
        if link != 0 and at < field_of(tree, link, COUNT):
            address = node_at(tree, link) + NODE_WORDS + at * (k + v)
            found[i] = compare_keys(arena, address, flat, i * k, k) == 0
        for j in range(v):
            values[i, j] = arena[address + k + j] if found[i] else 0


@kernel(f"int64({PAGES}, int64[:,::1], int64, int64, boolean[::1])")
def tree_remove(tree: Pages, keys: np.ndarray, v: int, start: int, removed: np.ndarray) -> int:
    """Remove the keys of rows `start..`; the first row not done for want of pages."""
    n, k = keys.shape
    flat = keys.reshape(n * k)
    for i in range(start, n):
        address, covering, _, at = find_key(tree, k + v, flat, i * k, k)
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
        link = leftmost(tree)
        first = node_at(tree, link) + NODE_WORDS
        taken = min(field_of(tree, link, COUNT), n - done)
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
    link = leftmost(tree)
    at = np.int64(0)
    if len(low) > 0:
        _, covering, _, number = find_key(tree, width, low, 0, k)
        if covering != 0:
            link, at = covering, number
    seen = np.int64(0)
    while link != 0 and seen < limit:
        first = node_at(tree, link) + NODE_WORDS
        count = field_of(tree, link, COUNT)
        stop = count
        if len(high) > 0:
            stop = lower_bound(tree, link, width, high, 0, k)
        stop = min(stop, at + limit - seen)
        for r in range(at, stop):
            if seen < out.shape[0]:
                for j in range(width):
                    out[seen, j] = arena[first + r * width + j]
            seen += 1
        if stop < count:
            break
        link = successor(tree, link)
        at = np.int64(0)
    return seen
