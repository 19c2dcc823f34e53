"""What progress says of units that recover together: their rounds and their line. [CheckMate §V]

A checkpoint has three times: how long its node stood still for it, how long it took until it was
durable, and how long until it counted, as all that go with it were durable too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.core.model.ids import NodeId
    from holdfast.shell.spark.history import NodeReport


def round_block(
    names: Set[NodeId],
    rounds: Sequence[Mapping[str, Any]],
    written: Iterable[Mapping[str, Any]],
) -> dict[str, Any] | None:
    """The last complete round of a unit; None: it has had none.

    Args:
        names: The unit's nodes.
        rounds: Those that became complete, oldest first.
        written: Checkpoints of these nodes, oldest first.
    """
    of_unit = [each for each in rounds if names & each["durableMs"].keys()]
    if not of_unit:
        return None
    last = of_unit[-1]
    durable_ms = {node: last["durableMs"][node] for node in names}
    newest = {c["node"]: c for c in written if c["failure"] is None}
    cuts_ms = [durable_ms[node] - c["duration_ms"] for node, c in newest.items()]
    return {
        "alignmentMs": max(0, *cuts_ms) if cuts_ms else None,
        "standstillMs": max((c["prepared_us"] / 1000 for c in newest.values()), default=None),
        "durableMs": max(durable_ms.values()),
        "roundMs": last["roundMs"],
    }


def line_block(
    names: Set[NodeId],
    lines: Mapping[NodeId, Mapping[str, Any]],
    reports: Iterable[NodeReport],
) -> dict[str, Any] | None:
    """How the line of a unit stands; None: its nodes recover alone, or nothing has happened yet.

    Args:
        names: The unit's nodes.
        lines: Per node what its line has come to.
        reports: What these nodes have said.
    """
    own = [lines[node] for node in names if node in lines]
    if not own:
        return None
    noted_s = [each["noted_unix_s"] for each in own]
    is_begun = None not in noted_s
    said = [report.figures.traffic for report in reports]
    sent = sum(each.tuple_bytes for each in said)
    notes = sum(each.note_bytes for each in said)
    return {
        "ageMs": max(0, round(1000 * (time.time() - min(noted_s)))) if is_begun else None,
        "waitedMs": max(each["lineMs"] for each in own) if is_begun else None,
        "checkpoints": sum(each["checkpoints"] for each in own),
        "forced": sum(each["forced"] for each in own),
        "useless": sum(each["useless"] for each in own),
        "rolledPast": sum(each["rolledPast"] for each in own),
        "messageOverhead": round(sent / (sent - notes), 4) if sent > notes else None,
    }
