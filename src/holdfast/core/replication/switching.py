"""From which replica of its producer a stream is read. [DPC §3.2 "Upstream failure", Table 2]

Theory of operation. A producer that is Replicated has replicas, each a node with a stream of its
own to the reader. Their stable tuples are the same under the same ids, so the reader has one queue
for all of them: what comes twice is dropped by its id, and changing from one to another duplicates
nothing and loses nothing that is stable. All of them hear what the reader has and needs, and all of
them say with every keep-alive where they stand: that is the paper's heartbeat.

One is the *main* sender: it alone sends tentative tuples. `choose` says which:

    stable  over  in up_failure  over  correcting  over  not heard of

The present one stays while none is better. A sender counts as stable for that only when it has
promised, as stable, what the reader has been promised as tentative: one that comes back after a
crash is stable, and behind. While the main sender is in up_failure, another one that is correct, or
correcting, is read *aside*: it sends stable tuples alone. The others are *watched*: they send no
tuples. The reader subscribes each anew when that changes. As the word can be lost, it says with all
acknowledgements, too, who is the main one.

Going from one sender in up_failure to another, the reader keeps what has come of the run, and takes
of the other run what is younger than all that it has taken: ids of two runs cannot be compared, so
the tuple time is the paper's t_max (tentative_input.py). Else what came of the run is void.

Departure from [DPC]: a replica is a node of its own, with restart points, acknowledgements and
output queues of its own. 1. Replicas that share books need somebody who keeps them. 2. If he is
tentative, no point is noted for the whole failure, or the books have to move. Nothing is shared
here but the turns (turns.py); the price is that each producer keeps a queue per replica of its
reader, over the same batches.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.replication.consistency_manager import Consistency

if TYPE_CHECKING:
    from holdfast.core.model.ids import Incarnation, NodeId, Run, StreamId

NEVER_MS: Final = -(10**9)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a replica stands, as it says with its keep-alives.

    Attributes:
        state: Of its output.
        stable_before: It has put out all stable tuples before this id.
        stable_us: It has promised this, as stable.
        run: The suffix that stands now; None: none does, whatever was said before.
    """

    state: Consistency
    stable_before: int
    stable_us: int
    run: Run | None = None


class Reading(enum.Enum):
    """What a sender is to send."""

    MAIN = "stable and tentative tuples"
    ASIDE = "stable tuples"
    WATCHED = "keep-alives"


@dataclass(slots=True)
class Sender:
    """One replica of a stream's producer.

    Attributes:
        stream: The stream as this replica names it.
        node: The replica; None: a source that the shell reads.
        incarnation: Its newest, as far as it is known.
        is_served: Whether it has been heard of since the reader's incarnation began.
        has_told: Whether this incarnation of it has said from where on its tuples are others.
        heard_ms: When it was last heard of.
        subscribed_ms: When it was last asked for the stream.
        standing: Where it stands; None: it has not said, or has none to say.
        reading: What it is to send.
    """

    stream: StreamId
    node: NodeId | None
    heard_ms: int
    incarnation: Incarnation | None = None
    is_served: bool = False
    has_told: bool = False
    subscribed_ms: int = NEVER_MS
    standing: Standing | None = None
    reading: Reading = Reading.WATCHED

    def ask_at_once(self) -> None:
        """However short a time ago it was asked, the next asking counts."""
        self.subscribed_ms = NEVER_MS

    def learn(self, incarnation: Incarnation, now_ms: int) -> None:
        """It has another incarnation, of which nothing is known."""
        self.incarnation = incarnation
        self.standing = None
        self.has_told = False
        self.heard_ms = now_ms
        self.ask_at_once()


@dataclass(frozen=True, slots=True)
class Choice:
    """Whom to read.

    Attributes:
        main: Who sends tentative tuples, too.
        aside: Who sends stable ones beside it; None: nobody.
    """

    main: Sender
    aside: Sender | None = None


def choose(
    senders: Sequence[Sender],
    main: Sender,
    *,
    tentative_us: int,
    now_ms: int,
    silence_ms: int,
) -> Choice:
    """Whom to read from now on.

    Args:
        senders: All replicas of the producer.
        main: Who has been the main one.
        tentative_us: What has been promised as tentative, and not as stable.
        now_ms: The time.
        silence_ms: Who has not been heard of for longer counts as gone.
    """
    ranks = [_rank(sender, tentative_us, now_ms, silence_ms) for sender in senders]
    best = max(ranks)
    by_rank = dict(zip([sender.stream for sender in senders], ranks, strict=True))
    if by_rank[main.stream] < best:
        equals = [s for s, rank in zip(senders, ranks, strict=True) if rank == best]
        main = max(equals, key=lambda sender: _stable_before(sender))
    if best != _UP_FAILURE:
        return Choice(main)
    correcting = [s for s, rank in zip(senders, ranks, strict=True) if rank == _CORRECTING]
    return Choice(main, max(correcting, key=_stable_before, default=None))


_GONE: Final = 0
_CORRECTING: Final = 1
_UP_FAILURE: Final = 2
_STABLE: Final = 3


def _rank(sender: Sender, tentative_us: int, now_ms: int, silence_ms: int) -> int:
    standing = sender.standing
    is_heard = sender.incarnation is not None and now_ms - sender.heard_ms <= silence_ms
    if standing is None or not is_heard:
        return _GONE
    if standing.state is Consistency.UP_FAILURE:
        return _UP_FAILURE
    is_there = standing.state is Consistency.STABLE and standing.stable_us >= tentative_us
    return _STABLE if is_there else _CORRECTING


def _stable_before(sender: Sender) -> int:
    return -1 if sender.standing is None else sender.standing.stable_before
