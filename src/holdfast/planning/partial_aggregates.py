"""Aggregates computed in part where the rows come from: fewer tuples travel, and are looked up.

A window aggregate that reads a recorded source in another unit is given what
`PartialAggregate` makes of every batch there, and adds that up. It does so if nothing but the
time that it takes changes: windows of event time aligned to the epoch, results when they close,
and functions whose parts can be added up exactly (`PARTS`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.api.expressions import compile_expression
from holdfast.api.graph import Graph
from holdfast.api.operators import build_operator
from holdfast.api.steps import (
    Aggregate,
    PartialAggregate,
    Passing,
    Source,
    Step,
    WindowAggregate,
)
from holdfast.api.windows import Window
from holdfast.core.model.stable_hash import is_text

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS: Final = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""Functions whose parts can be added up, and by which function."""


def with_partial_aggregates(flow: Graph, is_recorded: Callable[[Step], bool]) -> Graph:
    """The dataflow as it is run; its steps, sinks and units keep their names.

    Args:
        flow: As it was written.
        is_recorded: Whether the tuples of a source always come in the same batches.
    """
    made = Graph(flow.name)
    made.outside_sinks = flow.outside_sinks
    placed: dict[Step, Step] = {}
    for step in flow.steps:
        inputs = tuple(placed[source] for source in step.inputs)
        placed[step] = replace(step, inputs=inputs)
        if _is_divisible(flow, step, is_recorded):
            part, placed[step] = _divided(placed[step])
            made.steps.append(part)
        made.steps.append(placed[step])
    made.sinks = {sink: placed[step] for sink, step in flow.sinks.items()}
    return made


def _is_divisible(flow: Graph, step: Step, is_recorded: Callable[[Step], bool]) -> bool:
    whole = step.operation
    if not isinstance(whole, WindowAggregate) or whole.emit != "final":
        return False
    (producer,) = step.inputs
    if not (isinstance(whole.windows, Window) and whole.windows.is_plain):
        return False
    if producer.unit == step.unit or not all(map(_has_parts, whole.aggregates)):
        return False
    # Closed windows must not meet other rows in the unit: see core/operators/base.py.
    if any(len(other.inputs) > 1 for other in flow.steps if other.unit == step.unit):
        return False
    beside = [other for other in flow.steps if other.unit == producer.unit]
    sources = [other for other in beside if isinstance(other.operation, Source)]
    if len(sources) != 1 or not is_recorded(sources[0]):
        return False
    return all(isinstance(other.operation, Source | Passing) for other in beside)


def _has_parts(aggregate: Aggregate) -> bool:
    """Whether it can be put together from parts, exactly and in any order."""
    if aggregate.function not in PARTS:
        return False
    if aggregate.expression is None or aggregate.function == "count":
        return True
    kind = aggregate.expression.type
    if aggregate.function == "sum":
        return bool(pa.types.is_integer(kind))
    return not is_text(kind) and not pa.types.is_decimal(kind)


def _divided(step: Step) -> tuple[Step, Step]:
    """What runs where the rows come from, and what adds up the parts."""
    whole, (producer,) = step.operation, step.inputs
    assert isinstance(whole, WindowAggregate)
    assert isinstance(whole.windows, Window)
    # Windows begin and end with panes of this length.
    pane_us = math.gcd(whole.windows.size_us, whole.windows.slide_us)
    operation = PartialAggregate(whole.keys, whole.aggregates, pane_us)
    name = f"{step.name}~part"
    schema = build_operator(operation, name, (producer.schema,)).output_schema
    part = Step(operation, name, producer.unit, schema, (producer,))
    adding = tuple(
        Aggregate(PARTS[a.function], compile_expression(f"`{a.name}`", schema), a.name, a.sql)
        for a in whole.aggregates
    )
    return part, replace(step, inputs=(part,), operation=replace(whole, aggregates=adding))
