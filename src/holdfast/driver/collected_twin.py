"""Lists, sets and percentiles in the batch twin, in the order that Holdfast gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.api.steps import Aggregate


def collected(of: Aggregate, over: Any = None, order: Sequence[Any] | None = None) -> Any:
    """What an aggregate gives that keeps all values: sets in ascending order, ranks as defined.

    Args:
        of: The aggregate.
        over: Windows of SQL, whose rows are in order; None: it is of a group.
        order: Of a group, what a list is sorted by; other functions need none.
    """
    assert of.expression is not None
    value = F.expr(of.expression.sql)

    def windowed(aggregate: Any) -> Any:
        return aggregate if over is None else aggregate.over(over)

    if of.function == "collect_list":
        return _list(value, order) if order is not None else windowed(F.collect_list(value))
    if of.function == "collect_set":
        return F.sort_array(windowed(F.collect_set(value)))
    if of.function == "percentile":
        return windowed(F.percentile(value, of.percentages[0]))
    if of.function == "percentiles":
        return windowed(F.percentile(value, list(of.percentages)))
    ascending = F.sort_array(windowed(F.collect_list(value)))
    picked = [_ranked(ascending, each) for each in of.percentages]
    if of.function == "approx_percentile":
        return picked[0]
    return F.when(F.size(ascending) > 0, F.array(*picked))


def _list(value: Any, order: Sequence[Any]) -> Any:
    """Values by what their rows are sorted by, also such that cannot be compared themselves."""
    placed = F.struct(F.struct(*order).alias("place"), value.alias("it"))
    rows = F.collect_list(F.when(value.isNotNull(), placed))

    def by_place(left: Any, right: Any) -> Any:
        return F.when(left["place"] < right["place"], F.lit(-1)).otherwise(F.lit(1))

    return F.transform(F.array_sort(rows, by_place), lambda row: row["it"])


def _ranked(ascending: Any, percentage: float) -> Any:
    """The least value such that so many of all are no greater; null if there is none."""
    rank = F.greatest(F.lit(1), F.ceil(F.lit(percentage) * F.size(ascending)).cast("int"))
    return F.when(F.size(ascending) > 0, F.element_at(ascending, rank))
