"""Where the boxes of a dataflow's graph stand: in layers from sources to sinks. Pure.

Edges that close a circle are left out of account. A box stands one layer behind the last of those
that it reads from. Within a layer boxes are ordered by where their neighbors stand, in a few sweeps
forth and back; so few edges cross. [Sugiyama et al., 1981, §3]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_SWEEPS: Final = 4


@dataclass(frozen=True, slots=True)
class Place:
    """Where a box stands.

    Attributes:
        layer: From 0, where the sources are.
        row: From 0, within the layer; halves are possible.
    """

    layer: int
    row: float


def places(boxes: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, Place]:
    """The place of every box.

    Args:
        boxes: Their names, each once.
        edges: From which box to which; both have to be among the boxes.
    """
    into: dict[str, list[str]] = {box: [] for box in boxes}
    out: dict[str, list[str]] = {box: [] for box in boxes}
    for start, end in _without_circles(boxes, edges):
        into[end].append(start)
        out[start].append(end)
    layer_of = _layers(boxes, into, out)
    layers: list[list[str]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    for box in boxes:
        layers[layer_of[box]].append(box)
    for sweep in range(_SWEEPS):
        is_forth = sweep % 2 == 0
        neighbors = into if is_forth else out
        row_of = {box: row for layer in layers for row, box in enumerate(layer)}
        for layer in layers if is_forth else reversed(layers):
            layer.sort(key=lambda box: _mean(neighbors[box], row_of))
            row_of |= {box: row for row, box in enumerate(layer)}
    tallest = max(map(len, layers), default=0)
    return {
        box: Place(n, row + (tallest - len(layer)) / 2)
        for n, layer in enumerate(layers)
        for row, box in enumerate(layer)
    }


def _without_circles(
    boxes: Sequence[str], edges: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The edges that lead on, from a walk in depth that begins with the first box."""
    ends: dict[str, list[str]] = {box: [] for box in boxes}
    for start, end in dict.fromkeys(edges):
        ends[start].append(end)
    kept: list[tuple[str, str]] = []
    is_left: dict[str, bool] = {}
    for first in boxes:
        if first in is_left:
            continue
        is_left[first] = False
        walk = [(first, iter(ends[first]))]
        while walk:
            box, rest = walk[-1]
            after = next(rest, None)
            if after is None:
                is_left[box] = True
                walk.pop()
            elif is_left.get(after, True):
                kept.append((box, after))
                if after not in is_left:
                    is_left[after] = False
                    walk.append((after, iter(ends[after])))
    return kept


def _layers(
    boxes: Sequence[str], into: Mapping[str, list[str]], out: Mapping[str, list[str]]
) -> dict[str, int]:
    waits_for = {box: len(into[box]) for box in boxes}
    layer_of = dict.fromkeys(boxes, 0)
    ready = [box for box in boxes if not waits_for[box]]
    for box in ready:
        for end in out[box]:
            layer_of[end] = max(layer_of[end], layer_of[box] + 1)
            waits_for[end] -= 1
            if not waits_for[end]:
                ready.append(end)
    return layer_of


def _mean(neighbors: Sequence[str], row_of: Mapping[str, int]) -> float:
    """Where they stand on the average; those without any stay in front."""
    return sum(row_of[one] for one in neighbors) / len(neighbors) if neighbors else -1.0
