"""What HA's simulations assume (its Table 5) and print (its Tables 6 to 8, Figures 6 and 7).

Of the figures only what the text says is known: their points were lost with the drawings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from holdfast.core.recovery.cost_model import Approach, Surroundings, UnitFigures

TUPLES_PER_S: Final = 1_000
TUPLE_BYTES: Final = 50
ID_BYTES: Final = 8
FILTER_COST_US: Final = 10
DETECTION_MS: Final = 250
REDIRECT_MS: Final = 40
INTERVAL_MS: Final = 50
NETWORK_DELAY_MS: Final = 5
NETWORK_BYTES_PER_MS: Final = 2_000
"""16 Mbps."""
INTERVALS_MS: Final = (25, 50, 100, 150, 200)
"""M in Figure 6."""


def surroundings(interval_ms: float = INTERVAL_MS) -> Surroundings:
    """Table 5."""
    return Surroundings(
        interval_ms=interval_ms,
        detection_ms=DETECTION_MS,
        redirect_ms=REDIRECT_MS,
        network_delay_ms=NETWORK_DELAY_MS,
        network_bytes_per_ms=NETWORK_BYTES_PER_MS,
        id_bytes=ID_BYTES,
    )


@dataclass(frozen=True, slots=True)
class PaperQuery:
    """The query that fails.

    One tuple comes each millisecond, so that windows of so many tuples and of so many milliseconds
    are the same. Behind the first of several aggregates tuples come every `advance_ms`, and windows
    must be in time, or the fifth would span days.

    Attributes:
        operator: A filter that lets all pass, aggregates, or a union of two streams of half the
            rate each.
        window_ms: Of every aggregate.
        advance_ms: Of every aggregate.
        aggregates: How many follow each other.
    """

    operator: Literal["filter", "aggregate", "union"] = "aggregate"
    window_ms: int = 100
    advance_ms: int = 10
    aggregates: int = 1

    @property
    def inner_per_s(self) -> float:
        """Tuples per second behind the first operator."""
        return 1000 / self.advance_ms if self.operator == "aggregate" else TUPLES_PER_S

    @property
    def tuple_cost_us(self) -> float:
        """Per input tuple: an aggregate's cost is the filter's times window over advance."""
        if self.operator != "aggregate":
            return FILTER_COST_US
        each = FILTER_COST_US * self.window_ms / self.advance_ms
        return each * (1 + (self.aggregates - 1) * self.inner_per_s / TUPLES_PER_S)

    def figures(self) -> UnitFigures:
        """The unit as the cost model takes it."""
        is_aggregate = self.operator == "aggregate"
        count = self.aggregates if is_aggregate else 0
        entering_per_s = (TUPLES_PER_S + (count - 1) * self.inner_per_s) if is_aggregate else 0.0
        streams = 2 if self.operator == "union" else 1
        # The last output acknowledged is on average half an advance old, and goes back to the
        # beginning of its window.
        span_ms = count * self.window_ms + self.advance_ms / 2 if is_aggregate else 0.0
        return UnitFigures(
            input_tuples_per_s=TUPLES_PER_S,
            output_tuples_per_s=self.inner_per_s,
            tuple_bytes=TUPLE_BYTES,
            output_tuple_bytes=TUPLE_BYTES,
            tuple_cost_us=self.tuple_cost_us,
            rebuild_share=(count - 0.5) / count if is_aggregate else 1.0,
            state_tuples=span_ms * TUPLES_PER_S / 1000,
            state_bytes=entering_per_s * self.window_ms / 1000 * TUPLE_BYTES,
            changed_bytes_per_s=entering_per_s * TUPLE_BYTES,
            input_streams=streams,
            stateful_operators=count,
            operators=max(1, count),
            paths=streams,
            is_deterministic=self.operator != "union",
            is_convergent_capable=self.operator != "union",
        )


@dataclass(frozen=True, slots=True)
class Printed:
    """One cell pair of a table: rollback recovery."""

    table: str
    query: PaperQuery
    approach: Approach
    overhead_percent: float | None
    recovery_ms: float | None


_UPSTREAM, _ACTIVE, _PASSIVE = (
    Approach.UPSTREAM_BACKUP,
    Approach.ACTIVE_STANDBY,
    Approach.PASSIVE_STANDBY,
)
_TABLE_6: Final = {
    "filter": ((0.64, 47.62), (100.96, 1.80), (101.27, 45.88)),
    "aggregate": ((0.64, 69.86), (100.96, 0.07), (111.55, 48.88)),
    "union": ((1.28, 50.92), (101.91, 1.82), (101.90, 47.24)),
}
_TABLE_7: Final = {
    100: (111.55, 48.9, 69.9),
    200: (111.55, 51.7, 98.9),
    300: (111.54, 54.6, 138.7),
    400: (111.54, 60.0, 188.5),
    500: (111.54, 63.9, 248.3),
}
_TABLE_8: Final = {
    100: (102.6, 47.5, 62.6),
    50: (103.6, 47.5, 61.4),
    25: (105.6, 47.6, 61.3),
    10: (111.6, 48.8, 69.9),
    5: (121.5, 51.6, 83.8),
}
FIGURE_7_UPSTREAM_BACKUP_MS: Final = {5: 170.0}
"""Recovery time by the number of aggregates: what §7.4 says of Figure 7."""


def _printed() -> tuple[Printed, ...]:
    cells: list[Printed] = []
    for operator in ("filter", "aggregate", "union"):
        for approach, cell in zip((_UPSTREAM, _ACTIVE, _PASSIVE), _TABLE_6[operator], strict=True):
            cells.append(Printed("table6", PaperQuery(operator), approach, *cell))
    for name, table in (("table7", _TABLE_7), ("table8", _TABLE_8)):
        for size, (overhead, passive_ms, upstream_ms) in table.items():
            window, advance = (size, 10) if name == "table7" else (100, size)
            query = PaperQuery("aggregate", window, advance)
            cells.append(Printed(name, query, _PASSIVE, overhead, passive_ms))
            cells.append(Printed(name, query, _UPSTREAM, None, upstream_ms))
    return tuple(cells)


PRINTED: Final = _printed()
"""All cells of Tables 6, 7 and 8."""
