"""Plans and reports as a query of many units leaves them, for tests and figures of its view."""

from typing import Any

from holdfast.driver.progress import consistency_block, recovery_block

RECOVERY = {
    "node": "unit1[0]",
    "at_s": 12.0,
    "detected_ms": 310,
    "restarted_ms": 220,
    "replayed_ms": 40,
    "recovered_ms": 600,
    "recovered_unix_s": 1_700_000_012.6,
    "caught_up_ms": 900,
    "replayed_tuples": 12_345,
    "was_promoted": False,
}
FAILURE = {
    "node": "unit1[0]",
    "incarnation": 1,
    "at_s": 12.0,
    "reason": "its process was killed by signal 9",
    "detected_ms": 310,
}
BEGUN_S = 1_700_000_000.0


def plan(units: int, fan: int = 3) -> dict[str, Any]:
    """Units in layers; each reads from up to two of the layer before it."""
    names = [f"unit{n}" for n in range(units)]
    steps = []
    for n, name in enumerate(names):
        inputs = [] if n < fan else sorted({names[n - fan], names[n - fan + (n % fan and -1)]})
        steps.append(
            {
                "name": name,
                "unit": name,
                "word": "filter",
                "inputs": inputs,
                "text": f"filter {name}",
            }
        )
    return {
        "name": "bids",
        "startedUnixS": BEGUN_S,
        "steps": steps,
        "sinks": [{"name": "out", "unit": names[-1], "step": names[-1], "place": ""}],
        "sources": [{"name": f"source{n}", "unit": names[n]} for n in range(min(fan, units))],
        "nodes": [
            {
                "node": f"{name}[0]",
                "unit": name,
                "guarantee": "precise",
                "standby": "active" if n == 1 else "none",
            }
            for n, name in enumerate(names)
        ],
        "settings": [
            {"name": "keepAliveMs", "value": 50, "default": 100, "meaning": "period; ms"},
            {"name": "ackIntervalMs", "value": 50, "default": 50, "meaning": "acks; ms"},
        ],
        "notes": [],
    }


def report(count: int, tick: int = 0, **more: Any) -> dict[str, Any]:
    """What such a query says at its `tick`-th report; `more` goes into its progress."""
    placed = plan(count)
    of_units = {f"unit{n}": _unit(n, tick) for n in range(count)}
    edges = [
        {
            "from": source,
            "to": step["name"],
            "rowsPerSecond": 1_000.0 + (n * 7 + tick * 13) % 100,
            "backlogRows": (n + tick) % 9,
            "watermark": "2023-11-14T22:13:20.000Z",
        }
        for n, step in enumerate(placed["steps"])
        for source in step["inputs"]
    ]
    edges.append(
        {
            "from": f"unit{count - 1}",
            "to": "sink out",
            "rowsPerSecond": 10.0 + tick % 5,
            "backlogRows": 0,
            "watermark": None,
        }
    )
    progress = {
        "numInputRows": 1_000 * (tick + 1),
        "numOutputRows": 10 * (tick + 1),
        "inputRowsPerSecond": 12_345.0,
        "outputRowsPerSecond": 12.5,
        "latencyMs": {"p50": 4.2, "p99": 12.0, "max": 40.0},
        "eventTime": {"watermark": "2023-11-14T22:13:20.000Z"},
        "sources": [
            {
                "description": source["name"],
                "numInputRows": 100,
                "inputRowsPerSecond": 4_000.0,
                "backlogRows": 40,
            }
            for source in placed["sources"]
        ],
        "units": of_units,
        "edges": edges,
        "durable": {"restartPointRows": 900, "ageMs": 400},
        "checkpoints": [],
        "damagedCheckpoints": [],
        "gaps": [],
        "failures": [FAILURE],
        "recoveries": [RECOVERY],
        "recovery": recovery_block([RECOVERY]),
    }
    return {
        "name": "bids",
        "id": "an id",
        "runId": "a run",
        "madeUnixS": BEGUN_S + 60 + tick,
        "isActive": True,
        "exception": None,
        "isLast": False,
        "status": {"nodes": {f"unit{n}[0]": _node(n, tick) for n in range(count)}, "notes": []},
        "progress": {**progress, **more},
    }


def _unit(n: int, tick: int) -> dict[str, Any]:
    return {
        "instances": 1,
        "numInputRows": 100,
        "numOutputRows": 10,
        "inputRowsPerSecond": 1_000.0 + (n * 7 + tick * 13) % 100,
        "outputRowsPerSecond": 10.0,
        "latencyMs": {"p50": None, "p99": None, "max": None},
        "tupleCostUs": 0.35,
        "backlog": {"sourceRows": None, "pendingRows": 3, "heldRows": 2, "unsentRows": 1},
        "keptRows": 11_000,
        "stateBytes": 8_192_000,
        "checkpoint": {
            "count": 4,
            "failed": 0,
            "standstillMs": 0.2,
            "durationMs": 250,
            "writtenBytes": 409_600,
            "ageMs": 3_000,
        },
        "consistency": consistency_block([]),
        "extent": None,
        "line": None,
        "round": None,
    }


def _node(n: int, tick: int) -> dict[str, Any]:
    replica = {
        "role": "primary",
        "state": "running",
        "incarnation": 1,
        "pid": 4_000 + n,
        "host": f"machine{n % 7}",
        "lag_ms": None,
        "is_ready": True,
    }
    second = {**replica, "role": "secondary", "incarnation": 2, "pid": 5_000, "lag_ms": 3.0}
    return {
        "state": "running",
        "input_tuples": 100 * (tick + 1),
        "output_tuples": 10 * (tick + 1),
        "replicas": [replica, second] if n == 1 else [replica],
    }
