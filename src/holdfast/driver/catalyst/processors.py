"""`transformWithState`: the class's object, out of Spark's plan.

Spark has pickled it for its own tasks. It is the user's, of this very process, and nobody else can
have put it there: it never left the driver.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.expressions import untranslatable
from holdfast.driver.catalyst.native import Native
from holdfast.driver.catalyst.trees import unpickled

if TYPE_CHECKING:
    from holdfast.api.streams import Stream
    from holdfast.driver.catalyst.trees import Plan

_CLAUSE: Final = "transformWithState"
_TIMES: Final = {"NoTime": "none", "EventTime": "event", "ProcessingTime": "processing"}
_ROWS: Final = {"row": "rows", "pandas": "pandas"}


def time_of(plan: Plan) -> str:
    """What its timers are of, as `Stream.process` takes it."""
    name = str(plan.java.timeMode().getClass().getSimpleName()).rstrip("$")
    if name not in _TIMES:
        raise untranslatable(_CLAUSE, f"there is no time mode {name}")
    return _TIMES[name]


def drops_late_rows(plan: Plan) -> bool:
    """Whether Spark leaves out rows that are too late somewhere in a plan."""
    below = any(map(drops_late_rows, plan.children))
    if plan.kind == "TransformWithStateInPySpark":
        return below or time_of(plan) == "event"
    return below or (plan.java.isStreaming() and not plan.has_no_state_itself)


def processed(plan: Plan, below: Native, name: str) -> Native:
    """The stream of what a class gives.

    Args:
        plan: Spark's: its child has the key's columns first, and then all columns of the rows.
        below: What the child is.
        name: Of the operator.

    Raises:
        UnsupportedError: Holdfast does not call the class as Spark would.
    """
    if plan.java.hasInitialState():
        raise untranslatable(_CLAUSE, "it has an initial state")
    count = int(plan.java.groupingAttributesLen())
    child = plan.children[0]
    ids = child.output_ids
    named = {each: str(child.java.output().apply(at).name()) for at, each in enumerate(ids)}
    columns = [each for each in ids[:count] if each not in ids[count:]] + ids[count:]
    if len({named[each].lower() for each in columns}) < len(columns):
        raise untranslatable(_CLAUSE, "two columns of its rows have the same name")
    stream: Stream = below.stream.select(
        *(f"{quoted(_column(below, each))} AS {quoted(named[each])}" for each in columns)
    )
    keys = [named[each] for each in ids[:count]]
    processor, rows = _object_of(plan)
    found = stream.key_by(*keys).process(
        processor,
        _schema_of(plan),
        time=time_of(plan),
        rows=rows,
        name=name,
    )
    return Native(found, dict(zip(plan.output_ids, found.schema.names, strict=True)), None)


def _column(below: Native, number: int) -> str:
    own = below.names[number]
    if isinstance(own, tuple):
        raise untranslatable(_CLAUSE, "a column of its rows is a window")
    return own


def _schema_of(plan: Plan) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(plan.java.schema().json()))


def _object_of(plan: Plan) -> tuple[Any, str]:
    """The class's object, and what it takes."""
    try:
        function, _ = unpickled(plan.java.functionExpr().func())
        util = function.__self__
        processor = util._stateful_processor
    except Exception as error:  # Whatever the object's own code raises.
        raise untranslatable(_CLAUSE, f"its object cannot be had from Spark: {error}") from None
    word = str(plan.java.userFacingDataType())
    kind = next((rows for part, rows in _ROWS.items() if part in word.lower()), None)
    if kind is None:
        raise untranslatable(_CLAUSE, f"it is of {word}, neither of rows nor of pandas")
    return processor, kind
