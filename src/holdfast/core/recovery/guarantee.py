"""What holds for the output before and after a failure, taken together. [HA §3.1]

Precise recovery rests on ids: a replacement gives its output the ids it had before. A unit with
*rollback recovery* or gap recovery cannot do that, so its replacement *rebases* its streams: it
goes on with the ids that receivers name. A tuple that comes twice then comes under two ids, and one
that is lost leaves no gap in the ids. What a receiver has been promised still holds: it says up to
which time it has everything, and nothing older is sent again.

A receiver that is being rebuilt at the same moment asks for ids whose tuples nobody can produce any
more as they were. It takes what comes instead, and is itself rebased from there on, unless it has
put out again all that it had put out before.

Nor can a rebased stream be served from before the id where it was rebased. As long as its receiver
may need that (it is not *settled*), its producer stores no restart point; and if the receiver does
fail then, both start once more. After amnesia there is nothing to start from: the receiver goes on
where the stream does, and what it had lost stays lost. Of its other inputs it cannot tell what it
has put out already, and nor can a node with amnesia whose producer failed too: that may come twice.

Units that recover together rebase no stream. With rollback recovery their sinks alone go on with
other ids: what was put out since the line may come again. [CheckMate §II-A]
"""

from __future__ import annotations

import enum


class Guarantee(enum.Enum):
    """See the module."""

    PRECISE = "precise"
    ROLLBACK = "rollback"
    GAP = "gap"


class RolledBack(RuntimeError):
    """A node's state rests on what others will do otherwise: the next one begins further back."""


class StreamRebased(RuntimeError):
    """A node cannot follow a stream, or serve one, that was rebased; its replacement can."""
