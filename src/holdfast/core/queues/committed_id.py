"""Which tuple of a sink comes next, by the offset that its group has committed at a broker.

The offset is the id of the next tuple. It is believed only if it carries the name of this very
sink, which no other checkpoint location shares, and the incarnation that has written it. Anybody
can commit an offset for any group: a consumer that was given the sink's group, or a query at
another location with the same transactional id. To go on from theirs would leave tuples out, or
write some twice.

Offsets that were committed before the name was kept carry the incarnation alone. They are believed
where the location knows that it has written.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.ids import Incarnation

_WORD = "incarnation "
_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class GoOn:
    """The tuple that comes next."""

    next_id: int


@dataclass(frozen=True, slots=True)
class Superseded:
    """A later incarnation has written."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Lost:
    """The sink has written, and the broker knows of no offset."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Somebody else has committed the offset."""


def metadata_of(writer: str, incarnation: Incarnation) -> str:
    """What goes with an offset: who says it."""
    return f"{writer} {_WORD}{incarnation}"


def next_of(
    offset: int,
    metadata: str,
    *,
    writer: str,
    incarnation: Incarnation,
    has_written: bool,
) -> GoOn | Superseded | Lost | Foreign:
    """What a committed offset says.

    Args:
        offset: As the broker gives it; negative: there is none.
        metadata: What goes with it.
        writer: The sink's own name.
        incarnation: Which opens the sink.
        has_written: Whether any incarnation is known to have committed an offset.
    """
    if offset < 0:
        return Lost() if has_written else GoOn(0)
    who, _, number = metadata.rpartition(_WORD)
    is_own = who == f"{writer} " or (has_written and metadata == _WORD + number)
    if not (is_own and number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX):
        return Foreign()
    former = Incarnation(int(number))
    return Superseded(former) if former > incarnation else GoOn(offset)
