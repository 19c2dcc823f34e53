"""What a query shows of itself to those who look: the command line, and the view in a browser.

The plan says what stays the same during a run, the report what changes. Both are plain values. The
newest of each lies at the checkpoint location, for those who look when the query has ended or died.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from holdfast.driver.description import step_text
from holdfast.driver.options import OPTIONS
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.shown_box import ShownBox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.api.graph import Graph
    from holdfast.driver.query import Query
    from holdfast.planning.plan import Plan

_LOG = logging.getLogger(__name__)


def report_of(query: Query) -> dict[str, Any]:
    """What changes while a query runs."""
    error = query.exception()
    return {
        "name": query.name,
        "id": query.id,
        "runId": query.runId,
        "madeUnixS": round(time.time(), 3),
        "isActive": query.isActive,
        "exception": None if error is None else str(error),
        "status": query.status,
        "progress": dict(query.lastProgress),
    }


def plan_of(flow: Graph, plan: Plan, values: Mapping[str, int]) -> dict[str, Any]:
    """What stays the same: steps, sinks, nodes and settings.

    Args:
        flow: As the user has written it.
        plan: How it is placed.
        values: The settings by name.
    """
    return {
        "name": flow.name,
        "startedUnixS": round(time.time(), 3),
        "steps": [
            {
                "name": step.name,
                "unit": step.unit,
                "word": step.operation.WORD,
                "inputs": [source.name for source in step.inputs],
                "text": step_text(step),
            }
            for step in plan.flow.steps
        ],
        "sinks": [
            {
                "name": name,
                "unit": step.unit,
                "step": step.name,
                "place": str(flow.outside_sinks.get(name, "")),
            }
            for name, step in flow.sinks.items()
        ],
        "sources": [
            {"name": name, "unit": unit}
            for name, unit in dict.fromkeys(
                (spec.stream.rpartition("[")[0], node.unit)
                for node in plan.nodes
                for spec in node.inputs
                if spec.producer is None
            )
        ],
        "nodes": [
            {
                "node": node.node,
                "unit": node.unit,
                "guarantee": node.guarantee.value if node.is_protected else "unprotected",
                "standby": node.standby.value,
            }
            for node in plan.nodes
        ],
        "settings": [
            {
                "name": option.name,
                "value": values[option.name],
                "default": option.default,
                "meaning": option.meaning,
            }
            for option in OPTIONS
        ],
        "notes": list(plan.notes),
    }


class Keeper:
    """Keeps plan and reports of one run at its location. Nobody's results depend on it."""

    def __init__(self, query: Query, location: str, epoch: int, interval_s: float) -> None:
        """Keep a report every `interval_s`, and one after each failure and recovery; 0: none."""
        self._query = query
        self._location = location
        self._epoch = epoch
        self._interval_s = interval_s
        self._box: ShownBox | None = None
        self._due_s = 0.0
        self._events = (0, 0)

    def begin(self, plan: Mapping[str, Any]) -> None:
        """The query runs."""
        if not self._interval_s:
            return
        try:
            self._box = ShownBox(self._location, self._epoch, plan)
        except StorageError as error:
            _LOG.warning("a view of %s can be had only while it runs: %s", self._query.name, error)

    def keep(self, *, is_last: bool) -> None:
        """Keep a report if it is time, or something has happened."""
        if self._box is None:
            return
        events = len(self._query.failures), len(self._query.recoveries)
        now_s = time.monotonic()
        if now_s < self._due_s and events == self._events and not is_last:
            return
        self._due_s, self._events = now_s + self._interval_s, events
        try:
            self._box.report({**report_of(self._query), "isLast": is_last})
        except Exception as error:  # The query goes on.
            _LOG.warning("no more reports of %s are kept: %s", self._query.name, error)
            self._box = None
