"""The effects of a node's bring-up and promotion, and their answers; see life.py.

What is opened has a `request_id`, which its answer echoes. What the coordinator says is in told.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.machine import Effect, Stimulus

if TYPE_CHECKING:
    from holdfast.core.haunit.log_needs import LogNeeds
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.haunit.plan import Assignment
    from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId, StreamId

# -- stimuli: what was opened ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SinksOpened(Stimulus):
    """The answer to `OpenSinks`: whoever wrote them before is fenced.

    Attributes:
        request_id: The request's.
        next_ids: By log, the first id that it does not hold yet.
    """

    request_id: int
    next_ids: dict[StreamId, int]


@dataclass(frozen=True, slots=True)
class SourcesOpened(Stimulus):
    """The answer to `OpenSources`."""

    request_id: int


@dataclass(frozen=True, slots=True)
class RecordedPassesRead(Stimulus):
    """The answer to `ReadRecordedPasses`."""

    request_id: int
    passes: tuple[Pass, ...]


@dataclass(frozen=True, slots=True)
class StoreOpened(Stimulus):
    """The answer to `OpenStore`.

    Attributes:
        request_id: The request's.
        found: The checkpoints of the node that have files there.
    """

    request_id: int
    found: tuple[CheckpointId, ...]


@dataclass(frozen=True, slots=True)
class OpeningFailed(Stimulus):
    """The answer to any of these requests: it cannot be done."""

    request_id: int
    error: Exception


# -- effects --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginIncarnation(Effect):
    """From now on speak as this incarnation, and take frames of this epoch alone."""

    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Connect(Effect):
    """Open a channel to the primary of a producer, or of this node, instead of any former one.

    Attributes:
        peer: Whose primary it is.
        incarnation: The primary's.
        endpoint: Where it listens.
    """

    peer: NodeId
    incarnation: Incarnation
    endpoint: str


@dataclass(frozen=True, slots=True)
class Disconnect(Effect):
    """Close the channel to a peer, if there is one: it is this process itself now."""

    peer: NodeId


@dataclass(frozen=True, slots=True)
class OpenSinks(Effect):
    """Open all logs that the node writes, its pass log last; answered by `SinksOpened`.

    A log that ends before what is needed of it is not begun: that is an `OpeningFailed` with
    `SinkLacksTuples`. A broker's log is believed: nobody can lose anything there behind our back.

    Attributes:
        request_id: For the answer.
        incarnation: As which they are written: earlier writers are fenced by it.
        needs: Up to where they must reach.
    """

    request_id: int
    incarnation: Incarnation
    needs: LogNeeds


@dataclass(frozen=True, slots=True)
class OpenSources(Effect):
    """Open the sources that are not open yet; answered by `SourcesOpened`.

    Attributes:
        request_id: For the answer.
        leads_as: The incarnation as which those that have a log of their own to fill do so from now
            on; `NOBODY`: they only read what the primary fills.
    """

    request_id: int
    leads_as: Incarnation


@dataclass(frozen=True, slots=True)
class ReadRecordedPasses(Effect):
    """Read passes [first, before) of the node's pass log; answered by `RecordedPassesRead`."""

    request_id: int
    first: int
    before: int


@dataclass(frozen=True, slots=True)
class OpenStore(Effect):
    """Open the store of checkpoints; answered by `StoreOpened`."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Fail(Effect):
    """Say what was wrong, and die: the coordinator replaces this incarnation, or gives up."""

    error: Exception
