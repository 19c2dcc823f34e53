"""Makes the operators that the steps of a dataflow stand for, on the node that runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.filter import Filter
from holdfast.core.operators.incremental_join import IncrementalJoin
from holdfast.core.operators.map import Map
from holdfast.core.operators.union import Union
from holdfast.core.operators.windowed_join import WindowedJoin

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.core.operators.base import Operator
    from holdfast.core.state.page_manager import PageManager


def build_operator(
    kind: str,
    name: str,
    inputs: tuple[pa.Schema, ...],
    settings: dict[str, Any],
    manager: PageManager,
) -> Operator:
    """The operator of a step, with the state that the page manager holds.

    Args:
        kind: As in `Step.kind`.
        name: The step's name.
        inputs: Schemas of its inputs, without the time column.
        settings: As in `Step.settings`.
        manager: Where its state lives.
    """
    match kind:
        case "filter":
            return Filter(name, inputs[0], settings["expression"])
        case "select":
            return Map(name, settings["expressions"])
        case "union":
            return Union(name, inputs[0])
        case "aggregate":
            windows = settings["windows"]
            return WindowAggregate(
                name,
                inputs[0],
                settings["keys"],
                [(a.function, a.expression, a.name) for a in settings["aggregates"]],
                size_us=windows.size_us,
                slide_us=windows.slide_us,
                emit=settings["emit"],
                manager=manager,
            )
        case "window_join":
            return WindowedJoin(
                name,
                inputs[0],
                inputs[1],
                settings["left_keys"],
                settings["right_keys"],
                settings["fields"],
                size_us=settings["windows"].size_us,
                how=settings["how"],
                manager=manager,
            )
        case "join":
            return IncrementalJoin(
                name,
                inputs[0],
                inputs[1],
                settings["left_keys"],
                settings["right_keys"],
                settings["fields"],
                manager=manager,
            )
        case _:
            raise AssertionError(f"no operator for a step of kind {kind!r}")
