"""The windows of an aggregate, found in what Spark's analyser makes of `window(...)`.

Spark writes a window's bounds as arithmetic on the time. Size and slide are read from the numbers
in there; then Spark is asked to analyse `window(column, size, slide)` itself, and both plans must
have the same result by its own judgement. So nothing is taken for a window that is another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.windows import Window
from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.expressions import untranslatable
from holdfast.driver.catalyst.trees import Expression, Plan, frame_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = (
    "it groups rows without window(...) in event time, so no result is ever final; group by "
    "window(column, size) too, and have window(...) stand in groupBy itself"
)


def windows_of(spark: SparkSession, plan: Plan) -> tuple[Window, Plan, int, int]:
    """The windows of an aggregate, the plan below them, and two columns by their numbers.

    Those are the time, in the plan below, and the window, in the aggregate's own input.

    Raises:
        UnsupportedError: It has none, or such as Holdfast does not have.
    """
    from pyspark.sql import functions as F

    made = _made(plan)
    if made is None:
        if any(each.name == "session_window" for each in _grouped(plan)):
            raise untranslatable("session_window(...)", "there are no session windows")
        raise untranslatable("groupBy", _NEEDED)
    base, bounds, output_ids = made
    times = {each.id: each.name for each in bounds.all() if each.kind == "AttributeReference"}
    numbers = [
        int(each.fields["value"])
        for each in bounds.all()
        if each.kind == "Literal" and each.fields["dataType"] == "long"
    ]
    slides = [
        int(each.children[1].fields["value"])
        for each in bounds.all()
        if each.kind == "Remainder" and each.children[1].kind == "Literal"
    ]
    if len(times) != 1 or not slides:
        raise untranslatable("groupBy", _NEEDED)
    ((time, column),) = times.items()
    size_us, slide_us = numbers[-1], slides[0]
    frame = frame_of(spark, base.java)
    window = F.window(F.col(quoted(column)), f"{size_us} microseconds", f"{slide_us} microseconds")
    own = frame.groupBy(window).count()._jdf.queryExecution().analyzed().child()
    if not own.sameResult(plan.child.java):
        raise untranslatable(
            "window(...)",
            "it is window(column, size, slide) of a column of timestamps, without startTime",
        )
    if size_us % slide_us:
        raise untranslatable(
            "window(...)", f"its size, {size_us} us, is no multiple of its slide, {slide_us} us"
        )
    (window_id,) = (each.id for each in _grouped(plan) if each.id in output_ids)
    return Window(size_us, slide_us), base, time, window_id


def _grouped(plan: Plan) -> list[Expression]:
    grouping = plan.expressions("groupingExpressions")
    return [each for each in grouping if each.kind == "AttributeReference"]


def _made(plan: Plan) -> tuple[Plan, Expression, set[int]] | None:
    """The plan below windows, their bounds, and the new columns that hold them."""
    inner = plan.child
    if inner.kind == "Filter" and inner.child.kind == "Expand":  # Windows that overlap.
        expand = inner.child
        base, first = expand.child, expand.projection(0, 0)
        if first.kind == "CreateNamedStruct":
            return base, first, set(expand.output_ids) - set(base.output_ids)
    if inner.kind == "Project" and inner.child.kind == "Filter":
        first, *_ = inner.expressions("projectList")
        base = inner.child.child
        if first.kind == "Alias" and first.children[0].kind == "CreateNamedStruct":
            return base, first.children[0], {first.id}
    return None
