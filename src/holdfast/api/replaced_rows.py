"""By which columns the rows of a sink replace each other: running results are a table by their key.

A sink of `emit="changes"` has after each tuple the new result of its key. Whoever has nothing but
the rows cannot tell the key from the results, so that a query says it of each sink.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.steps import RunningAggregate, Select, WindowAggregate
from holdfast.core.model.column_names import quoted

if TYPE_CHECKING:
    from holdfast.api.steps import Step

_WINDOW = ("window_start", "window_end")


def replaced_by(step: Step) -> tuple[str, ...] | None:
    """The columns in which rows that replace each other are equal; none: each replaces all before.

    Returns:
        None if rows do not replace each other, or a step behind the aggregate makes it unknown: it
        takes a column of the key away, leaves out rows, or merges streams.
    """
    match step.operation:
        case RunningAggregate(keys, presence=None):
            return keys
        case WindowAggregate(keys, emit="changes"):
            return (*_WINDOW, *keys)
        case Select(expressions):
            before = replaced_by(step.inputs[0])
            name_of = {expression.sql: expression.name for expression in expressions}
            found = [name_of.get(key, name_of.get(quoted(key))) for key in before or ()]
            kept = tuple(name for name in found if name is not None)
            return None if before is None or len(kept) < len(before) else kept
        case _:
            return None
