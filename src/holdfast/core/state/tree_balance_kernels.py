"""Keeping the sides of a T-tree's nodes alike in height; the rules are in `tree_kernels.py`."""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

import numpy as np

from holdfast.core.state.kernels import kernel, resolve, touch
from holdfast.core.state.page_layout import PAGES, Pages
from holdfast.core.state.tree_search_kernels import (
    COUNT,
    HEIGHT,
    LEFT,
    NODE_WORDS,
    PARENT,
    RIGHT,
    ROOT,
    field_of,
    height_of,
    least_count,
    node_at,
    node_capacity,
    side_of,
)

# -- the first phase: touch what will change ------------------------------------------------


@kernel(f"boolean({PAGES}, int64)")
def touch_node(tree: Pages, link: int) -> bool:
    """Touch a node, if it is one; false if a free page is missing."""
    arena, marks, free, shift, table = tree
    return link == 0 or touch(arena, marks, free, shift, table, (link - 1) << shift) >= 0


@kernel(f"boolean({PAGES}, int64, int64)")
def touch_rotation(tree: Pages, link: int, side: int) -> bool:
    """Touch all that `rotate` may change."""
    child = field_of(tree, link, side)
    inner = field_of(tree, child, 3 - side)
    if not touch_node(tree, field_of(tree, link, PARENT)):
        return False
    if not (touch_node(tree, link) and touch_node(tree, child) and touch_node(tree, inner)):
        return False
    if inner == 0:
        return True
    return touch_node(tree, field_of(tree, inner, LEFT)) and touch_node(
        tree, field_of(tree, inner, RIGHT)
    )


@kernel(f"boolean({PAGES}, int64, int64)")
def touch_growth(tree: Pages, link: int, side: int) -> bool:
    """Touch what `balance` changes when the child at `side` of a node gets one level higher."""
    while link != 0:
        own = height_of(tree, field_of(tree, link, side))
        other = height_of(tree, field_of(tree, link, 3 - side))
        if own < other:
            return True
        if own > other:
            return touch_rotation(tree, link, side)
        if not touch_node(tree, link):
            return False
        parent = field_of(tree, link, PARENT)
        if parent != 0:
            side = side_of(tree, link)
        link = parent
    return True


@kernel(f"boolean({PAGES}, int64, int64)")
def touch_shrinkage(tree: Pages, link: int, side: int) -> bool:
    """Touch what `balance` changes when the child at `side` of a node gets one level lower."""
    while link != 0:
        sibling = field_of(tree, link, 3 - side)
        own = height_of(tree, field_of(tree, link, side))
        other = height_of(tree, sibling)
        if own == other:
            return True
        if own < other:
            if not touch_rotation(tree, link, 3 - side):
                return False
            left = height_of(tree, field_of(tree, sibling, LEFT))
            if left == height_of(tree, field_of(tree, sibling, RIGHT)):
                return True  # Rotated, it is as high as before.
        if not touch_node(tree, link):
            return False
        parent = field_of(tree, link, PARENT)
        if parent != 0:
            side = side_of(tree, link)
        link = parent
    return True


# -- the second phase: change what was touched ----------------------------------------------


@kernel("void(int64[::1], int64, int64, int64)")
def move_words(arena: np.ndarray, source: int, target: int, words: int) -> None:
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
def set_field(tree: Pages, link: int, field: int, value: int) -> None:
    """Write a word of a node."""
    tree[0][node_at(tree, link) + field] = value


@kernel(f"void({PAGES}, int64, int64)")
def replace_child(tree: Pages, link: int, other: int) -> None:
    """Put another node, or none, where a node hangs from its parent or is the root."""
    arena, _, _, shift, table = tree
    parent = field_of(tree, link, PARENT)
    if parent == 0:
        arena[resolve(table, 0, shift) + ROOT] = other
    else:
        set_field(tree, parent, side_of(tree, link), other)
    if other != 0:
        set_field(tree, other, PARENT, parent)


@kernel(f"void({PAGES}, int64)")
def set_height(tree: Pages, link: int) -> None:
    """Bring the height of a node up to date with those of its children."""
    left = height_of(tree, field_of(tree, link, LEFT))
    right = height_of(tree, field_of(tree, link, RIGHT))
    set_field(tree, link, HEIGHT, 1 + max(left, right))


@kernel(f"void({PAGES}, int64, int64)")
def lift(tree: Pages, link: int, side: int) -> None:
    """Put the child at `side` of a node in the node's place, and the node below it."""
    lifted = field_of(tree, link, side)
    inner = field_of(tree, lifted, 3 - side)
    replace_child(tree, link, lifted)
    set_field(tree, lifted, 3 - side, link)
    set_field(tree, link, PARENT, lifted)
    set_field(tree, link, side, inner)
    if inner != 0:
        set_field(tree, inner, PARENT, link)
    set_height(tree, link)
    set_height(tree, lifted)


@kernel(f"void({PAGES}, int64, int64, int64)")
def refill(tree: Pages, link: int, donor: int, width: int) -> None:
    """Let a node have `least_count` records at the cost of its child `donor`, which keeps one.

    Only if they are neighbors in key order: nothing lies below the donor on the node's side.
    """
    arena = tree[0]
    side = side_of(tree, donor)
    if field_of(tree, donor, 3 - side) != 0:
        return
    count = field_of(tree, link, COUNT)
    stock = field_of(tree, donor, COUNT)
    moved = min(least_count(node_capacity(tree[3], width)) - count, stock - 1)
    if moved <= 0:
        return
    first = node_at(tree, link) + NODE_WORDS
    source = node_at(tree, donor) + NODE_WORDS
    if side == LEFT:
        move_words(arena, first, first + moved * width, count * width)
        move_words(arena, source + (stock - moved) * width, first, moved * width)
    else:
        move_words(arena, source, first + count * width, moved * width)
        move_words(arena, source + moved * width, source, (stock - moved) * width)
    set_field(tree, link, COUNT, count + moved)
    set_field(tree, donor, COUNT, stock - moved)


@kernel(f"int64({PAGES}, int64, int64, int64)")
def rotate(tree: Pages, link: int, side: int, width: int) -> int:
    """Make one side of a node lower by one level; returns what stands in the node's place."""
    child = field_of(tree, link, side)
    inner = height_of(tree, field_of(tree, child, 3 - side))
    donor = link
    if inner > height_of(tree, field_of(tree, child, side)):
        lift(tree, child, 3 - side)
        donor = child
    lift(tree, link, side)
    top = field_of(tree, link, PARENT)
    refill(tree, top, donor, width)
    return top


@kernel(f"void({PAGES}, int64, int64)")
def balance(tree: Pages, link: int, width: int) -> None:
    """Set heights and rotate, from a node below which something changed, upwards."""
    while link != 0:
        old = field_of(tree, link, HEIGHT)
        left = height_of(tree, field_of(tree, link, LEFT))
        right = height_of(tree, field_of(tree, link, RIGHT))
        if abs(left - right) > 1:
            link = rotate(tree, link, LEFT if left > right else RIGHT, width)
        elif 1 + max(left, right) != old:  # What keeps its height was not touched.
            set_field(tree, link, HEIGHT, 1 + max(left, right))
        if field_of(tree, link, HEIGHT) == old:
            return
        link = field_of(tree, link, PARENT)
