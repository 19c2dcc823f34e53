"""Tables of the page: replicas, units, state, and what each protection has of its own. Pure.

A table has `columns`, and `rows` by a key that stays the same from page to page. Cells are text.
Those of one protection have rows of its units alone; the page leaves out a table without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.view.words import NOTHING, duration, figure, milliseconds, rate, size

Table = dict[str, Any]


def of(
    plan: Mapping[str, Any], progress: Mapping[str, Any], status: Mapping[str, Any]
) -> dict[str, Table]:
    """All tables, by name."""
    return {
        "replicas": _replicas(status),
        "units": _units(plan, progress),
        "missing": _of_some(progress, "consistency", _MISSING, _has_missing),
        "checkpoints": _checkpoints(progress),
        "lines": _of_some(progress, "line", _LINE),
        "rounds": _of_some(progress, "round", _ROUND),
        "extents": _of_some(progress, "extent", _EXTENT),
        "settings": _settings(plan),
    }


Cells = Mapping[str, Callable[[Any], str]]
"""By column, what a unit's block says there."""


def _of_some(
    progress: Mapping[str, Any],
    name: str,
    cells: Cells,
    is_shown: Callable[[Any], bool] = lambda block: block is not None,
) -> Table:
    """A row for each unit of which the progress has a block of this name."""
    rows = {
        unit: [unit, *(said(block[name]) for said in cells.values())]
        for unit, block in progress.get("units", {}).items()
        if is_shown(block.get(name))
    }
    return _table(["Unit", *cells], rows)


def _has_missing(block: Any) -> bool:
    """Whether the unit can go on without some of its input at all."""
    return block is not None and block["tentativeRows"] is not None


_MISSING: Final[Cells] = {
    "Results": lambda b: b["state"].replace("_", " "),
    "For": lambda b: milliseconds(b["sinceMs"]),
    "Missing input": lambda b: ", ".join(b["missing"]) or NOTHING,
    "Tentative rows": lambda b: figure(b["tentativeRows"]),
    "Undone rows": lambda b: figure(b["undoneRows"]),
    "Dropped rows": lambda b: figure(b.get("droppedRows")),
    "Longest wait for input": lambda b: milliseconds(b["delayMaxMs"]),
    "Longest wait for a correction": lambda b: milliseconds(b.get("correctionDelayMaxMs") or None),
    "Last correction took": lambda b: milliseconds(b["stabilizationMs"] or None),
}
_LINE: Final[Cells] = {
    "Line is old": lambda b: milliseconds(b["ageMs"]),
    "Waited for others": lambda b: milliseconds(b["waitedMs"]),
    "Checkpoints": lambda b: figure(b["checkpoints"]),
    "Forced": lambda b: figure(b["forced"]),
    "Useless": lambda b: figure(b["useless"]),
    "Rolled past": lambda b: figure(b["rolledPast"]),
    "Bytes of messages": lambda b: (
        NOTHING if b["messageOverhead"] is None else f"{b['messageOverhead']:.3f} times"
    ),
}
_ROUND: Final[Cells] = {
    "Until all could cut": lambda b: milliseconds(b["alignmentMs"]),
    "Stood still": lambda b: milliseconds(b["standstillMs"]),
    "Until durable": lambda b: milliseconds(b["durableMs"]),
    "Until all were": lambda b: milliseconds(b["roundMs"]),
}
_EXTENT: Final[Cells] = {
    "Open windows": lambda b: figure(b["footprints"]),
    "Logs to read": lambda b: size(b["bytes"]),
    "Rows to replay": lambda b: figure(b["tuples"]),
    "Predicted recovery": lambda b: milliseconds(b["predictedRecoveryMs"]),
    "Too long because": lambda b: b["shortfall"] or NOTHING,
}


def _table(columns: list[str], rows: Mapping[str, list[str]]) -> Table:
    return {"columns": columns, "rows": dict(rows)}


def _replicas(status: Mapping[str, Any]) -> Table:
    rows: dict[str, list[str]] = {}
    for node, block in status.get("nodes", {}).items():
        for n, replica in enumerate(block["replicas"]):
            is_primary = n == 0
            lag = replica["lag_ms"]
            rows[f"{node} {n}"] = [
                node,
                replica["role"],
                replica["state"],
                replica["host"] or NOTHING,
                str(replica["pid"] or NOTHING),
                str(replica.get("incarnation") or NOTHING),
                figure(block.get("input_tuples")) if is_primary else NOTHING,
                figure(block.get("output_tuples")) if is_primary else NOTHING,
                NOTHING if is_primary else milliseconds(lag),
            ]
    columns = ["Node", "Role", "State", "Machine", "Process", "Incarnation", "In", "Out", "Lag"]
    return _table(columns, rows)


def _units(plan: Mapping[str, Any], progress: Mapping[str, Any]) -> Table:
    placed = {node["unit"]: node for node in plan.get("nodes", ())}
    rows = {
        unit: [
            unit,
            str(block["instances"]),
            placed[unit]["guarantee"] if unit in placed else NOTHING,
            placed[unit]["standby"] if unit in placed else NOTHING,
            block["consistency"]["state"].replace("_", " "),
            figure(block["consistency"]["tentativeRows"]),
            figure(block["consistency"]["undoneRows"]),
            rate(block["inputRowsPerSecond"]),
            rate(block["outputRowsPerSecond"]),
            figure(sum(rows or 0 for rows in block["backlog"].values())),
            figure(block["keptRows"]),
            f"{block['tupleCostUs']:.2f} µs",
        ]
        for unit, block in progress.get("units", {}).items()
    }
    columns = ["Unit", "Instances", "Guarantee", "Standby", "Results", "Tentative", "Undone"]
    return _table([*columns, "In", "Out", "Waiting", "Kept for replay", "Cost of a row"], rows)


def _checkpoints(progress: Mapping[str, Any]) -> Table:
    rows: dict[str, list[str]] = {}
    for unit, block in progress.get("units", {}).items():
        checkpoint = block["checkpoint"]
        rows[unit] = [
            unit,
            size(block["stateBytes"]),
            figure(checkpoint["count"]),
            figure(checkpoint["failed"]),
            NOTHING if checkpoint["ageMs"] is None else duration(checkpoint["ageMs"] // 1000),
            milliseconds(checkpoint["standstillMs"]),
            milliseconds(checkpoint["durationMs"]),
            size(checkpoint["writtenBytes"]),
        ]
    columns = ["Unit", "State", "Checkpoints", "Failed", "Age", "Standstill", "Duration"]
    return _table([*columns, "Written"], rows)


def _settings(plan: Mapping[str, Any]) -> Table:
    rows = {
        option["name"]: [
            f"spark.holdfast.{option['name']}",
            str(option["value"]),
            str(option["default"]),
            option["meaning"],
        ]
        for option in sorted(
            plan.get("settings", ()), key=lambda o: (o["value"] == o["default"], o["name"])
        )
    }
    return _table(["Setting", "Value", "Default", "Meaning"], rows)
