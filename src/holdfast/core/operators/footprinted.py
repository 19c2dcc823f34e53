"""What a node asks of an operator whose windows leave footprints. [CEC §II.B, §III]

A footprint is whole, and takes the place of the window's former one; or it is a *part*, which holds
what has come since the part before. A window of parts needs all of them until it closes, but only
the newest says from where its input has to be replayed. Where one piece of work does not do for all
that has come, parts are *unfinished* but for the last: they say nothing of that.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from holdfast.core.operators.base import Operator, Rows, chosen


@dataclass(frozen=True, slots=True)
class WindowsOfPass:
    """What passes, or a look at some windows, have to say of them.

    Attributes:
        windows: int64 (n, 2), those that are open and have a new footprint.
        bodies: Their footprints.
        closed: The bodies of footprints that are needed no more, as their windows have closed; only
            their keys and numbers count.
        former: int64, the generations of the newest footprints of the windows that closed or have a
            newer one.
        let_go: int64, the generations of all footprints that are needed no more.
        unfinished: How many of the windows that were asked for, the last ones, have to be asked for
            again.
        finished: bool (n,), which of the footprints say from where their windows' input has to be
            replayed; None: all.
    """

    windows: np.ndarray
    bodies: pa.RecordBatch
    closed: pa.RecordBatch
    former: np.ndarray
    let_go: np.ndarray
    unfinished: int = 0
    finished: np.ndarray | None = None


class Footprinted(Operator):
    """An operator whose state is that of windows, each of which can be written by itself.

    Attributes:
        body_schema: The columns of its footprints: `window`, `key.` columns, then its own.
        opens_before: Whether footprints of what a pass opens are of the cut before the pass.
        rest_from: Footprints from this generation on need not be written again where nothing has
            changed; it may say instead that they still hold.
    """

    body_schema: pa.Schema
    opens_before: ClassVar[bool] = False
    rest_from: int = 0

    @property
    @abc.abstractmethod
    def open_windows(self) -> int:
        """How many footprints its state is made of: N."""

    @abc.abstractmethod
    def begin_pass(self, generation: int) -> None:
        """What opens from now on belongs to a generation."""

    @abc.abstractmethod
    def end_pass(self, *, closing: bool = True) -> WindowsOfPass:
        """What has opened and closed since `begin_pass`, in any number of calls of `process`.

        Windows that have done both leave no trace.

        Args:
            closing: False: what has closed may be left to a later call. Until then it counts as
                open, and has no new footprints.
        """

    @abc.abstractmethod
    def footprints(
        self, windows: np.ndarray, former: int, generation: int, most: int
    ) -> WindowsOfPass:
        """The footprints, now, of those of the windows that are open and of a generation.

        Args:
            windows: int64 (n, 2), as `WindowsOfPass` had them.
            former: The generation that their newest footprints are of.
            generation: The one that they are of from now on.
            most: How many footprints to make at most, where one window has several.
        """

    @abc.abstractmethod
    def whole(self) -> WindowsOfPass:
        """The footprints of all windows, of an operator that has none yet.

        It has adopted its windows from other instances, and is not gone on with.
        """

    @abc.abstractmethod
    def adopt_footprints(
        self, bodies: pa.RecordBatch, generations: np.ndarray, cuts: np.ndarray, streams: int
    ) -> np.ndarray:
        """Have the windows of an eventual checkpoint; then replay until `end_replay`.

        Args:
            bodies: The footprints of every open window; this operator is empty.
            generations: int64 (n,), of each, counted from 0, never falling.
            cuts: int64, of each generation, never falling.
            streams: How many input streams the node has.

        Returns:
            The windows, int64 (n, 2).
        """

    @abc.abstractmethod
    def end_replay(self, boundary_us: int) -> None:
        """All up to the cut has been replayed: from now on windows open again.

        Args:
            boundary_us: What the node had acted on at the cut.
        """

    def break_off_replay(self, boundary_us: int) -> None:
        """Some of what was to be replayed will not come; args as of `end_replay`.

        It stands within a pass: windows that nothing is left of without it close.
        """
        self.end_replay(boundary_us)


def places_of(low: np.ndarray, time_us: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Where rows stand in the node's order, as cuts count it. int64 (n,).

    Args:
        low: As `Operator.process` is given it.
        time_us: Of the rows.
        order: Of the rows.
    """
    places: np.ndarray = low[0] + order if len(low) == 1 else time_us
    return places


def rows_from(rows: Rows, low: np.ndarray, cut: int) -> Rows | None:
    """The rows at a cut and behind it; None: there are none.

    Of several streams a replay brings others, too: those sent behind a row that was held.
    """
    places = places_of(low, rows.time_us, rows.order)
    first = int(np.searchsorted(places, cut))
    if first == len(places):
        return None
    return chosen(rows, np.arange(first, len(places), dtype=np.int64)) if first else rows
