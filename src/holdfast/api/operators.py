"""Makes the operators that the steps of a dataflow stand for, on the node that runs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.windows import CountWindow, Window
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.bsort import BSort
from holdfast.core.operators.filter import Filter
from holdfast.core.operators.footprinted_windows import FootprintedWindows
from holdfast.core.operators.incremental_join import IncrementalJoin
from holdfast.core.operators.join import JoinLayout
from holdfast.core.operators.keyed_windows import KeyedWindows, KeyedWindowsWithTimeout
from holdfast.core.operators.map import Map
from holdfast.core.operators.partial_aggregate import PartialAggregate
from holdfast.core.operators.processing_time import ProcessingTimeAggregate
from holdfast.core.operators.resample import Resample
from holdfast.core.operators.running_join import RunningJoin
from holdfast.core.operators.sampler import Sampler
from holdfast.core.operators.stream_windows import StreamWindowAggregate
from holdfast.core.operators.union import Union
from holdfast.core.operators.window_kinds import CountWindows, TimeWindows, WindowKind
from holdfast.core.operators.windowed_join import WindowedJoin
from holdfast.core.state.page_manager import PageManager

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from holdfast.core.operators.base import Operator

JOINS: Final = ("join", "window_join", "running_join")
MERGING: Final = ("union", "join", "running_join")
"""Where the order of rows on one port among those of another matters."""
PASSING: Final = ("filter", "select")
"""Kinds of steps that leave rows where they are, or out."""
STATEFUL: Final = ("aggregate", *JOINS, "sort", "resample")
"""Kinds of steps whose operators keep state."""
HOLDING: Final = ("sort", "resample")
"""Kinds of steps whose operators put rows out later than the boundary alone would."""


def is_arbitrary(kind: str, settings: dict[str, Any]) -> bool:
    """Whether the operator of a step depends on more than its input. [HA §3.2]

    Args:
        kind: As in `Step.kind`.
        settings: As in `Step.settings`.
    """
    if kind == "union":
        return settings.get("order") == "arrival"
    if kind != "aggregate":
        return kind == "sample"
    windows: Window | CountWindow = settings["windows"]
    by_clock = isinstance(windows, Window) and windows.time == "processing"
    return by_clock or windows.timeout_us is not None


def columns_read(
    kind: str, position: int, schema: pa.Schema, settings: dict[str, Any]
) -> Iterable[str]:
    """The columns of an input, by name, that the operator of a step reads; maybe some twice.

    Args:
        kind: As in `Step.kind`.
        position: Of the input.
        schema: Of the input, without the time column.
        settings: As in `Step.settings`.
    """
    if kind == "aggregate":
        read = [a.expression.columns for a in settings["aggregates"] if a.expression is not None]
        return chain(settings["keys"], *read)
    if kind in JOINS:
        side = ("left", "right")[position]
        joined = [column for where, column, _ in settings["fields"] if where == side]
        return chain(settings[f"{side}_keys"], joined)
    names: list[str] = schema.names
    return names


def settings_over(inputs: tuple[pa.Schema, ...], settings: dict[str, Any]) -> dict[str, Any]:
    """A step's settings for inputs that have been cut down to what it reads."""
    if "aggregates" not in settings:
        return settings
    aggregates = [
        a if a.expression is None else replace(a, expression=a.expression.over(inputs[0]))
        for a in settings["aggregates"]
    ]
    return settings | {"aggregates": aggregates}


def build_operator(
    kind: str,
    name: str,
    inputs: tuple[pa.Schema, ...],
    settings: dict[str, Any],
    manager: PageManager | None = None,
) -> Operator:
    """The operator of a step, with the state that the page manager holds.

    Args:
        kind: As in `Step.kind`.
        name: The step's name.
        inputs: Schemas of its inputs, without the time column.
        settings: As in `Step.settings`.
        manager: Where its state lives; an own one if None.
    """
    manager = manager if manager is not None else PageManager()
    match kind:
        case "filter":
            return Filter(name, inputs[0], settings["expression"])
        case "select":
            return Map(name, settings["expressions"])
        case "union":
            return Union(name, inputs[0], is_by_arrival=settings.get("order") == "arrival")
        case "sample":
            return Sampler(name, inputs[0], settings["fraction"])
        case "sort":
            by, slack = settings["by"], settings["slack"]
            return BSort(name, inputs[0], by=by, slack=slack, manager=manager)
        case "resample":
            return Resample(
                name,
                inputs,
                settings["match"],
                settings["resampled"],
                within_us=settings["within_us"],
                every_us=settings["every_us"],
                manager=manager,
            )
        case "aggregate":
            return _aggregate(name, inputs[0], settings, manager)
        case "part":
            aggregates = _aggregates(settings)
            pane_us = settings["pane_us"]
            return PartialAggregate(name, inputs[0], settings["keys"], aggregates, pane_us=pane_us)
        case "window_join":
            layout, size_us = _layout(name, inputs, settings), settings["windows"].size_us
            return WindowedJoin(layout, size_us=size_us, how=settings["how"], manager=manager)
        case "running_join":
            layout, size_us = _layout(name, inputs, settings), settings["windows"].size_us
            return RunningJoin(layout, size_us=size_us, manager=manager)
        case "join":
            return IncrementalJoin(_layout(name, inputs, settings), manager=manager)
        case _:
            raise AssertionError(f"no operator for a step of kind {kind!r}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """An operator of a plan: `build_operator` with what it is given, page manager left out."""

    kind: str
    name: str
    inputs: tuple[pa.Schema, ...]
    settings: dict[str, Any]

    def __call__(self, manager: PageManager) -> Operator:
        """Make the operator, with the state that the page manager holds."""
        return build_operator(self.kind, self.name, self.inputs, self.settings, manager)


def _layout(name: str, inputs: tuple[pa.Schema, ...], settings: dict[str, Any]) -> JoinLayout:
    """What all joins are made from."""
    left, right = inputs
    keys = settings["left_keys"], settings["right_keys"]
    return JoinLayout(name, (left, right), keys, settings["fields"])


def _aggregates(settings: dict[str, Any]) -> list[tuple[Any, Any, str]]:
    return [(a.function, a.expression, a.name) for a in settings["aggregates"]]


def _aggregate(
    name: str, schema: pa.Schema, settings: dict[str, Any], manager: PageManager
) -> Operator:
    windows: Window | CountWindow = settings["windows"]
    keys = settings["keys"]
    aggregates = _aggregates(settings)
    if settings.get("footprints"):
        kind = _kind_of(windows)
        return FootprintedWindows(name, schema, keys, aggregates, windows=kind, manager=manager)
    if isinstance(windows, CountWindow) and windows.alignment == "stream":
        return StreamWindowAggregate(
            name,
            schema,
            keys,
            aggregates,
            size=windows.size,
            advance=windows.advance,
            manager=manager,
        )
    if isinstance(windows, CountWindow):
        return _keyed(name, schema, keys, aggregates, windows, manager)
    if windows.time == "processing":
        return ProcessingTimeAggregate(
            name,
            schema,
            keys,
            aggregates,
            size_us=windows.size_us,
            slide_us=windows.slide_us,
            manager=manager,
        )
    if windows.alignment == "epoch" and windows.timeout_us is None:
        return WindowAggregate(
            name,
            schema,
            keys,
            aggregates,
            size_us=windows.size_us,
            slide_us=windows.slide_us,
            emit=settings["emit"],
            manager=manager,
        )
    return _keyed(name, schema, keys, aggregates, windows, manager)


def _kind_of(windows: Window | CountWindow) -> WindowKind:
    if isinstance(windows, CountWindow):
        return CountWindows(windows.size, windows.advance)
    is_epoch = windows.alignment == "epoch"
    return TimeWindows(windows.size_us, windows.slide_us, is_epoch=is_epoch)


def _keyed(
    name: str,
    schema: pa.Schema,
    keys: tuple[str, ...],
    aggregates: Any,
    windows: Window | CountWindow,
    manager: PageManager,
) -> Operator:
    kind = _kind_of(windows)
    if windows.timeout_us is None:
        return KeyedWindows(name, schema, keys, aggregates, windows=kind, manager=manager)
    return KeyedWindowsWithTimeout(
        name,
        schema,
        keys,
        aggregates,
        windows=kind,
        timeout_us=windows.timeout_us,
        manager=manager,
    )
