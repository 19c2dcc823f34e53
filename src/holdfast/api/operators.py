"""Makes the operators that the steps of a dataflow stand for, on the node that runs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from holdfast.api import steps
from holdfast.api.expressions import CompiledExpression, compile_expression
from holdfast.api.windows import CountWindow, SessionWindow, Window
from holdfast.core.errors import LocalProtocolError
from holdfast.core.operators.accumulators import Aggregate
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.apply import Apply, ApplyArbitrarily
from holdfast.core.operators.bsort import BSort
from holdfast.core.operators.changing_aggregate import ChangingAggregate
from holdfast.core.operators.distinct import Distinct
from holdfast.core.operators.filter import Filter
from holdfast.core.operators.footprinted_aggregate import FootprintedAggregate
from holdfast.core.operators.footprinted_join import FootprintedJoin
from holdfast.core.operators.footprinted_sessions import FootprintedSessions
from holdfast.core.operators.footprinted_windows import FootprintedWindows
from holdfast.core.operators.incremental_join import IncrementalJoin
from holdfast.core.operators.interval_join import IntervalJoin
from holdfast.core.operators.join import JoinLayout
from holdfast.core.operators.keyed_windows import KeyedWindows, KeyedWindowsWithTimeout
from holdfast.core.operators.map import Map
from holdfast.core.operators.partial_aggregate import PartialAggregate
from holdfast.core.operators.process import Process, ProcessByClock
from holdfast.core.operators.processing_time import ProcessingTimeAggregate
from holdfast.core.operators.resample import Resample
from holdfast.core.operators.running_aggregate import RunningAggregate
from holdfast.core.operators.running_join import RunningJoin
from holdfast.core.operators.sampler import Sampler
from holdfast.core.operators.sessions import SessionWindows
from holdfast.core.operators.stream_windows import StreamWindowAggregate
from holdfast.core.operators.union import Union
from holdfast.core.operators.window_kinds import CountWindows, TimeWindows, WindowKind
from holdfast.core.operators.windowed_join import WindowedJoin
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.api.steps import Operation
    from holdfast.core.operators.base import Operator


def is_arbitrary(operation: Operation) -> bool:
    """Whether the operator of a step depends on more than its input. [HA §3.2]"""
    match operation:
        case steps.Union():
            return operation.is_by_arrival
        case steps.WindowAggregate():
            windows = operation.windows
            by_clock = isinstance(windows, Window) and windows.time == "processing"
            return by_clock or windows.timeout_us is not None
        case steps.Apply(function):
            return not function.is_deterministic
        case steps.Process(time=time):
            return time == "processing"
        case _:
            return isinstance(operation, steps.Sample)


def columns_read(operation: Operation, position: int, schema: pa.Schema) -> Iterable[str]:
    """The columns of an input, by name, that the operator of a step reads; maybe some twice.

    Args:
        operation: Of the step.
        position: Of the input.
        schema: Of the input, without the time column.
    """
    match operation:
        case (
            steps.WindowAggregate(keys=keys, aggregates=aggregates)
            | steps.RunningAggregate(keys=keys, aggregates=aggregates)
        ):
            every = (*aggregates, *_presence(operation))
            read = [a.expression.columns for a in every if a.expression is not None]
            return chain(keys, *read)
        case _ if isinstance(operation, steps.Join):
            side = ("left", "right")[position]
            keys = (operation.left_keys, operation.right_keys)[position]
            joined = [column for where, column, _ in operation.fields if where == side]
            return chain(keys, joined)
        case _:
            names: list[str] = schema.names
            return names


def cut_down(operation: Operation, inputs: tuple[pa.Schema, ...]) -> Operation:
    """The operation over inputs that have been cut down to the columns it reads."""
    if not isinstance(
        operation, steps.WindowAggregate | steps.RunningAggregate | steps.PartialAggregate
    ):
        return operation
    aggregates = tuple(_over(each, inputs[0]) for each in operation.aggregates)
    if isinstance(operation, steps.RunningAggregate) and operation.presence is not None:
        presence = _over(operation.presence, inputs[0])
        return replace(operation, aggregates=aggregates, presence=presence)
    return replace(operation, aggregates=aggregates)


def _over(of: steps.Aggregate, schema: pa.Schema) -> steps.Aggregate:
    return of if of.expression is None else replace(of, expression=of.expression.over(schema))


def _presence(operation: Operation) -> tuple[steps.Aggregate, ...]:
    """Of an aggregate that puts out a changelog what tells which keys have a result."""
    if isinstance(operation, steps.RunningAggregate) and operation.presence is not None:
        return (operation.presence,)
    return ()


def build_operator(
    operation: Operation,
    name: str,
    inputs: tuple[pa.Schema, ...],
    manager: PageManager | None = None,
) -> Operator:
    """The operator of a step, with the state that the page manager holds.

    Args:
        operation: What it does; that of a source has no operator.
        name: The step's name.
        inputs: Schemas of its inputs, without the time column.
        manager: Where its state lives; an own one if None.

    Raises:
        LocalProtocolError: Its columns or numbers make no sense.
    """
    manager = manager if manager is not None else PageManager()
    match operation:
        case steps.Filter(expression):
            return Filter(name, inputs[0], expression)
        case steps.Select(expressions):
            return Map(name, expressions)
        case steps.Apply(function):
            make = Apply if function.is_deterministic else ApplyArbitrarily
            return make(name, function)
        case steps.Union():
            return Union(name, inputs[0], is_by_arrival=operation.is_by_arrival)
        case steps.Sample(fraction):
            return Sampler(name, inputs[0], fraction)
        case steps.Distinct(keys, within_us):
            return Distinct(name, inputs[0], keys, within_us=within_us, manager=manager)
        case steps.Process(keys, time, processor):
            kind = ProcessByClock if time == "processing" else Process
            return kind(name, inputs[0], keys, processor.opened(), manager=manager)
        case steps.Sort(by, slack):
            return BSort(name, inputs[0], by=by, slack=slack, manager=manager)
        case steps.Resample(resampled, match, within_us, every_us):
            return Resample(
                name,
                inputs,
                match,
                resampled,
                within_us=within_us,
                every_us=every_us,
                manager=manager,
            )
        case steps.PartialAggregate(keys, aggregates, pane_us):
            functions = _functions(aggregates)
            return PartialAggregate(name, inputs[0], keys, functions, pane_us=pane_us)
        case steps.RunningAggregate():
            return _running(operation, name, inputs[0], manager)
        case steps.WindowAggregate():
            return _aggregate(operation, name, inputs[0], manager)
        case _ if isinstance(operation, steps.Join):
            return _join(operation, name, inputs, manager)
        case _:
            raise AssertionError(f"no operator for {operation}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """An operator of a plan: `build_operator` with what it is given, page manager left out."""

    operation: Operation
    name: str
    inputs: tuple[pa.Schema, ...]

    def __call__(self, manager: PageManager) -> Operator:
        """Make the operator, with the state that the page manager holds."""
        return build_operator(self.operation, self.name, self.inputs, manager)


def _join(
    operation: steps.Join, name: str, inputs: tuple[pa.Schema, ...], manager: PageManager
) -> Operator:
    left, right = inputs
    keys = operation.left_keys, operation.right_keys
    layout = JoinLayout(name, (left, right), keys, operation.fields)
    match operation:
        case steps.WindowJoin(windows=windows, how=how, has_footprints=has_footprints):
            kind = FootprintedJoin if has_footprints else WindowedJoin
            return kind(layout, size_us=windows.size_us, how=how, manager=manager)
        case steps.RunningJoin(windows=windows):
            return RunningJoin(layout, size_us=windows.size_us, manager=manager)
        case steps.IntervalJoin(where=where):
            columns = pa.schema(layout.output_fields)
            return IntervalJoin(
                layout,
                lower_us=operation.lower_us,
                upper_us=operation.upper_us,
                how=operation.how,
                condition=None if where is None else _condition(where, columns),
                manager=manager,
            )
        case steps.IncrementalJoin():
            return IncrementalJoin(layout, manager=manager)


def _condition(sql: str, columns: pa.Schema) -> CompiledExpression:
    compiled = compile_expression(sql, columns)
    if not pa.types.is_boolean(compiled.type):
        raise LocalProtocolError(f"where={sql!r} is {compiled.type}, not boolean")
    return compiled


def _functions(aggregates: tuple[steps.Aggregate, ...]) -> list[Aggregate]:
    return [
        Aggregate(cast("Any", a.function), a.expression, a.name, a.percentages) for a in aggregates
    ]


def _running(
    operation: steps.RunningAggregate, name: str, schema: pa.Schema, manager: PageManager
) -> Operator:
    of = (name, schema, operation.keys, _functions(operation.aggregates))
    if operation.presence is None:
        return RunningAggregate(*of, manager=manager)
    [presence] = _functions((operation.presence,))
    return ChangingAggregate(*of, presence, manager=manager)


def _aggregate(
    operation: steps.WindowAggregate, name: str, schema: pa.Schema, manager: PageManager
) -> Operator:
    windows, keys = operation.windows, operation.keys
    of = (name, schema, keys, _functions(operation.aggregates))
    if isinstance(windows, SessionWindow):
        made = FootprintedSessions if operation.has_footprints else SessionWindows
        return made(*of, gap_us=windows.gap_us, manager=manager)
    if operation.has_footprints and isinstance(windows, Window) and windows.alignment == "epoch":
        size_us, slide_us = windows.size_us, windows.slide_us
        return FootprintedAggregate(*of, size_us=size_us, slide_us=slide_us, manager=manager)
    if operation.has_footprints:
        return FootprintedWindows(*of, windows=_kind(windows), manager=manager)
    if isinstance(windows, CountWindow) and windows.alignment == "stream":
        size, advance = windows.size, windows.advance
        return StreamWindowAggregate(*of, size=size, advance=advance, manager=manager)
    if isinstance(windows, Window) and windows.time == "processing":
        size_us, slide_us = windows.size_us, windows.slide_us
        return ProcessingTimeAggregate(*of, size_us=size_us, slide_us=slide_us, manager=manager)
    if isinstance(windows, Window) and windows.alignment == "epoch" and windows.timeout_us is None:
        return WindowAggregate(
            *of,
            size_us=windows.size_us,
            slide_us=windows.slide_us,
            emit=operation.emit,
            manager=manager,
        )
    kind = _kind(windows)
    if windows.timeout_us is None:
        return KeyedWindows(*of, windows=kind, manager=manager)
    timeout_us = windows.timeout_us
    return KeyedWindowsWithTimeout(*of, windows=kind, timeout_us=timeout_us, manager=manager)


def _kind(windows: Window | CountWindow) -> WindowKind:
    if isinstance(windows, CountWindow):
        return CountWindows(windows.size, windows.advance)
    is_epoch = windows.alignment == "epoch"
    return TimeWindows(windows.size_us, windows.slide_us, is_epoch=is_epoch)
