"""SUnion puts the tuples of several streams into one deterministic order. [DPC "SUnion"]

Every stream carries boundaries: promises that nothing older than a time will follow. Once all
streams have passed a time, the tuples before it are released, sorted by (tuple time, stream,
tuple id). Whatever the timing of arrivals, and however the streams were cut into batches, the
concatenation of all releases is the same sequence, so replicas and replays see the same input.

Without the streams that are missing, tuples are also released as *tentative*, up to a time that the
caller decides on (input_delay.py). SUnion holds what is stable of them until they are released as
stable, too: `hold_cut` begins that, `go_back` returns to where it began. Tuples that come later and
are older than what has been released as tentative wait for that. Tentative tuples of the streams
themselves are released as tentative only, and gone with `undo`.

SUnion keeps no more than it is told to (`keep_at_most`): what comes beyond that, of streams that
others wait for, is released as tentative and left out of the correction (model/dropped.py). What is
slowest is kept whole: the correction waits for it.

Departure from the paper: buckets have no fixed width. A release covers exactly the time up to
the slowest boundary: the finest order that is still deterministic, and no delay of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.core.errors import RemoteProtocolError
from holdfast.core.model.dropped import NONE, left_of, with_range
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID
from holdfast.core.model.positions import positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.model.dropped import Ranges
    from holdfast.core.model.tuples import TupleBatch


@dataclass(slots=True)
class MergedPort:
    """What one port receives in one pass.

    Attributes:
        batch: The rows, with the time column last, in merged order.
        time_us: int64 tuple times, one per row.
        order: int64 positions in the merged order of the pass over all ports, increasing.
        created_us: Creation time of the oldest row; 0 if unknown.
    """

    batch: pa.RecordBatch
    time_us: np.ndarray
    order: np.ndarray
    created_us: int


@dataclass(slots=True)
class Release:
    """One pass: rows per port (None: nothing), and the oldest id per stream (NO_ID: none)."""

    ports: list[MergedPort | None]
    low: np.ndarray
    tuples: int


@dataclass(slots=True)
class _Piece:
    """Rows of one stream in id order; `ids` is None while they are consecutive from `first_id`."""

    batch: pa.RecordBatch
    time_us: np.ndarray
    first_id: int
    ids: np.ndarray | None
    created_us: int
    known_newest_us: int | None = None  # once somebody has asked
    known_oldest_us: int | None = None

    @property
    def newest_us(self) -> int:
        """The time of the newest row."""
        if self.known_newest_us is None:
            self.known_newest_us = int(self.time_us.max())
        return self.known_newest_us

    @property
    def oldest_us(self) -> int:
        """The time of the oldest row."""
        if self.known_oldest_us is None:
            self.known_oldest_us = int(self.time_us.min())
        return self.known_oldest_us

    @property
    def low(self) -> int:
        return int(self.ids[0]) if self.ids is not None else self.first_id

    def select(self, keep: np.ndarray) -> _Piece:
        ids = self.ids
        if ids is None:
            ids = np.arange(self.first_id, self.first_id + len(self.time_us), dtype=np.int64)
        return _Piece(
            self.batch.filter(pa.array(keep)),
            self.time_us[keep],
            int(ids[keep][0]),
            ids[keep],
            self.created_us,
        )

    def slice(self, start: int, stop: int) -> _Piece:
        return _Piece(
            self.batch.slice(start, stop - start),
            self.time_us[start:stop],
            self.first_id + start,
            None if self.ids is None else self.ids[start:stop],
            self.created_us,
        )


class SUnion:
    """Merges the streams of a node. Volatile: all fields; replay fills them again."""

    def __init__(self, ports: Sequence[int], port_count: int) -> None:
        """Merge `len(ports)` streams; stream `i` feeds port `ports[i]` of `port_count`."""
        self._ports = list(ports)
        self._port_count = port_count
        self._held: list[list[_Piece]] = [[] for _ in ports]
        self._is_ascending = [True] * len(self._ports)  # no piece held is older than one before it
        self.held_tuples = [0] * len(self._ports)
        """Per stream what of it uses up its credit."""
        self._waiting = [0] * len(self._ports)  # what has not been released
        self._released_before = BEGINNING_US
        self._processed_before = [0] * len(self._ports)
        self._ever_us = [END_US] * len(self._ports)  # per stream, of all that it has ever had
        # While a cut is held: per stream all pieces that have been held since.
        self._kept: list[list[_Piece]] | None = None
        self._tentative_before = BEGINNING_US  # Released as tentative.
        self._tentative: list[list[_Piece]] = [[] for _ in ports]  # What came as tentative.
        self.tentative_tuples = [0] * len(self._ports)
        """Per stream how much of that is held."""
        self._kept_max: int | None = None  # per stream; None: whatever comes is kept
        self._drops = True  # what goes beyond that
        self._kept_tuples = [0] * len(self._ports)
        self._unkept: list[list[_Piece]] = [[] for _ in ports]  # dropped, and not yet released
        self.dropping: list[Ranges] = [NONE] * len(self._ports)
        """Per stream what has been dropped since the cut."""
        self.dropped: list[Ranges] = [NONE] * len(self._ports)
        """Per stream what corrections have gone without; it is left out if it comes again."""

    def resume(self, boundary_us: int, processed_before: Sequence[int]) -> None:
        """Go on where everything older than the boundary has been released.

        Args:
            boundary_us: Of the last release.
            processed_before: Per stream the id before which its tuples had been added by then.
                They come again if they were held; those that were released are dropped.
        """
        self._released_before = boundary_us
        self._processed_before = list(processed_before)

    def had(self, stream: int, before_us: int) -> bool:
        """Whether a stream has ever had a tuple that is older than this, be it tentative."""
        return self._ever_us[stream] < before_us

    def had_before(self, stream: int) -> None:
        """Another incarnation has processed tuples of a stream, of any time."""
        self._ever_us[stream] = BEGINNING_US

    def keep_at_most(self, tuples: int | None, dropped: Sequence[Ranges]) -> None:
        """Of each stream no more than so many tuples are kept for a correction; None: all are.

        Args:
            tuples: So many.
            dropped: Per stream what is to be left out now.
        """
        self._kept_max = tuples
        self.dropped = list(dropped)

    def add(
        self,
        stream: int,
        batch: TupleBatch,
        drop_from: int = NO_ID,
    ) -> int | None:
        """Hold a batch of stream number `stream` until its time has come.

        Args:
            stream: Its number.
            batch: What has come.
            drop_from: What comes from this id on may be left out of a correction, for want of room.

        Returns:
            The newest of its times; None: it has no tuples.

        Raises:
            RemoteProtocolError: A tuple is older than a boundary that was already acted on.
        """
        if batch.count == 0:
            return None
        piece = _Piece(batch.batch, batch.time_us, batch.first_id, None, batch.created_us)
        newest_us = piece.newest_us
        self._ever_us[stream] = min(self._ever_us[stream], piece.oldest_us)
        seen = min(self._processed_before[stream] - batch.first_id, batch.count)
        if seen > 0:
            _, held = _split(piece.slice(0, seen), self._released_before)
            self._hold(stream, held)
            piece = piece.slice(seen, batch.count)
        if self.dropped[stream]:
            for start, stop in left_of(self.dropped[stream], piece.first_id, len(piece.time_us)):
                self._hold(stream, piece.slice(start, stop), drop_from)
            return newest_us
        self._hold(stream, piece, drop_from)
        return newest_us

    def _hold(self, stream: int, piece: _Piece | None, drop_from: int = NO_ID) -> None:
        if piece is None or len(piece.time_us) == 0:
            return
        if drop_from != NO_ID:
            left = self._left_for_want_of_room(stream, piece, drop_from)
            if left == 0:
                return
            piece = piece.slice(0, left)
        if piece.oldest_us < self._released_before:
            raise RemoteProtocolError(
                f"stream {stream}: tuple {piece.low} or later is older than its boundary "
                f"{self._released_before}"
            )
        fresh: _Piece | None = piece
        if self._kept is not None:
            self._kept[stream].append(piece)
            self._kept_tuples[stream] += len(piece.time_us)
            fresh = self._not_late(piece)
        if fresh is not None:
            held = self._held[stream]
            if held and held[-1].newest_us > fresh.oldest_us:
                self._is_ascending[stream] = False
            held.append(fresh)
            self._waiting[stream] += len(fresh.time_us)
        self._count(stream)

    def _count(self, stream: int) -> None:
        """What of a stream uses up its credit: what is kept, too; of what may be dropped, only that
        beyond the bound, which could not be.
        """
        held = self._waiting[stream]
        if self._kept is not None:
            kept, bound = self._kept_tuples[stream], self._kept_max
            held = kept if bound is None else held + max(0, kept - bound)
        self.held_tuples[stream] = held

    def _left_for_want_of_room(self, stream: int, piece: _Piece, drop_from: int) -> int:
        """Drop what there is no room for; how many tuples of the piece are left."""
        count = len(piece.time_us)
        if self._kept is None or self._kept_max is None or not self._drops:
            return count
        room = max(0, self._kept_max - self._kept_tuples[stream])
        left = min(count, max(room, drop_from - piece.first_id))
        if left < count:
            self._drop(stream, piece.slice(left, count))
        return left

    def _drop(self, stream: int, piece: _Piece) -> None:
        """The correction goes without it; what is not late for the present suffix goes into that.

        Consecutive ids, as all that comes as stable has.
        """
        end = piece.first_id + len(piece.time_us)
        self.dropping[stream] = with_range(self.dropping[stream], piece.first_id, end)
        fresh = self._not_late(piece)
        if fresh is not None:
            self._unkept[stream].append(fresh)
            self._waiting[stream] += len(fresh.time_us)
            self._count(stream)

    def _not_late(self, piece: _Piece) -> _Piece | None:
        """What is not older than tuples that have been released, be it as tentative."""
        _, fresh = _split(piece, max(self._released_before, self._tentative_before))
        return fresh

    def release(self, boundary_us: int) -> Release:
        """Everything older than `boundary_us`, which all streams have passed."""
        self._released_before = max(self._released_before, boundary_us)
        for stream, pieces in enumerate(self._tentative):
            if pieces:  # What is stable by now stands for those before the boundary.
                self._keep_tentative(stream, _split_all(pieces, boundary_us)[1])
        return self._release([self._held], boundary_us)

    def _keep_tentative(self, stream: int, pieces: list[_Piece]) -> None:
        self._tentative[stream] = pieces
        self.tentative_tuples[stream] = sum(len(piece.time_us) for piece in pieces)

    def _release(self, sources: list[list[list[_Piece]]], boundary_us: int) -> Release:
        """Take everything older than a boundary out of lists of pieces per stream."""
        low = np.full(len(self._ports), NO_ID, dtype=np.int64)
        pieces: list[tuple[int, _Piece]] = []
        for stream, port in enumerate(self._ports):
            for source in sources:
                may_stop = source is self._held and self._is_ascending[stream]
                ready, rest = _split_all(source[stream], boundary_us, may_stop=may_stop)
                if ready:
                    source[stream] = rest
                    if source is self._tentative:
                        self._keep_tentative(stream, rest)
                    else:
                        self._waiting[stream] -= sum(len(piece.time_us) for piece in ready)
                        self._count(stream)
                        self._is_ascending[stream] |= not rest
                    low[stream] = min(int(low[stream]), *(piece.low for piece in ready))
                    pieces.extend((port, piece) for piece in ready)
        return _merge(pieces, self._port_count, low)

    # -- without missing streams ----------------------------------------------------------------

    def hold_cut(self) -> None:
        """From now on keep what is released, as it is released as tentative."""
        self._kept = [list(pieces) for pieces in self._held]
        self._kept_tuples = [sum(len(p.time_us) for p in pieces) for pieces in self._kept]
        self._tentative_before = self._released_before

    def add_tentative(self, stream: int, batch: TupleBatch, stable_us: int) -> None:
        """Hold tentative tuples of a stream; what is too late for the present suffix is dropped.

        Args:
            stream: Its number.
            batch: The tuples.
            stable_us: What the stream has promised as stable: all older ones have come as that.
        """
        if batch.count == 0:
            return
        piece = _Piece(batch.batch, batch.time_us, batch.first_id, None, batch.created_us)
        self._ever_us[stream] = min(self._ever_us[stream], piece.oldest_us)
        fresh = self._not_late(piece)
        if fresh is not None:
            _, fresh = _split(fresh, stable_us)
        if fresh is not None:
            self._tentative[stream].append(fresh)
            self.tentative_tuples[stream] += len(fresh.time_us)

    def undo(self, stream: int) -> None:
        """Forget what came as tentative on a stream and has not been released."""
        self._keep_tentative(stream, [])

    def release_tentative(self, boundary_us: int) -> Release:
        """Everything older than `boundary_us` that has not been released, as tentative.

        The oldest ids of the release count stable and tentative tuples alike.
        """
        self._tentative_before = max(self._tentative_before, boundary_us)
        return self._release([self._held, self._tentative, self._unkept], boundary_us)

    def stop_dropping(self) -> None:
        """From now on until the correction all is kept: what was dropped is being written down."""
        self._drops = False

    def go_back(self) -> None:
        """Hold again what was held at the cut, and what has come since as stable."""
        if self._kept is not None:
            self._held, self._kept = self._kept, None
            self._is_ascending = [_are_ascending(pieces) for pieces in self._held]
            self._tentative_before = BEGINNING_US
            self._waiting = [sum(len(p.time_us) for p in pieces) for pieces in self._held]
            self.held_tuples[:] = self._waiting
            for stream, ranges in enumerate(self.dropping):
                self.dropped[stream] += ranges
            self.dropping = [NONE] * len(self._ports)
            self._unkept = [[] for _ in self._ports]
            self._drops = True

    def boundary_for(self, tuples: int, boundary_us: int) -> int:
        """A boundary up to a given one before which there are about so many tuples per stream.

        For passes of a bearable size: one more tuple time at least, whatever its number of tuples.
        """
        wanted_us = boundary_us
        if max(self.held_tuples) <= tuples:
            return boundary_us
        for pieces in self._held:
            left = tuples
            for piece in pieces:
                if left < len(piece.time_us):
                    wanted_us = min(wanted_us, int(piece.time_us[left]))
                    break
                left -= len(piece.time_us)
        if wanted_us <= self._released_before:
            wanted_us = self._oldest_us() + 1
        return min(boundary_us, wanted_us)

    def _oldest_us(self) -> int:
        times = (piece.oldest_us for pieces in self._held for piece in pieces)
        return min(times, default=BEGINNING_US)

    # -- looking ----------------------------------------------------------------------------

    def with_tentative(self) -> list[int]:
        """The streams of which something waits that will not come out as stable."""
        pairs = zip(self._tentative, self._unkept, strict=True)
        return [stream for stream, pieces in enumerate(pairs) if any(pieces)]

    def newest_held_us(self) -> int | None:
        """The newest time among the tuples held; None: there are none."""
        times = (piece.newest_us for pieces in self._held for piece in pieces)
        return max(times, default=None)

    def oldest_held(self) -> np.ndarray:
        """Per stream the oldest id still held, NO_ID where nothing is. Shape (streams,), int64."""
        return np.array(
            [min((piece.low for piece in held), default=NO_ID) for held in self._held],
            dtype=np.int64,
        )


def _are_ascending(pieces: list[_Piece]) -> bool:
    return all(one.newest_us <= other.oldest_us for one, other in pairwise(pieces))


def _split_all(
    pieces: list[_Piece], boundary_us: int, *, may_stop: bool = False
) -> tuple[list[_Piece], list[_Piece]]:
    """The rows older than the boundary, and the others, of pieces in id order.

    Args:
        pieces: The pieces.
        boundary_us: The boundary.
        may_stop: Whether no piece is older than one before it. A correction has many of them.
    """
    ready: list[_Piece] = []
    rest: list[_Piece] = []
    for number, piece in enumerate(pieces):
        if may_stop and piece.oldest_us >= boundary_us:
            return ready, rest + pieces[number:]
        taken, left = _split(piece, boundary_us)
        if taken is not None:
            ready.append(taken)
        if left is not None:
            rest.append(left)
    return ready, rest


def _split(piece: _Piece, boundary_us: int) -> tuple[_Piece | None, _Piece | None]:
    """The rows older than the boundary, and the others."""
    time_us = piece.time_us
    if piece.newest_us < boundary_us:
        return piece, None
    if piece.oldest_us >= boundary_us:
        return None, piece
    is_ready = time_us < boundary_us
    count = int(np.count_nonzero(is_ready))
    if bool(is_ready[:count].all()):
        return piece.slice(0, count), piece.slice(count, len(time_us))
    return piece.select(is_ready), piece.select(~is_ready)


def _merge(pieces: list[tuple[int, _Piece]], port_count: int, low: np.ndarray) -> Release:
    """Sort by (time, stream, id); the pieces come in the order (stream, id)."""
    ports: list[MergedPort | None] = [None] * port_count
    if not pieces:
        return Release(ports, low, 0)
    times = pieces[0][1].time_us
    if len(pieces) > 1:
        times = np.concatenate([piece.time_us for _, piece in pieces])
    rank = positions(len(times))
    by_time = None if _is_ascending(times) else np.argsort(times, kind="stable")
    if len({port for port, _ in pieces}) == 1:
        ports[pieces[0][0]] = _merged([piece for _, piece in pieces], rank, by_time)
        return Release(ports, low, len(times))
    if by_time is not None:
        rank = np.empty(len(times), dtype=np.int64)
        rank[by_time] = positions(len(times))
    starts = np.cumsum([0, *(len(piece.time_us) for _, piece in pieces)])
    for port in range(port_count):
        members = [i for i, (target, _) in enumerate(pieces) if target == port]
        if not members:
            continue
        order = np.concatenate([rank[starts[i] : starts[i + 1]] for i in members])
        permutation = None if _is_ascending(order) else np.argsort(order, kind="stable")
        order = order if permutation is None else order[permutation]
        ports[port] = _merged([pieces[i][1] for i in members], order, permutation)
    return Release(ports, low, len(times))


def _merged(pieces: list[_Piece], order: np.ndarray, permutation: np.ndarray | None) -> MergedPort:
    """The pieces of a port in one, their rows permuted; `order` is theirs after that."""
    batch = pieces[0].batch
    if len(pieces) > 1:
        batch = pa.concat_batches([piece.batch for piece in pieces])
    if permutation is not None:
        batch = batch.take(pa.array(permutation))
    times = batch.column(batch.num_columns - 1).to_numpy()
    created = [piece.created_us for piece in pieces if piece.created_us]
    return MergedPort(batch, times, order, min(created, default=0))


def _is_ascending(values: np.ndarray) -> bool:
    return bool((values[1:] >= values[:-1]).all())
