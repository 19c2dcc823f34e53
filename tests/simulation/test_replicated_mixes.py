"""Replicated units beside units with every other protection, in one dataflow. [DPC, HA §9]"""

from __future__ import annotations

import re
from typing import Any

import pytest

import holdfast as hf
from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.errors import DataflowError
from holdfast.sim.draw import Draw
from holdfast.sim.faults import KINDS
from holdfast.sim.seeds import Run, simulate
from holdfast.sim.workload.base import Workload, placed
from holdfast.sim.workload.known import _MEANINGS, _events, _recorded
from holdfast.sim.workload.protections import random_limits

SHORT = "20 milliseconds"
OTHERS: dict[str, hf.Protection] = {
    "UpstreamBackup": hf.UpstreamBackup(),
    "UpstreamBackup, rollback": hf.UpstreamBackup(guarantee="rollback"),
    "Amnesia": hf.Amnesia(),
    "PassiveStandby": hf.PassiveStandby(),
    "ActiveStandby": hf.ActiveStandby(),
    "Checkpointed": hf.Checkpointed(interval=SHORT),
    "EventualCheckpoints": hf.EventualCheckpoints(),
    "Uncoordinated": hf.Uncoordinated(interval=SHORT, jitter="1 millisecond"),
    "Coordinated": hf.Coordinated(interval=SHORT),
    "Coordinated, unaligned": hf.Coordinated(interval=SHORT, aligned=False),
    "CommunicationInduced": hf.CommunicationInduced(interval=SHORT, jitter="1 millisecond"),
    "Unprotected": hf.Unprotected(),
}
WEAK = ("UpstreamBackup, rollback", "Amnesia")
REFUSED = {
    ("PassiveStandby", "behind", 2): "among which its secondary",
    ("ActiveStandby", "behind", 2): "among which its secondary",
    ("Amnesia", "behind", 2): "among which its secondary, or a replacement that starts empty",
    **dict.fromkeys([(name, "before", 2) for name in WEAK], "replicas, which would not agree"),
}
"""Other protection, where it stands, replicas: why the two do not go together."""


def workload(seed: int, other: str, place: str, replicas: int) -> Workload:
    """Bids of two sources are united by a replicated unit, and counted; one unit is otherwise."""
    draw = Draw(f"{seed}/mixes")

    def source(name: str, flow: Dataflow) -> Stream:
        rows, schema = _events("q12", "bid", seed)
        recording = _recorded(rows, schema, 1, None, draw)
        return flow.source_generator(recording, name=name, unit=name)

    flow = Dataflow("mixes")
    first, second = (source(name, flow) for name in ("a", "b"))
    before = first.unit("before").select("bidder", "price", "date_time")
    merged = before.unit("merged").union(second.select("bidder", "price", "date_time"))
    counts = merged.unit("behind").key_by("bidder").window(hf.tumbling("10 seconds"))
    counts.aggregate("count(*) AS n", name="counts").sink("counts")
    replicated = hf.Replicated(delay="50 milliseconds", replicas=replicas)
    protections: dict[str, hf.Protection] = {"merged": replicated, place: OTHERS[other]}

    def of_unit(unit: str) -> Any:
        return protections.get(unit, hf.UpstreamBackup()).of_unit()

    return placed(flow, _MEANINGS, 1, random_limits(draw), of_unit)


class Mixed(Run):
    """A run of such a workload."""

    other = ""
    place = ""
    replicas = 1

    def workload(self) -> Workload:
        """See the module."""
        return workload(self.seed, self.other, self.place, self.replicas)


def mixed(seed: int, other: str, place: str, replicas: int) -> Mixed:
    names = {"other": other, "place": place, "replicas": replicas}
    made: Mixed = type("Mixed", (Mixed,), names)(seed, tuple(KINDS))
    return made


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("other", list(OTHERS))
def test_every_protection_goes_with_replicated_units_or_is_refused_by_name(
    other: str, place: str, replicas: int
) -> None:
    why = REFUSED.get((other, place, replicas))
    if why is not None:
        with pytest.raises(DataflowError, match=re.escape(why)) as refused:
            workload(0, other, place, replicas)
        assert "unit 'merged'" in str(refused.value) or "unit 'behind'" in str(refused.value)
        return
    plans = {plan.unit: plan for plan in workload(0, other, place, replicas).plans}
    assert plans["merged"].delays is not None


@pytest.mark.parametrize(("seed", "other"), list(enumerate(OTHERS))[:-1])
def test_both_hold_what_they_promise_under_faults(seed: int, other: str) -> None:
    """Each other protection once, in turns before and behind, with a replica and with two; but not
    the last, which recovers from nothing.
    """
    place, replicas = ("before", "behind")[seed % 2], 1 + seed // 2 % 2
    if (other, place, replicas) in REFUSED:
        replicas = 1
    outcome = simulate(mixed(seed, other, place, replicas))
    assert outcome.invariant is None, outcome.violation


@pytest.mark.parametrize(
    "gated",
    [
        hf.Uncoordinated(interval="1 second"),
        hf.Coordinated(interval="1 second"),
        hf.CommunicationInduced(interval="1 second"),
    ],
)
def test_a_bound_below_the_interval_of_a_gate_before_it_is_refused(gated: hf.Protection) -> None:
    def plan(delay: str) -> Workload:
        draw = Draw("gates")
        flow = Dataflow("gates")
        rows, schema = _events("q12", "bid", 0)
        sources = [
            flow.source_generator(_recorded(rows, schema, 1, None, draw), name=name, unit=name)
            for name in ("a", "b", "c")
        ]
        arbitrary = sources[0].unit("arbitrary").union(sources[1], order="arrival")
        arbitrary.unit("merged").union(sources[2]).sink("out")
        given = {"arbitrary": gated, "merged": hf.Replicated(delay=delay)}

        def of_unit(unit: str) -> Any:
            return given.get(unit, hf.UpstreamBackup()).of_unit()

        return placed(flow, _MEANINGS, 1, random_limits(draw), of_unit)

    with pytest.raises(DataflowError, match="would always be tentative; give it a longer delay"):
        plan("500 milliseconds")
    assert plan("2 seconds").plans
