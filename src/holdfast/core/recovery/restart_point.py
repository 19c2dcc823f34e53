"""From where a node without a copy of its state can be rebuilt, and how.

A restart point is taken between two rounds of a node. It names, for every input stream, the oldest
tuple that the state of that moment, or an output still needed downstream, depends on: the low
watermark of [HA §5.2.2]. A replacement replays from there. Up to the cut it processes in silence
(the outputs of that time were produced by its predecessor and are accounted for), from the cut on
it numbers its outputs from `next_ids`, so that they carry the very ids they would have had.

The cut: for a node with one input stream the tuples before `processed_before`; for a node whose
inputs are merged by time, the tuples older than `boundary_us`.

A point becomes *safe* when every output stream's receiver no longer needs anything before
`next_ids`. Only a safe point that the coordinator has stored may move level-1 acknowledgements.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model.ids import BEGINNING_US


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """One restart point.

    Attributes:
        sequence: Counts the points of a node, over all its incarnations.
        needed_from: Per input stream the oldest id to replay (kept; level-1 position).
        processed_before: Per input stream the id up to which tuples were processed (exclusive).
        boundary_us: The boundary the node had acted on.
        next_ids: Per output stream the id of the next output.
    """

    sequence: int = 0
    needed_from: dict[str, int] = field(default_factory=dict)
    processed_before: dict[str, int] = field(default_factory=dict)
    boundary_us: int = BEGINNING_US
    next_ids: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Plain values for messages and the catalogue."""
        return {
            "sequence": self.sequence,
            "needed_from": self.needed_from,
            "processed_before": self.processed_before,
            "boundary_us": self.boundary_us,
            "next_ids": self.next_ids,
        }

    @staticmethod
    def from_json(value: dict[str, object]) -> RestartPoint:
        """The inverse of `to_json`. Raises `ValueError` on anything else."""
        sequence, boundary = value.get("sequence"), value.get("boundary_us")
        if not isinstance(sequence, int) or not isinstance(boundary, int):
            raise ValueError("a restart point needs integers `sequence` and `boundary_us`")
        return RestartPoint(
            sequence,
            _ids(value.get("needed_from")),
            _ids(value.get("processed_before")),
            boundary,
            _ids(value.get("next_ids")),
        )


def _ids(value: object) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError("a restart point maps streams to ids")
    ids: dict[str, int] = {}
    for stream, tuple_id in value.items():
        if not isinstance(stream, str) or not isinstance(tuple_id, int):
            raise ValueError("a restart point maps streams to ids")
        ids[stream] = tuple_id
    return ids
