"""From what a query shows to what its page says. Pure.

The page is plain values for `assets/view.js`, which draws and decides nothing: words, figures with
their units, and places of boxes. No value is None, so that changes can travel as a merge patch
(changes.py). Keys of rows and boxes stay the same from page to page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.view import tables, timeline
from holdfast.view.layout import places
from holdfast.view.rows import unit_key
from holdfast.view.words import (
    NOTHING,
    clock,
    duration,
    figure,
    milliseconds,
    rate,
)

_STANDSTILL_S: Final = 10.0
"""Durable progress that stands still for so long, although rows wait, is worth a warning."""
_SILENT_S: Final = 30.0
_STEPS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a query at one moment.

    Attributes:
        location: Its checkpoint location.
        plan: How it is placed (`driver/showing.py`); None: it has left nothing.
        report: The last one heard of; None: there is none.
        now_s: Unix time.
        is_running: Whether it holds its location; None: nobody can tell.
        actions: Those that are allowed: `kill`, `promote`, `stop`.
        problem: Why nothing newer is known; empty: nothing is wrong.
    """

    location: str
    plan: Mapping[str, Any] | None
    report: Mapping[str, Any] | None
    now_s: float
    is_running: bool | None
    actions: tuple[str, ...] = ()
    problem: str = ""


def page_of(facts: Facts) -> dict[str, Any]:
    """All that the page says."""
    plan, report = facts.plan or {}, facts.report or {}
    progress, status = report.get("progress", {}), report.get("status", {})
    state = _state(facts)
    return {
        "title": plan.get("name", "no query yet"),
        "location": facts.location,
        "state": state,
        "madeUnixS": report.get("madeUnixS", 0),
        "warnings": list(_warnings(facts, state["word"])),
        "tiles": _tiles(plan, progress, facts),
        "graph": graph_of(plan),
        "live": {
            "boxes": dict(_boxes(plan, progress, status, is_live=state["word"] == "running")),
            "edges": dict(_edges(plan, progress)),
        },
        "tables": tables.of(plan, progress, status),
        "timeline": timeline.of(plan, progress),
        "streams": _streams(plan, is_live=state["word"] == "running"),
        "steps": [step["text"] for step in plan.get("steps", ())],
        "actions": _actions(facts, plan, is_live=state["word"] == "running"),
    }


# -- whether it runs, and whether it gets on --------------------------------------------------


def _state(facts: Facts) -> dict[str, str]:
    report = facts.report
    if report is None:
        said = (
            "Nothing is known of its progress yet."
            if facts.is_running
            else "No query has left a report here. Start one with this checkpointLocation."
        )
        return {"word": "unknown", "text": said}
    age_s = max(0.0, facts.now_s - report["madeUnixS"])
    error, is_over = report["exception"], report.get("isLast") or not report["isActive"]
    ago = f"{duration(round(age_s))} ago"
    if error is not None:
        return {"word": "failed", "text": f"It failed {ago}: {error}"}
    if is_over:
        return {"word": "ended", "text": f"It has ended, {ago}."}
    if facts.is_running is False:
        return {
            "word": "died",
            "text": f"Its driver died. This is how things stood {ago}. Start it again with the "
            "same checkpointLocation, and it goes on.",
        }
    if age_s > _SILENT_S:
        return {"word": "silent", "text": f"Its driver was last heard of {ago}. {facts.problem}"}
    return {"word": "running", "text": "It runs."}


def _warnings(facts: Facts, state: str) -> Iterable[dict[str, str]]:
    """The worst first."""
    report = facts.report or {}
    progress, status = report.get("progress", {}), report.get("status", {})
    if state in ("failed", "died", "silent"):
        yield {"level": "error", "text": _state(facts)["text"]}
    if facts.problem and state not in ("silent",):
        yield {"level": "warning", "text": facts.problem}
    still_s = progress.get("durable", {}).get("ageMs", 0) / 1e3
    waiting = _waiting_rows(progress)
    if state == "running" and still_s > _STANDSTILL_S and waiting:
        yield {
            "level": "error",
            "text": f"Nothing has become durable for {duration(round(still_s))}, although "
            f"{figure(waiting)} rows wait. Look at units that do not run, at the store, and at "
            "the disk.",
        }
    if state == "running":
        for node, block in status.get("nodes", {}).items():
            if block["state"] != "running":
                yield {"level": "warning", "text": f"{node} is {block['state']}."}
    for unit, block in progress.get("units", {}).items():
        missing = block["consistency"]["missing"]
        if block["consistency"]["state"] != "stable":
            of = f" without {', '.join(missing)}" if missing else ""
            yield {"level": "warning", "text": f"Results of {unit} are tentative{of}."}
        if block["extent"] and block["extent"]["shortfall"]:
            yield {"level": "warning", "text": f"{unit}: {block['extent']['shortfall']}"}
    for checkpoint in progress.get("checkpoints", ()):
        if checkpoint["failure"] is not None:
            said = f"A checkpoint of {checkpoint['node']} failed: {checkpoint['failure']}"
            yield {"level": "warning", "text": said}
    for damage in progress.get("damagedCheckpoints", ()):
        said = f"A checkpoint of {damage['node']} could not be read; an older one was taken."
        yield {"level": "warning", "text": said}
    for note in status.get("notes", ()):
        yield {"level": "note", "text": note}


def _waiting_rows(progress: Mapping[str, Any]) -> int:
    units = progress.get("units", {}).values()
    return sum(rows or 0 for unit in units for rows in unit["backlog"].values())


# -- figures of the whole query ---------------------------------------------------------------


def _tiles(
    plan: Mapping[str, Any], progress: Mapping[str, Any], facts: Facts
) -> list[dict[str, str]]:
    if not progress:
        return []
    latency, recovery = progress["latencyMs"], progress["recovery"]
    still_ms = progress.get("durable", {}).get("ageMs")
    watermark = progress["eventTime"].get("watermark")
    begun_s = plan.get("startedUnixS")
    made_s = facts.report["madeUnixS"] if facts.report else facts.now_s
    return [
        {
            "name": "Rows in",
            "value": rate(progress["inputRowsPerSecond"]),
            "note": f"{figure(progress['numInputRows'])} so far",
        },
        {
            "name": "Rows out",
            "value": rate(progress["outputRowsPerSecond"]),
            "note": f"{figure(progress['numOutputRows'])} so far",
        },
        {
            "name": "Latency",
            "value": milliseconds(latency["p50"]),
            "note": f"99 of 100 within {milliseconds(latency['p99'])}",
        },
        {
            "name": "Rows that wait",
            "value": figure(_waiting_rows(progress)),
            "note": "in logs, queues and windows",
        },
        {
            "name": "Last durable progress",
            "value": NOTHING if still_ms is None else f"{duration(still_ms // 1000)} ago",
            "note": "a restart point, or rows in a sink",
        },
        {
            "name": "Event time",
            "value": watermark[11:19] if watermark else NOTHING,
            "note": f"at the sinks, UTC, {watermark[:10]}" if watermark else "at the sinks",
        },
        {
            "name": "Failures",
            "value": figure(len(progress["failures"])),
            "note": f"recoveries and takeovers: {figure(recovery['count'])}",
        },
        {
            "name": "Runs for",
            "value": NOTHING if begun_s is None else duration(max(0, round(made_s - begun_s))),
            "note": "" if begun_s is None else f"since {clock(begun_s)} UTC",
        },
    ]


# -- the graph --------------------------------------------------------------------------------


def graph_of(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Boxes for sources, units and sinks, each with its place, and the edges between them."""
    unit_of = {step["name"]: step["unit"] for step in plan.get("steps", ())}
    boxes: dict[str, dict[str, Any]] = {}
    edges: dict[str, dict[str, str]] = {}

    def join(start: str, end: str) -> None:
        edges[edge_key(start, end)] = {"from": start, "to": end}

    for source in plan.get("sources", ()):
        boxes[f"source {source['name']}"] = {"kind": "source", "name": source["name"], "steps": []}
    for step in plan.get("steps", ()):
        key = f"unit {step['unit']}"
        box = boxes.setdefault(key, {"kind": "unit", "name": step["unit"], "steps": []})
        box["steps"].append(step["word"])
        for other in step["inputs"]:
            if unit_of[other] != step["unit"]:
                join(f"unit {unit_of[other]}", key)
    for source in plan.get("sources", ()):
        join(f"source {source['name']}", f"unit {source['unit']}")
    for sink in plan.get("sinks", ()):
        key = f"sink {sink['name']}"
        boxes[key] = {"kind": "sink", "name": sink["name"], "steps": []}
        join(f"unit {sink['unit']}", key)
    placed = places(list(boxes), [(edge["from"], edge["to"]) for edge in edges.values()])
    for key, box in boxes.items():
        words = list(dict.fromkeys(box["steps"]))
        more = len(words) - _STEPS_SHOWN
        box["steps"] = ", ".join(words[:_STEPS_SHOWN]) + (f" +{more}" if more > 0 else "")
        box["layer"], box["row"] = placed[key].layer, placed[key].row
    return {"boxes": boxes, "edges": edges}


def edge_key(start: str, end: str) -> str:
    """Of an edge between two boxes."""
    return f"{start} → {end}"


def _boxes(
    plan: Mapping[str, Any],
    progress: Mapping[str, Any],
    status: Mapping[str, Any],
    *,
    is_live: bool,
) -> Iterable[tuple[str, dict[str, str]]]:
    states: dict[str, list[str]] = {}
    for node, block in status.get("nodes", {}).items():
        states.setdefault(node.rpartition("[")[0], []).append(block["state"])
    for unit, block in progress.get("units", {}).items():
        is_up = [state == "running" for state in states.get(unit, ())]
        consistency = block["consistency"]["state"]
        if not is_live:
            level = "over"
        elif not all(is_up):
            level = "down"
        else:
            level = "up" if consistency == "stable" else "tentative"
        instances = f"{sum(is_up)} of {len(is_up)} run" if level == "down" else _count(len(is_up))
        waiting = sum(rows or 0 for rows in block["backlog"].values())
        yield (
            f"unit {unit}",
            {
                "level": level,
                "first": f"{rate(block['inputRowsPerSecond'])} · {instances}",
                "second": "results are tentative"
                if level == "tentative"
                else f"{milliseconds(block['latencyMs']['p99'])} p99"
                if block["latencyMs"]["p99"] is not None
                else f"{figure(waiting)} wait",
            },
        )
    for source in progress.get("sources", ()):
        yield (
            f"source {source['description']}",
            {
                "level": "up" if is_live else "over",
                "first": rate(source["inputRowsPerSecond"]),
                "second": "backlog unknown"
                if source["backlogRows"] is None
                else f"{figure(source['backlogRows'])} wait",
            },
        )
    rates = {edge["to"]: edge["rowsPerSecond"] for edge in progress.get("edges", ())}
    for sink in plan.get("sinks", ()):
        key = f"sink {sink['name']}"
        yield (
            key,
            {
                "level": "up" if is_live else "over",
                "first": rate(rates.get(key)),
                "second": sink["place"] or "a log",
            },
        )


def _count(instances: int) -> str:
    return "1 instance" if instances == 1 else f"{instances} instances"


def _edges(
    plan: Mapping[str, Any], progress: Mapping[str, Any]
) -> Iterable[tuple[str, dict[str, str]]]:
    of_sources = {source["description"]: source for source in progress.get("sources", ())}
    for placed in plan.get("sources", ()):
        if (source := of_sources.get(placed["name"])) is not None:
            yield (
                edge_key(f"source {placed['name']}", f"unit {placed['unit']}"),
                {
                    "label": rate(source["inputRowsPerSecond"]),
                    "wait": f"{figure(source['backlogRows'])} wait"
                    if source["backlogRows"]
                    else "",
                    "boundary": "",
                },
            )
    for edge in progress.get("edges", ()):
        end = edge["to"] if edge["to"].startswith("sink ") else f"unit {edge['to']}"
        watermark = edge["watermark"]
        yield (
            edge_key(f"unit {edge['from']}", end),
            {
                "label": rate(edge["rowsPerSecond"]),
                "wait": f"{figure(edge['backlogRows'])} wait" if edge["backlogRows"] else "",
                "boundary": f"boundary {watermark[11:19]}" if watermark else "no boundary yet",
            },
        )


# -- rows -------------------------------------------------------------------------------------


def _streams(plan: Mapping[str, Any], *, is_live: bool) -> list[dict[str, str]]:
    """Those whose last rows can be had: sinks with a log, and while it runs what units send."""
    found = [
        {"key": sink["name"], "label": f"sink {sink['name']}"}
        for sink in plan.get("sinks", ())
        if not sink["place"]
    ]
    unit_of = {step["name"]: step["unit"] for step in plan.get("steps", ())}
    sending = (
        unit_of[other]
        for step in plan.get("steps", ())
        for other in step["inputs"]
        if is_live and unit_of[other] != step["unit"]
    )
    return found + [
        {"key": unit_key(unit), "label": f"unit {unit}, as sent"} for unit in dict.fromkeys(sending)
    ]


# -- actions ----------------------------------------------------------------------------------


def _actions(facts: Facts, plan: Mapping[str, Any], *, is_live: bool) -> dict[str, list[str]]:
    """What may be asked for now, and of which units."""
    if not is_live:
        return {}
    units = list(dict.fromkeys(node["unit"] for node in plan.get("nodes", ())))
    ready = {node["unit"] for node in plan.get("nodes", ()) if node["standby"] != "none"}
    targets = {"kill": units, "promote": [unit for unit in units if unit in ready], "stop": [""]}
    return {action: targets[action] for action in facts.actions if targets[action]}
