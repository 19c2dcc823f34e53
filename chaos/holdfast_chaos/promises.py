"""How real runs are protected, and what their sinks must hold then. [HA §3.1]

Weaker guarantees are drawn for queries whose rows depend on one input row each, or on a pair: of
these, whatever is lost or comes again, none is another row. What windows make of a part of their
rows the simulator checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.api.protections import (
    ActiveStandby,
    Amnesia,
    Checkpointed,
    CommunicationInduced,
    Coordinated,
    EventualCheckpoints,
    PassiveStandby,
    Protection,
    Replicated,
    Uncoordinated,
    UpstreamBackup,
)
from holdfast.sim.draw import Draw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.driver.query import Query

SIDE_BY_SIDE: Final = "replicated, side by side"
AT_LEAST_ONCE: Final = "coordinated, at least once"
"""It is drawn among those by which units recover together, and there alone."""
EVENTUAL: Final = "eventual checkpoints"
PROTECTIONS: Final[dict[str, Protection]] = {
    "upstream backup": UpstreamBackup(),
    "checkpoints": Checkpointed(interval="200 milliseconds"),
    "active standby": ActiveStandby(),
    "passive standby": PassiveStandby(),
    "rollback": UpstreamBackup(guarantee="rollback"),
    "amnesia": Amnesia(),
    EVENTUAL: EventualCheckpoints(share=0.2, extent="64 KiB"),
    "uncoordinated": Uncoordinated(interval="200 milliseconds", jitter="50 milliseconds"),
    "replicated": Replicated(delay="300 milliseconds"),
    SIDE_BY_SIDE: Replicated(replicas=2, delay="300 milliseconds", reconcile="undo/redo"),
    "coordinated": Coordinated(interval="200 milliseconds"),
    "unaligned": Coordinated(interval="200 milliseconds", aligned=False),
    "induced": CommunicationInduced(
        interval="200 milliseconds", jitter="50 milliseconds", scope="all"
    ),
    "all go back": Uncoordinated(interval="200 milliseconds", rolls_back="all"),
}
_TOGETHER: Final[dict[str, Protection]] = {
    "coordinated, all go back": Coordinated(interval="200 milliseconds", rolls_back="all"),
    AT_LEAST_ONCE: Coordinated(interval="200 milliseconds", guarantee="rollback"),
    "after windows": Uncoordinated(
        interval="200 milliseconds", jitter="50 milliseconds", trigger="after_windows"
    ),
    "induced within loops": CommunicationInduced(
        interval="200 milliseconds", jitter="50 milliseconds"
    ),
    "bcs": CommunicationInduced(
        interval="200 milliseconds", jitter="50 milliseconds", algorithm="bcs", scope="all"
    ),
    "lazy-fi": CommunicationInduced(
        interval="200 milliseconds", jitter="50 milliseconds", algorithm="lazy-fi", scope="all"
    ),
}
TOGETHER: Final = (
    *("uncoordinated", "coordinated", "unaligned", "induced", "all go back"),
    *_TOGETHER,
)
"""By which units that do not repeat recover together."""
STANDBYS: Final = ("active standby", "passive standby")
"""They take two slots for each node."""
CORRECTED: Final = ("replicated", SIDE_BY_SIDE)
"""They go on without sources that fall silent."""
_ROLLBACK: Final = ("rollback", AT_LEAST_ONCE)
_WEAKER: Final = (*_ROLLBACK, "amnesia")
ARRIVAL: Final = "arrival"
"""A union in the order of arrival, an arbitrary unit: its rows are known, their order is not."""
BY_ARRIVAL: Final = {f"{query} by arrival": query for query in ("q1", "q3", "q8", "q12")}
"""Queries whose events of a kind come from two sources, merged as they come."""
LOOP: Final = "loop"
_ROW_BY_ROW: Final = ("q1", "q3", ARRIVAL)
_ONLY: Final = {
    **dict.fromkeys(_WEAKER, _ROW_BY_ROW),
    EVENTUAL: ("q1", "q12"),  # Windows, and what keeps nothing.
    # Replicas of the others would not agree.
    **dict.fromkeys(("replicated", SIDE_BY_SIDE), ("q1", "q3", "q8", "q12")),
    # The units of the others repeat, and recover alone.
    **dict.fromkeys(("coordinated", "unaligned", "induced", "all go back"), (ARRIVAL,)),
}
"""For which queries a protection is drawn, where not for all."""
_PERCENT: Final = 10
"""Of the queries that may have them have replicas of their units."""


def protection_named(name: str) -> Protection:
    """One of `PROTECTIONS` or `TOGETHER`."""
    return {**PROTECTIONS, **_TOGETHER}[name]


def draw_protection(seed: int, query: str) -> str:
    """One of `PROTECTIONS` that the query can have and `violations_of` can check."""
    if query in _ONLY[SIDE_BY_SIDE] and Draw(f"{seed}/real/side by side").percent(_PERCENT):
        return SIDE_BY_SIDE
    others = [name for name in PROTECTIONS if name != SIDE_BY_SIDE]
    names = [name for name in others if query in _ONLY.get(name, (query,))]
    return Draw(f"{seed}/real/protection").one_of(names)


def violations_of(query: Query, twin: DataFrame, protection: str) -> list[str]:
    """What the sink of a query that has ended holds and must not, or lacks and must hold.

    Args:
        query: The query.
        twin: What a run without failures would put out.
        protection: One of `PROTECTIONS` or `TOGETHER`.
    """
    found = query.verify()
    seen = (
        f"{found.lost} lost, {found.doubled} doubled, {found.gaps} gaps: {'; '.join(found.sample)}"
    )
    may_repeat = query.failures or protection == AT_LEAST_ONCE  # An earlier driver may have failed.
    if protection not in _WEAKER or not may_repeat:
        return [] if found.is_identical else [f"I-PRECISE: {seen}"]
    wrong = query.to_dataframe().select(*twin.columns).subtract(twin).count()
    if wrong or found.gaps:
        name = "I-ROLLBACK" if protection in _ROLLBACK else "I-GAP"
        return [f"{name}: {wrong} rows never expected, {seen}"]
    if protection in _ROLLBACK:
        return [f"I-ROLLBACK: {seen}"] if found.lost else []
    failed = {failure["node"] for failure in query.failures}
    return [f"I-GAP: {seen}"] if found.doubled and len(failed) == 1 else []
