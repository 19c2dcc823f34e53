"""How much of its logs a query keeps, as users write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.api.windows import duration_us
from holdfast.core.queues.retention import FOR_EVER, Retention
from holdfast.errors import DataflowError, OptionError

DEFAULT: Final = "1 day"
"""Of what was recorded of sources, and of metrics. Results are kept for ever unless asked."""
_FOR_EVER: Final = "for ever"
_BYTES: Final = {
    "B": 1,
    "KB": 1_000,
    "MB": 1_000_000,
    "GB": 1_000_000_000,
    "TB": 1_000_000_000_000,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}


def retention_of(text: str) -> Retention:
    """What `1 day`, `10 GB` or `for ever` means. Raises `OptionError` for anything else."""
    if text.strip().lower() in (_FOR_EVER, "forever"):
        return FOR_EVER
    number, _, unit = text.strip().partition(" ")
    factor = _BYTES.get(unit.strip().upper())
    if factor is not None and number.isdigit() and int(number) > 0:
        return Retention(size_bytes=int(number) * factor)
    try:
        return Retention(time_us=duration_us(text))
    except DataflowError as error:
        raise OptionError(
            f"retention={text!r}: a time as '1 day', a size as '10 GB', or {_FOR_EVER!r}"
        ) from error


def retentions_of(
    given: str | Mapping[str, str] | None, sources: set[str], sinks: Mapping[str, str]
) -> dict[str, Retention]:
    """How much is kept, by the names of sources and sinks, and of `metrics`.

    Args:
        given: One for all sources and metrics, or some by name; None: the default.
        sources: Those that are recorded at the location.
        sinks: All sinks; with each why nothing can be removed of it, or an empty text.

    Raises:
        OptionError: A name is unknown, or a text makes no sense.
    """
    recorded = retention_of(given if isinstance(given, str) else DEFAULT)
    found = dict.fromkeys([*sources, "metrics"], recorded) | dict.fromkeys(sinks, FOR_EVER)
    for name, text in {} if given is None or isinstance(given, str) else given.items():
        if name not in found:
            raise OptionError(
                f"retention of {name!r}: it is none of {', '.join(sorted(found))}; logs that were "
                "given by their path are kept by whoever writes them"
            )
        wanted = retention_of(text)
        if not wanted.is_for_ever and sinks.get(name):
            raise OptionError(f"retention of sink {name!r}: {sinks[name]}")
        found[name] = wanted
    return found
