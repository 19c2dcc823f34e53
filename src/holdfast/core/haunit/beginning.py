"""Where an incarnation of a node begins: what its assignment and its restoration come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.core.checkpoint.cut_rule import NO_ROUND
from holdfast.core.model.ids import NOBODY, Incarnation, StreamId

if TYPE_CHECKING:
    from holdfast.core.haunit.passes import Pass
    from holdfast.core.model.notes import PlacedNote
    from holdfast.core.model.tuples import TupleBatch
    from holdfast.core.recovery.restart_point import RestartPoint
    from holdfast.core.state.page_manager import PageManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """Where an incarnation begins.

    Attributes:
        point: From where input is wanted and output is numbered; behind it stand those that its
            replacement could still be told to start from.
        pages: The operators' state.
        newest_sequence: The newest number that a restart point of the node has.
        incarnation: Its number.
        is_secondary: Whether it follows the primary until it is promoted.
        is_at_cut: Whether the pages are those of the point's cut.
        is_replayed: Whether a replacement rebuilds the state by processing input again.
        is_rebased: Whether receivers may have what this incarnation cannot put out again as it was.
        silent_to: The cut up to which it replays in silence; None: it replays nothing.
        lost_from: Of one that starts empty: per stream the oldest tuple that has not, or may not
            have, had all its effects.
        sink_next_ids: Per sink stream the first id that its log does not hold yet.
        outputs: Output tuples up to the cut that receivers may still need, by stream.
        notes: The notes among them, and behind them.
        passes: The recorded passes, from the one before the point on.
        noted_behind: A cut of the former primary, whose point is durable: no earlier one is noted.
        rounds_over: The newest round of its region that does nothing any more.
    """

    point: RestartPoint
    pages: PageManager
    newest_sequence: int
    incarnation: Incarnation = NOBODY
    is_secondary: bool = False
    is_at_cut: bool = False
    is_replayed: bool = True
    is_rebased: bool = False
    silent_to: RestartPoint | None = None
    lost_from: dict[str, int] = field(default_factory=dict)
    sink_next_ids: dict[StreamId, int] = field(default_factory=dict)
    outputs: dict[StreamId, tuple[TupleBatch, ...]] = field(default_factory=dict)
    notes: dict[StreamId, tuple[PlacedNote, ...]] = field(default_factory=dict)
    passes: tuple[Pass, ...] = ()
    noted_behind: RestartPoint | None = None
    rounds_over: int = NO_ROUND
