"""The joins of two streams: which there are, and which one is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from holdfast.api import steps
from holdfast.api.clauses import known_column, parse_join_field, require_key
from holdfast.api.windows import AnyWindow, Window, duration_us
from holdfast.core.operators.interval_join import How
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.api.streams import Stream

_HOWS: Final = get_args(How)


def joined(
    left: Stream,
    right: Stream,
    *,
    on: Sequence[tuple[str, str]] | str,
    select: Sequence[str],
    how: str,
    emit: str,
    within: tuple[str, str] | None,
    where: str | None,
) -> steps.Join:
    """The join that is meant; as `Stream.join`.

    Raises:
        DataflowError: It makes no sense.
        UnsupportedError: There is none such.
    """
    pairs = [(on, on)] if isinstance(on, str) else list(on)
    for mine, theirs in pairs:
        require_key(mine, left.schema, "join on ")
        left_type = known_column(mine, left.schema).type
        right_type = known_column(theirs, right.schema).type
        if left_type != right_type:
            raise DataflowError(f"join on {mine} ({left_type}) and {theirs} ({right_type})")
    names = tuple(mine for mine, _ in pairs), tuple(theirs for _, theirs in pairs)
    fields = tuple(parse_join_field(text, left.schema, right.schema) for text in select)
    windows = left.windows
    if within is not None:
        _require_within(windows, how, emit)
        span = span_us(within)
        return steps.IntervalJoin(*names, *span, fields, cast("How", how), where)
    if where is not None:
        raise UnsupportedError("join(where=...) without within=...; filter the pairs behind it")
    _require_joinable(windows, how, emit)
    if not isinstance(windows, Window):
        return steps.IncrementalJoin(*names, None, fields, "inner")
    if emit == "changes":
        return steps.RunningJoin(*names, windows, fields, "inner")
    kept: Literal["left", "inner"] = "left" if how == "left" else "inner"
    return steps.WindowJoin(*names, windows, fields, kept)


def span_us(within: tuple[str, str]) -> tuple[int, int]:
    """Microseconds of the two ends of a span; an end may be negative, or zero.

    Raises:
        DataflowError: They are no two durations, or the first is greater.
    """
    if isinstance(within, str) or len(within) != 2:
        raise DataflowError(f"join(within={within!r}); it is two durations, the least and greatest")
    lower_us, upper_us = map(_signed_us, within)
    if lower_us > upper_us:
        raise DataflowError(f"join(within={within!r}): no time is between these")
    return lower_us, upper_us


def _signed_us(text: str) -> int:
    """Of a duration that may have a sign, and may be zero."""
    text = text.strip()
    digits = [word for word in text.split() if word.lstrip("-").isdigit()]
    if digits and not any(int(word) for word in digits):
        duration_us(text.lstrip("-").replace(digits[0].lstrip("-"), "1", 1))  # Its units.
        return 0
    return -duration_us(text[1:]) if text.startswith("-") else duration_us(text)


def _require_within(windows: AnyWindow | None, how: str, emit: str) -> None:
    if windows is not None:
        raise DataflowError("join(within=...) has no windows; leave window(...) out")
    if how not in _HOWS:
        raise UnsupportedError(f"join(how={how!r}, within=...): it is one of {', '.join(_HOWS)}")
    if emit != "final":
        raise DataflowError("join(within=...) puts a pair out when it is certain; leave emit out")


def _require_joinable(windows: AnyWindow | None, how: str, emit: str) -> None:
    """Raise `UnsupportedError` or `DataflowError` for a join that there is not."""
    if how not in ("inner", "left") or (how == "left" and windows is None):
        raise UnsupportedError(
            f"join how={how!r}: 'inner' always works, 'left' with window(...), and any with "
            "within=(...)"
        )
    if emit not in ("final", "changes"):
        raise DataflowError(f"emit={emit!r}; it is 'final' or 'changes'")
    if emit == "changes" and windows is None:
        raise DataflowError("join(emit='changes') without window(...): such a join always does")
    if emit == "changes" and how == "left":
        raise UnsupportedError(
            "join(how='left', emit='changes'): that a tuple has no match is known when the "
            "window has closed; use emit='final'"
        )
    if windows is not None and not windows.is_plain:
        raise UnsupportedError(
            f"a join over {windows}; use tumbling(...) in event time, aligned to the "
            "epoch, without timeout"
        )
    if isinstance(windows, Window) and windows.size_us != windows.slide_us:
        raise UnsupportedError("a join over sliding windows; use tumbling(...)")
