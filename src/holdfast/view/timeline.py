"""Failures and recoveries, the newest first, each recovery with its numbers. Pure.

The numbers follow each other: until the failure was detected, until a replacement ran, until it had
replayed, and until the first new output. Behind them stands for how long results came later than
before. [HA §6.1]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.driver.progress import recovery_block
from holdfast.view.words import clock, figure, milliseconds

_SHOWN: Final = 200
_PARTS: Final = {
    "detectionMs": "detection",
    "restartMs": "restart",
    "replayMs": "replay",
    "firstOutputMs": "first output",
}


def of(plan: Mapping[str, Any], progress: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What has happened in this run."""
    begun_s = plan.get("startedUnixS", 0.0)
    happened = [(begun_s + f["at_s"], _failure(f)) for f in progress.get("failures", ())]
    happened += [(r["recovered_unix_s"], _recovery(r)) for r in progress.get("recoveries", ())]
    happened.sort(key=lambda each: each[0], reverse=True)
    return [{"at": clock(at_s), **said} for at_s, said in happened[:_SHOWN]]


def _failure(failure: Mapping[str, Any]) -> dict[str, Any]:
    return {"kind": "failure", "node": failure["node"], "text": failure["reason"], "parts": []}


def _recovery(recovery: Mapping[str, Any]) -> dict[str, Any]:
    block = recovery_block([dict(recovery)])
    how = "promoted its secondary" if recovery["was_promoted"] else "replaced"
    caught_up = (
        "results are not yet as prompt as before"
        if block["catchUpMs"] is None
        else f"results as prompt as before after another {milliseconds(block['catchUpMs'])}"
    )
    return {
        "kind": "recovery",
        "node": recovery["node"],
        "text": f"{how}; {figure(recovery['replayed_tuples'])} rows replayed; {caught_up}",
        "total": milliseconds(recovery["recovered_ms"]),
        "parts": [
            {"name": name, "ms": round(block[key]), "text": milliseconds(round(block[key]))}
            for key, name in _PARTS.items()
        ],
    }
