"""Identifiers. Ids of tuples are per stream, count up by one and have no gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NewType

StreamId = NewType("StreamId", str)
"""A sequence of tuples from one producer to one consumer, e.g. `bids:ingest[0]>counts[1].0`."""

NodeId = NewType("NodeId", str)
"""An instance of a unit, e.g. `counts[1]`; which replica runs it is told by its incarnation."""

Incarnation = NewType("Incarnation", int)
"""Counts the lives of a node. Only the newest one counts; frames of earlier ones are refused."""

NOBODY: Final = Incarnation(0)
"""The incarnation of a replica that there is not; those that are given count from 1 on."""


@dataclass(frozen=True, slots=True, order=True)
class PointId:
    """Names a durable restart point of a node; in the order in which they were noted.

    Attributes:
        incarnation: Which one noted it; 0: nobody knows.
        sequence: Counts the points of the node, over all its incarnations.
    """

    incarnation: Incarnation
    sequence: int


@dataclass(frozen=True, slots=True, order=True)
class CheckpointId:
    """Names a checkpoint of a node.

    Attributes:
        sequence: Counts the checkpoints of the node, over all its incarnations.
        incarnation: Which one wrote it; a zombie may use a number that its successor uses too.
    """

    sequence: int
    incarnation: Incarnation


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """Names a tentative suffix of a stream. [DPC "Stable state"]

    Attributes:
        incarnation: Of the node that puts it out.
        number: Counts the suffixes of that incarnation, from 1 on.
    """

    incarnation: Incarnation
    number: int


TimeUs = Annotated[int, "64 bits, signed"]
"""Microseconds since 1970, or one of the two below; other `int`s in messages are counts."""

NO_ID: Final = 2**63 - 1
"""Stands for "no tuple": larger than any id."""

BEGINNING_US: Final = -(2**63)
"""The boundary of a stream that has promised nothing yet."""

END_US: Final = 2**63 - 1
"""The boundary of a stream that has ended: no tuple will follow."""
