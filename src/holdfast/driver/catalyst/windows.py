"""The windows of an aggregate, found in what Spark's analyser makes of `window(...)`.

Spark writes a window's bounds as arithmetic on the time. Size and slide are read from the numbers
in there; then Spark is asked to analyse `window(column, size, slide)` itself, and both plans must
have the same result by its own judgement. So nothing is taken for a window that is another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.windows import AnyWindow, SessionWindow, Window, duration_us
from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.expressions import untranslatable
from holdfast.driver.catalyst.trees import Expression, Plan, frame_of
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEEDED = (
    "it groups rows without window(...) in event time, so no result is ever final; group by "
    "window(column, size) too, and have window(...) stand in groupBy itself; or take mode='update'"
)


def windows_of(spark: SparkSession, plan: Plan) -> tuple[AnyWindow, Plan, int, int]:
    """The windows of an aggregate, the plan below them, and two columns by their numbers.

    Those are the time, in the plan below, and the window, in the aggregate's own input.

    Raises:
        UnsupportedError: It has none, or such as Holdfast does not have.
    """
    from pyspark.sql import functions as F

    made = _made(plan) or _made_of_sessions(plan)
    if made is None:
        raise untranslatable("groupBy", _NEEDED)
    base, bounds, output_ids = made
    times = {each.id: each.name for each in bounds.all() if each.kind == "AttributeReference"}
    if any(each.name == "session_window" for each in _grouped(plan)):
        window_id = next(each.id for each in _grouped(plan) if each.id in output_ids)
        return *_sessions_of(spark, plan, base, bounds, times), window_id
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
    (window_id,) = (each.id for each in _grouped(plan) if each.id in output_ids)
    return Window(size_us, slide_us), base, time, window_id


def has_windows(plan: Plan) -> bool:
    """Whether an aggregate groups by windows."""
    return (_made(plan) or _made_of_sessions(plan)) is not None


def _sessions_of(
    spark: SparkSession, plan: Plan, base: Plan, bounds: Expression, times: dict[int, str]
) -> tuple[SessionWindow, Plan, int]:
    """Sessions of a fixed gap, the plan below them, and their time in it."""
    from pyspark.sql import functions as F

    texts = [
        str(each.fields["value"])
        for each in bounds.all()
        if each.kind == "Literal" and each.fields["dataType"] == "string"
    ]
    gaps = [text for text in texts if text not in ("start", "end")]
    if len(times) != 1 or len(gaps) != 1:
        raise untranslatable(
            "session_window(...)", "its gap is the same for every row, e.g. '10 minutes'"
        )
    ((time, column),) = times.items()
    try:
        gap_us = duration_us(gaps[0])
    except DataflowError as error:
        raise untranslatable("session_window(...)", str(error)) from None
    window = F.session_window(F.col(quoted(column)), gaps[0])
    own = frame_of(spark, base.java).groupBy(window).count()
    if not own._jdf.queryExecution().analyzed().child().sameResult(plan.child.java):
        raise untranslatable(
            "session_window(...)", "it is session_window(column, gap) of a column of timestamps"
        )
    return SessionWindow(gap_us), base, time


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


def _made_of_sessions(plan: Plan) -> tuple[Plan, Expression, set[int]] | None:
    """The same of sessions."""
    inner = plan.child
    if inner.kind == "Filter" and inner.child.kind == "Project":
        first, *_ = inner.child.expressions("projectList")
        if first.kind == "Alias" and first.children[0].kind == "CreateNamedStruct":
            return inner.child.child, first.children[0], {first.id}
    return None
