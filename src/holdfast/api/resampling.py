"""Values of columns at other times: which are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api import steps
from holdfast.api.clauses import known_column, parse_column
from holdfast.api.windows import duration_us
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.api.streams import Stream


def resampling(
    stream: Stream,
    columns: Sequence[str],
    *,
    within: str,
    every: str | None,
    at: Stream | None,
    on: Sequence[tuple[str, str]] | str,
) -> steps.Resample:
    """What `Stream.resample` asks for, with the same arguments.

    Raises:
        DataflowError: It makes no sense.
    """
    if (every is None) == (at is None):
        raise DataflowError("resample needs either every=... or at=...")
    if every is not None and on:
        raise DataflowError("resample(every=...) takes its key from key_by(...), not from on=")
    if at is not None and stream.keys:
        raise DataflowError("resample(at=...) takes its key from on=, not from key_by(...)")
    pairs = [(on, on)] if isinstance(on, str) else list(on)
    keys: list[tuple[str, ...]] = [stream.keys]
    if at is not None:
        for mine, theirs in pairs:
            kinds = known_column(mine, stream.schema).type, known_column(theirs, at.schema).type
            if kinds[0] != kinds[1]:
                raise DataflowError(f"resample on {mine} ({kinds[0]}) and {theirs} ({kinds[1]})")
        keys = [tuple(mine for mine, _ in pairs), tuple(theirs for _, theirs in pairs)]
    return steps.Resample(
        tuple(parse_column(text, stream.schema) for text in columns),
        tuple(keys),
        duration_us(within),
        None if every is None else duration_us(every),
    )
