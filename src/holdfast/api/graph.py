"""What a dataflow consists of: steps, and the sinks that some of them fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from holdfast.api.clauses import require_name
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from holdfast.api.expressions.user_functions import UserFunction
    from holdfast.api.steps import Step
    from holdfast.shell.sinks.base import OutsideSpec


class OutsideSink(Protocol):
    """A sink that is no log of ours; its text is part of what a location was made by.

    Attributes:
        unsynced_max: See `OutputSpec`.
    """

    unsynced_max: ClassVar[int]

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        ...

    def spec(self, sink: str, instance: int, place: str) -> OutsideSpec:
        """What one instance writes; `place` is for what is to be remembered of it."""
        ...

    def feed_spec(self, sink: str, feed: str, instance: int, place: str) -> OutsideSpec | None:
        """The same of what is tentative; None: it has no place for that.

        Args:
            sink: The sink's name.
            feed: The name of its feed.
            instance: Of the unit.
            place: As of `spec`.
        """
        ...


class Graph:
    """A directed graph of steps; planning makes nodes of it, the batch twin a query.

    Attributes:
        name: It appears in Spark's UI and in messages.
        steps: All steps, inputs first.
        sinks: Per sink the step whose tuples it gets.
        outside_sinks: Those of them that are no logs of ours.
        functions: The user's functions that expressions may call, by their names.
    """

    def __init__(self, name: str) -> None:
        """Begin an empty dataflow. Raises `DataflowError` if files cannot have the name."""
        self.name = require_name(name)
        self.steps: list[Step] = []
        self.sinks: dict[str, Step] = {}
        self.outside_sinks: dict[str, OutsideSink] = {}
        self.functions: dict[str, UserFunction] = {}

    def unique_name(self, name: str) -> str:
        """The name, with a number behind it if a step has it already."""
        taken = {step.name for step in self.steps}
        if name not in taken:
            return name
        return next(n for i in range(2, len(taken) + 3) if (n := f"{name}{i}") not in taken)

    def add_sink(self, name: str, step: Step) -> None:
        """Have a sink get what a step puts out. Raises `DataflowError` if there is one so named."""
        if name in self.sinks:
            raise DataflowError(f"there is already a sink named {name!r}")
        self.sinks[name] = step

    def sink_name(self, sink: str | None) -> str:
        """The sink of this name, or the only one."""
        if sink is None and len(self.sinks) == 1:
            return next(iter(self.sinks))
        if sink is None or sink not in self.sinks:
            raise DataflowError(f"no sink {sink!r}; there are {', '.join(self.sinks) or 'none'}")
        return sink
