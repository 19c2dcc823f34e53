"""A dataflow as text: what a checkpoint location was made by, so that nothing else goes on there.

Restart points and ids mean something only to the dataflow that they came from. The text lists all
that matters to them, one step a line; where it differs, the difference is the error message.
"""

from __future__ import annotations

import difflib
import os
import re
from typing import TYPE_CHECKING, Any

from holdfast.api.steps import PartialAggregate, said
from holdfast.core.coordinator.checkpoint_registry import CheckpointRegistry
from holdfast.errors import DataflowChangedError
from holdfast.planning.guarantees import recoveries_of
from holdfast.shell.spark.journal import JOURNAL_FOLDER, read_entries
from holdfast.shell.storage.errors import FileMissing
from holdfast.shell.storage.places import DATAFLOW_FILE, put_or_read, read_if_any, store_at
from holdfast.shell.storage.small_files import decode_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.api.graph import Graph
    from holdfast.api.protections import Protections
    from holdfast.api.steps import Step
    from holdfast.core.model.ids import StreamId
    from holdfast.planning.plan import Plan

_PLACED = re.compile(r"^\w+ (\S+) in (\S+): \(", re.MULTILINE)
"""A step's line: its name, its unit."""
_INSTANCES = re.compile(r"^unit (\S+): (\d+) instances$", re.MULTILINE)
_OWN = ("kafka_", "file_")
"""How columns begin that a source adds by itself."""
_AFTER_GAP = " (what fails together with a neighbor, or the driver, may come twice)"


def describe(flow: Graph, plan: Plan, protections: Protections) -> str:
    """One line for each step, sink and unit, and how nodes are brought back.

    Also for what planning has added: tuples between units depend on it.
    """
    steps = [step_text(step) for step in flow.steps]
    steps += [
        step_text(step) for step in plan.flow.steps if isinstance(step.operation, PartialAggregate)
    ]
    sinks = [f"sink {name} <- {step.name}{_to(flow, name)}" for name, step in flow.sinks.items()]
    instances: dict[str, int] = {}
    for node in plan.nodes:
        instances[node.unit] = instances.get(node.unit, 0) + 1
    units = [f"unit {unit}: {count} instances" for unit, count in instances.items()]
    how = f"protection {protections.describe()}"
    return "\n".join([f"dataflow {flow.name}", *steps, *sinks, *units, how, ""])


def claim(location: str, text: str, before: str | None = None, reasons: Sequence[str] = ()) -> None:
    """Record the dataflow at its first start; refuse another one later.

    Args:
        location: The checkpoint location.
        text: The dataflow.
        before: The one that has run there, if it is known already.
        reasons: Why it cannot go on there, changed as it is.

    Raises:
        DataflowChangedError: The location belongs to another dataflow.
    """
    place = os.path.join(location, DATAFLOW_FILE)
    if before is None:
        found = put_or_read(store_at(location), DATAFLOW_FILE, [text.encode()])
        before = decode_text(found, place)
    if before == text:
        return
    difference = difflib.unified_diff(
        before.splitlines(), text.splitlines(), "before", "now", lineterm="", n=0
    )
    lines = [line for line in difference if not line.startswith(("---", "+++", "@@"))]
    what = "\n  ".join([*reasons, *lines, *_moved(before, text), *_other_columns(before, text)])
    ways = "use a new checkpointLocation, or undo the change, " + (
        "or see below, " if reasons else ""
    )
    raise DataflowChangedError(
        f"{location} holds the state of another dataflow; {ways}or restore {place} from a copy if "
        f"it is damaged:\n  {what}"
    )


def _moved(before: str, text: str) -> list[str]:
    """How to put steps back into the units that they had."""
    was = {m[1]: m[2] for m in _PLACED.finditer(before)}
    found = ((m[1], m[2]) for m in _PLACED.finditer(text))
    return [
        f'unit("{was[name]}") before {name} puts it where it was'
        for name, unit in found
        if was.get(name, unit) != unit
    ]


def _other_columns(before: str, text: str) -> list[str]:
    """How the columns of sources have changed, and how to have the former ones."""
    was, now = _columns_of_sources(before), _columns_of_sources(text)
    found: list[str] = []
    for name, columns in now.items():
        old = was.get(name, columns)
        if [*old.items()] == [*columns.items()]:
            continue
        told = [f"no {each} any more" for each in old if each not in columns]
        told += [f"{each} {kind} besides" for each, kind in columns.items() if each not in old]
        told += [
            f"{each} as {kind}, and not as {old[each]}"
            for each, kind in columns.items()
            if old.get(each, kind) != kind
        ]
        names = ", ".join(repr(each) for each in old if not each.startswith(_OWN))
        found.append(
            f"source {name} has {'; '.join(told) or 'its columns in another order'}: give it those "
            f"that it had, as by df.select({names}), or schema=... of files, tables and topics"
        )
    return found


def _columns_of_sources(text: str) -> dict[str, dict[str, str]]:
    """Per source its columns with their types."""
    found: dict[str, dict[str, str]] = {}
    for line in _PLACED.finditer(text):
        rest = text[line.end() :].partition("\n")[0]
        if " <- " in rest:
            continue
        parts, depth = [""], 0
        for letter in rest:
            depth += (letter in "(<[") - (letter in ")>]")
            if depth < 0:
                break
            if letter == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += letter
        pairs = (part.strip().partition(" ") for part in parts)
        found[line[1]] = {name: kind for name, _, kind in pairs}
    return found


def _to(flow: Graph, sink: str) -> str:
    """Where a sink that is not a log goes."""
    return f" to {flow.outside_sinks[sink]}" if sink in flow.outside_sinks else ""


def explained(flow: Graph, plan: Plan, ways: Mapping[str, str], *, is_extended: bool) -> str:
    """How a dataflow is placed, for people.

    Args:
        flow: The dataflow.
        plan: Its nodes.
        ways: How the rows of sources come in, by source.
        is_extended: Whether all streams are named.
    """
    lines = [f"== Dataflow {flow.name} ==", *(step_text(step) for step in flow.steps)]
    lines += [f"sink {name} <- {step.name}" for name, step in flow.sinks.items()]
    if ways:
        lines += ["== Sources ==", *(f"{name}: {way}" for name, way in ways.items())]
    lines.append("== Nodes ==")
    for node in plan.nodes:
        operators = ", ".join(spec.name for spec in node.operators) or "no operators"
        guarantee = node.guarantee.value if node.is_protected else "unprotected"
        limit = _AFTER_GAP if node.may_repeat_after_gap else ""
        lines.append(f"{node.node}: {operators}; {guarantee}{limit}, standby {node.standby.value}")
        if is_extended:
            lines += [
                f"  reads {spec.stream}{_left_out(plan, spec.stream)}" for spec in node.inputs
            ]
            lines += [f"  puts out {stream}" for stream in node.output_streams()]
    lines += ["== Units ==", *map(str, recoveries_of(plan.nodes))]
    if plan.notes:
        lines += ["== Notes ==", *plan.notes]
    return "\n".join(lines)


def _left_out(plan: Plan, stream: StreamId) -> str:
    """By which columns groups of a file's rows are left out."""
    pruning = getattr(plan.sources.get(stream), "pruning", None)
    by = "" if pruning is None else ", ".join(pruning.columns)
    return f" without groups of rows that filters leave out by {by}" if by else ""


def step_text(step: Step) -> str:
    """A step in one line: word, name, unit, columns, settings, inputs."""
    operation = step.operation
    settings = ", ".join(f"{name}={_text(value)}" for name, value in said(operation))
    inputs = ", ".join(source.name for source in (*step.inputs, *step.feedback))
    schema = ", ".join(f"{field.name} {field.type}" for field in step.schema)
    arrow = f" <- {inputs}" if inputs else ""
    return f"{operation.WORD} {step.name} in {step.unit}: ({schema}) {settings}{arrow}"


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(item) for item in value) + "]"
    sql = getattr(value, "sql", None)
    name = getattr(value, "name", None)
    return str(value) if sql is None else f"{sql} AS {name}"


def instances_in(text: str) -> dict[str, int]:
    """How many instances each unit has, by the description of a dataflow."""
    return {unit: int(count) for unit, count in _INSTANCES.findall(text)}


def with_instances(text: str, counts: Mapping[str, int]) -> str:
    """A description with other numbers of instances."""
    return _INSTANCES.sub(lambda m: f"unit {m[1]}: {counts.get(m[1], int(m[2]))} instances", text)


def described(location: str) -> str | None:
    """The dataflow that a location was made by; None: none was yet.

    As the last change of it has decided, with the numbers of instances of the last elastic restart:
    the file says those of the first start.

    Raises:
        FileDamaged: The file is no text.
        FileMissing: It is gone, so that nobody can tell which dataflow may go on.
        JournalCorrupt: The journal is damaged.
    """
    place = os.path.join(location, DATAFLOW_FILE)
    found = read_if_any(store_at(location), DATAFLOW_FILE)
    entries = read_entries(os.path.join(location, JOURNAL_FOLDER))
    if found is None:
        if entries:
            raise FileMissing(place, "a query has run here")
        return None
    decided = CheckpointRegistry.of(entries)
    text = decided.dataflow or decode_text(found, place)
    return text if decided.instances is None else with_instances(text, decided.instances)


def settle(before: str | None, text: str) -> dict[str, int] | None:
    """How many instances each unit had, where a location differs in that alone from `text`."""
    if before is None or before == text or with_instances(before, instances_in(text)) != text:
        return None
    return instances_in(before)
