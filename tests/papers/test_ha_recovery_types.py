"""Which type of recovery each approach gives for each class of operators. [HA §3, Table 2]

A source, the unit under test, a unit behind it and a sink run in the simulator; the unit's process
is killed. Each input row has a digit of its own, and windows sum them up: so every row put out says
exactly from which input it was made, and how often. Where the paper's approach gives only rollback
recovery, a claim stronger than that must be refuted by some seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.core.haunit import events
from holdfast.core.haunit.plan import CheckpointPlan, NodeLimits, Standby, UnitProtection
from holdfast.core.model.ids import NodeId
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.driver.description import explained
from holdfast.planning.plan import Plan, plan_dataflow
from holdfast.sim.checkers import Checker, Fencing, Kept, Trimming
from holdfast.sim.draw import Draw
from holdfast.sim.faults import Fault
from holdfast.sim.workload.base import SPAN_US, Recording, evenly
from holdfast.sim.workload.oracle import TimedRow
from holdfast.sim.world import Conditions, World

if TYPE_CHECKING:
    from holdfast.core.machine import Effect
    from holdfast.sim.process import Process

SEEDS = range(6)
ROWS = 60
STEP_US = 100
WINDOW = "700 microseconds"
FIRST_KILL_US = 450_000
UP_AGAIN_US = (250_000, 550_000)
"""After the driver's crash."""
_DIGIT_BITS = 2
_DIGITS = 30

PROTECTIONS = {
    "passive standby": UnitProtection(standby=Standby.PASSIVE, delta_interval_ms=20),
    "upstream backup": UnitProtection(),
    "active standby": UnitProtection(standby=Standby.ACTIVE),
    "checkpoints": UnitProtection(checkpoints=CheckpointPlan(interval_ms=40)),
    "rollback": UnitProtection(guarantee=Guarantee.ROLLBACK),
    "amnesia": UnitProtection(guarantee=Guarantee.GAP),
}
PRECISE = ("passive standby", "upstream backup", "active standby")
ROLLBACK = {
    name: replace(PROTECTIONS[name], guarantee=Guarantee.ROLLBACK)
    for name in ("passive standby", "active standby")
}


def _filter(stream: Stream) -> Stream:
    return stream.unit("op").filter("low + high > 0")


def _windows(stream: Stream) -> Stream:
    return _summed(stream.unit("op").window(tumbling(WINDOW)))


def _windows_of_the_first(stream: Stream) -> Stream:
    return _summed(stream.unit("op").window(tumbling(WINDOW, alignment="first")))


def _sample(stream: Stream) -> Stream:
    return stream.unit("op").sample(0.5)


def _windows_of_the_clock(stream: Stream) -> Stream:
    return _summed(stream.unit("op").window(tumbling("90 milliseconds", time="processing")))


def _summed(windowed: Any) -> Stream:
    made: Stream = windowed.aggregate("sum(low) AS low", "sum(high) AS high", name="op")
    return made


CLASSES: dict[str, Callable[[Stream], Stream]] = {
    "repeatable": _filter,
    "convergent-capable": _windows,
    "deterministic": _windows_of_the_first,
    "arbitrary": _windows_of_the_clock,
    "arbitrary by chance": _sample,
}
COMPLETE = {kind: made for kind, made in CLASSES.items() if made is not _sample}
"""Those that put out something of every input row."""


@dataclass(frozen=True)
class Run:
    """What came of a run.

    Attributes:
        rows: Per row of the sink, in order, how often each input row is in it.
        failures: How many losses were detected.
        reached: Rare situations.
        gaps: Reported gaps as (stream, from, to).
        between_points: At most so many input rows arrive from one restart point to the next.
        flow: What ran.
        plan: By which it ran.
    """

    rows: list[Counter[int]]
    failures: int
    reached: dict[str, int]
    gaps: list[tuple[str, int, int]]
    between_points: int
    flow: Dataflow
    plan: Plan

    @property
    def explained(self) -> str:
        """How the plan is explained to users."""
        return explained(self.flow, self.plan, {}, is_extended=False)


class Gaps(Checker):
    """Notes what is reported as lost."""

    def __init__(self) -> None:
        self.found: list[tuple[str, int, int]] = []

    def performing(self, process: Process, effect: Effect) -> None:
        if isinstance(effect, events.ReportGap):
            self.found.append((effect.stream, effect.from_id, effect.to_id))


def run(
    seed: int,
    made: Callable[[Stream], Stream],
    protections: dict[str, str | UnitProtection],
    *killed: str,
    disorder_us: int = 0,
    at_once: bool = False,
    has_skew: bool = False,
    mutated: Callable[[Plan], Plan] = lambda plan: plan,
) -> Run:
    """One run; `protections` by unit, the others have upstream backup.

    Args:
        seed: Draws times of kills, periods, and the simulator's chances.
        made: Puts the unit under test behind the source.
        protections: By unit.
        killed: The units that are killed, `src`, `op` and `after`; `driver` crashes, and what is
            named behind it is killed once all is up again.
        disorder_us: How far the input is out of order.
        at_once: Whether all are killed within 3 ms.
        has_skew: Whether the machines' clocks are far apart.
        mutated: What becomes of the plan before it is run.
    """
    draw = Draw(f"{seed}/recovery types")
    rows = tuple(
        TimedRow(
            1_000_000 + STEP_US * i - (draw.number(0, disorder_us) if disorder_us else 0),
            {"low": _digit(i), "high": _digit(i - _DIGITS)},
        )
        for i in range(ROWS)
    )
    records = tuple(rows[i : i + 3] for i in range(0, ROWS, 3))
    schema = pa.schema([("low", pa.int64()), ("high", pa.int64())])
    flow = Dataflow("t")
    source = flow.source_generator(
        Recording(schema, disorder_us, (records,), (evenly(records),)), name="src"
    )
    made(source).unit("after").filter("low + high > 0").sink("out")
    limits = NodeLimits(
        input_queue_tuples=64,
        output_queue_tuples=64,
        ack_interval_ms=draw.number(5, 80),
        ack_tuples=0,
        resubscribe_ms=150,
        page_bytes=2048,
    )
    plan = mutated(
        plan_dataflow(
            flow,
            "",
            parallelism=1,
            limits=limits,
            protection=lambda unit: _protection(protections.get(unit, "upstream backup")),
        )
    )
    together_us = draw.number(FIRST_KILL_US, SPAN_US)
    faults = {}
    for i, unit in enumerate(killed):
        at_us = draw.number(FIRST_KILL_US, SPAN_US)
        if at_once:
            at_us = together_us + draw.number(0, 3_000)
        if killed[0] == "driver":
            at_us = FIRST_KILL_US + (i and draw.number(*UP_AGAIN_US))
        kind, node = ("kill", NodeId(f"{unit}[0]"))
        if unit == "driver":
            kind, node = ("driver-crash", None)
        faults[i] = Fault(kind, at_us, "", 0, pick=0, length_us=1_000, size=0, node=node)
    gaps = Gaps()
    kept = () if "amnesia" in protections.values() else (Trimming(),)  # It keeps nothing.
    world = World(
        plan.nodes,
        dict(plan.sources),
        seed=seed,
        faults=faults,
        conditions=Conditions(skew=has_skew),
        checkers=(gaps, Fencing(), Kept(), *kept),
    )
    result = world.run()
    (tuples,) = result.rows.values()
    assert [tuple_id for tuple_id, _, _ in tuples] == list(range(len(tuples)))
    return Run(
        [_members(*values[-2:]) for _, _, values in tuples],
        result.failures,
        result.reached,
        gaps.found,
        3 + ROWS * (3_000 * limits.ack_interval_ms + 100_000) // SPAN_US,
        flow,
        plan,
    )


def _protection(given: str | UnitProtection) -> UnitProtection:
    return PROTECTIONS[given] if isinstance(given, str) else given


def _digit(i: int) -> int:
    return 1 << (_DIGIT_BITS * i) if 0 <= i < _DIGITS else 0


def _members(low: int, high: int) -> Counter[int]:
    """The input rows that a row of the sink was made of; each at most three times."""
    digits = low | high << (_DIGIT_BITS * _DIGITS)
    mask = (1 << _DIGIT_BITS) - 1
    return Counter({i: n for i in range(ROWS) if (n := digits >> (_DIGIT_BITS * i) & mask)})


@cache
def clean(seed: int, made: Callable[[Stream], Stream]) -> list[Counter[int]]:
    """What comes out when nothing fails."""
    return run(seed, made, {}).rows


def total(rows: list[Counter[int]]) -> Counter[int]:
    """How often each input row has taken effect."""
    return sum(rows, Counter())


def is_part(part: Counter[int], whole: Counter[int]) -> bool:
    return all(whole[i] >= n for i, n in part.items())


def runs_of(ids: list[int]) -> int:
    """How many runs of consecutive ids."""
    return sum(i == 0 or ids[i - 1] + 1 != ids[i] for i in range(len(ids)))


def lost_from(rows: list[Counter[int]]) -> list[int]:
    there = total(rows)
    return [i for i in range(ROWS) if not there[i]]


@pytest.mark.parametrize("approach", PRECISE)
@pytest.mark.parametrize("kind", ["repeatable", "convergent-capable", "deterministic"])
def test_precise_recovery_is_the_run_without_failure(kind: str, approach: str) -> None:
    failures = 0
    for seed in SEEDS:
        found = run(seed, CLASSES[kind], {"op": approach}, "op")
        assert found.rows == clean(seed, CLASSES[kind])
        failures += found.failures
    assert failures > len(SEEDS) // 2


@pytest.mark.parametrize("approach", PRECISE)
def test_precise_recovery_of_an_arbitrary_unit_is_a_run_without_failure(approach: str) -> None:
    """No two runs are the same; but each row of the input takes effect once, and only once."""
    failures = 0
    for seed in SEEDS:
        found = run(seed, CLASSES["arbitrary"], {"op": approach}, "op", "after")
        assert total(found.rows) == Counter(range(ROWS))
        failures += found.failures
    assert failures > len(SEEDS) // 2


@pytest.mark.parametrize("approach", PRECISE)
def test_precise_recovery_of_a_sample_is_a_sample(approach: str) -> None:
    """What was drawn stays drawn: no row comes twice, and about half of them come."""
    for seed in SEEDS:
        found = run(seed, _sample, {"op": approach}, "op", "after")
        assert max(total(found.rows).values()) == 1
        assert ROWS // 5 < len(found.rows) < ROWS - ROWS // 5


@pytest.mark.parametrize("approach", ROLLBACK)
@pytest.mark.parametrize("kind", ["repeatable", "convergent-capable", "deterministic"])
def test_rollback_by_a_standby_of_what_is_deterministic_is_given_as_precise_and_that_is_said(
    kind: str, approach: str
) -> None:
    """The paper's is repeating; receivers drop by id what is the same. [HA Table 2, §6]"""
    for seed in SEEDS:
        found = run(seed, CLASSES[kind], {"op": ROLLBACK[approach]}, "op")
        _require_raised_and_said(found.plan, found.explained)
        assert found.rows == clean(seed, CLASSES[kind])


def _require_raised_and_said(plan: Plan, text: str) -> None:
    """Rollback was asked for unit `op`; precise is given, and users are told so."""
    (given,) = {node.guarantee for node in plan.nodes if node.unit == "op"}
    assert given is Guarantee.PRECISE
    begin = "unit 'op' is recovered with guarantee 'precise', though 'rollback' was asked for: "
    said = [note for note in plan.notes if note.startswith(begin)]
    assert len(said) == 1
    assert "it depends on its input alone" in said[0]
    assert said[0] in text.splitlines()


def _as_asked(plan: Plan) -> Plan:
    """What a planner that raises no guarantee makes of rollback for unit `op`."""
    return replace(_as_asked_unlike_said(plan), raised=())


def _as_asked_unlike_said(plan: Plan) -> Plan:
    nodes = (
        replace(node, guarantee=Guarantee.ROLLBACK) if node.unit == "op" else node
        for node in plan.nodes
    )
    return replace(plan, nodes=tuple(nodes))


def _in_silence(plan: Plan) -> Plan:
    return replace(plan, raised=())


@pytest.mark.parametrize("approach", ROLLBACK)
def test_what_is_given_as_precise_is_not_what_was_asked_for(approach: str) -> None:
    """Ids hide nothing then: to whom rollback is given as it was asked for, tuples come twice."""
    repeated = 0
    for seed in SEEDS:
        found = run(seed, _filter, {"op": ROLLBACK[approach]}, "op", mutated=_as_asked)
        seen = list(dict.fromkeys(tuple(row) for row in found.rows))
        assert seen == [tuple(row) for row in clean(seed, _filter)]
        repeated += len(found.rows) > len(seen)
    assert repeated


@pytest.mark.parametrize("mutated", [_as_asked, _as_asked_unlike_said, _in_silence])
@pytest.mark.parametrize("approach", ROLLBACK)
def test_a_planner_that_raises_no_guarantee_or_does_not_say_so_is_found_out(
    approach: str, mutated: Callable[[Plan], Plan]
) -> None:
    found = run(0, _filter, {"op": ROLLBACK[approach]}, "op", mutated=mutated)
    with pytest.raises(AssertionError):
        _require_raised_and_said(found.plan, found.explained)


@pytest.mark.parametrize(
    "asked", ["rollback", "passive standby", "active standby", "upstream backup", "amnesia"]
)
def test_what_is_given_as_it_was_asked_for_is_no_news(asked: str) -> None:
    found = run(0, _filter, {"op": asked}, "op")
    (given,) = {node.guarantee for node in found.plan.nodes if node.unit == "op"}
    assert given is PROTECTIONS[asked].guarantee
    assert not found.plan.notes
    assert "== Notes ==" not in found.explained


def test_rollback_by_a_passive_standby_of_an_arbitrary_unit_is_divergent() -> None:
    doubled = 0
    for seed in SEEDS:
        rare = replace(ROLLBACK["passive standby"], delta_interval_ms=150)
        found = run(seed, _windows_of_the_clock, {"op": rare}, "op").rows
        assert not lost_from(found)
        assert all(runs_of(sorted(row)) == 1 for row in found)
        doubled += max(total(found).values()) > 1
    assert doubled


def test_rollback_by_an_active_standby_of_an_arbitrary_unit_is_divergent() -> None:
    doubled = promoted = 0
    for seed in SEEDS:
        found = run(seed, _windows_of_the_clock, {"op": ROLLBACK["active standby"]}, "op")
        assert not lost_from(found.rows)
        assert all(runs_of(sorted(row)) == 1 for row in found.rows)
        doubled += max(total(found.rows).values()) > 1
        promoted += found.reached.get("secondary promoted", 0)
    assert doubled
    assert promoted > len(SEEDS) // 2


def test_a_secondary_draws_a_sample_of_its_own() -> None:
    """A receiver knows by their times which rows it has had the choice of."""
    promoted = 0
    for seed in SEEDS:
        found = run(seed, _sample, {"op": ROLLBACK["active standby"]}, "op")
        assert all(len(row) == 1 for row in found.rows)
        assert ROWS // 5 < len(total(found.rows)) < ROWS - ROWS // 5
        promoted += found.reached.get("secondary promoted", 0)
    assert promoted > len(SEEDS) // 2


@pytest.mark.parametrize(
    "protection", ["rollback", ROLLBACK["active standby"]], ids=["upstream backup", "active"]
)
def test_nothing_is_lost_where_the_clock_is_another_one(protection: str | UnitProtection) -> None:
    """What a slower clock puts out is older than what receivers were promised."""
    for seed in SEEDS:
        found = run(
            seed, _windows_of_the_clock, {"op": protection}, "op", "after", has_skew=True
        ).rows
        assert not lost_from(found)


@pytest.mark.parametrize("kind", COMPLETE)
def test_a_secondary_numbers_as_its_primary_does_behind_a_rebased_stream(kind: str) -> None:
    """1. All start anew; the source puts out other tuples than before. 2. The primary takes them
    for new ones, and numbers its output anew. 3. Its secondary, which was replaying in silence,
    numbers as before, and is promoted.
    """
    promoted = 0
    for seed in range(3 * len(SEEDS)):
        protections: dict[str, str | UnitProtection] = {"src": "rollback", "op": "active standby"}
        found = run(seed, CLASSES[kind], protections, "driver", "op")
        assert not lost_from(found.rows)
        promoted += found.reached.get("secondary promoted", 0)
    assert promoted


def test_upstream_backup_of_a_sample_draws_again() -> None:
    doubled = 0
    for seed in SEEDS:
        found = run(seed, _sample, {"op": "rollback"}, "op").rows
        assert all(len(row) == 1 for row in found)
        doubled += max(total(found).values()) > 1
    assert doubled


def test_upstream_backup_of_a_repeatable_unit_is_repeating() -> None:
    """Without what has been put out before, it is the run without failure."""
    repeated = 0
    for seed in SEEDS:
        found = run(seed, _filter, {"op": "rollback"}, "op").rows
        seen = list(dict.fromkeys(tuple(row) for row in found))
        assert seen == [tuple(row) for row in clean(seed, _filter)]
        repeated += len(found) > len(seen)
    assert repeated, "it never repeats anything: a stronger claim would hold"


def test_upstream_backup_of_a_convergent_capable_unit_is_convergent() -> None:
    """All results come; what comes beside is one of them again, or made of a part of its window."""
    differs = 0
    for seed in SEEDS:
        found = run(seed, _windows, {"op": "rollback"}, "op", "after", at_once=True).rows
        expected = clean(seed, _windows)
        assert all(row in found for row in expected)
        assert all(any(is_part(row, whole) for whole in expected) for row in found)
        differs += found != expected
    assert differs


def test_upstream_backup_of_a_deterministic_unit_is_divergent() -> None:
    """Nothing is lost, and every result is that of a window somewhere in the input."""
    differs = 0
    for seed in SEEDS:
        made = _windows_of_the_first
        found = run(seed, made, {"op": "rollback"}, "op", "after", at_once=True).rows
        assert not lost_from(found)
        assert all(runs_of(sorted(row)) == 1 for row in found)
        differs += found != clean(seed, made)
    assert differs


def test_upstream_backup_of_an_arbitrary_unit_is_divergent() -> None:
    doubled = 0
    for seed in SEEDS:
        found = run(seed, _windows_of_the_clock, {"op": "rollback"}, "op").rows
        assert not lost_from(found)
        assert all(runs_of(sorted(row)) == 1 for row in found)
        doubled += max(total(found).values()) > 1
    assert doubled


@pytest.mark.parametrize("kind", CLASSES)
def test_amnesia_is_gap_recovery(kind: str) -> None:
    """What is missing was one run of the input; nothing comes twice; all of it is reported.

    The number of lost tuples goes by the state, the detection and the rates [HA §4]. Reported is
    what came since the last restart point, so that up to one interval too much is; or, where
    windows begin with the first tuple, all: their place depends on it.
    """
    known = 0
    for seed in SEEDS:
        found = run(seed, CLASSES[kind], {"op": "amnesia"}, "op")
        assert max(total(found.rows).values()) == 1
        ((_, from_id, to_id),) = found.gaps
        known += from_id > 0
        if kind in COMPLETE:
            lost = lost_from(found.rows)
            assert runs_of(lost) == 1
            assert from_id <= lost[0] < lost[-1] + 1 == to_id
            assert not from_id or lost[0] - from_id <= found.between_points
    assert known > len(SEEDS) // 2 or kind == "deterministic"


def test_amnesia_of_a_source_unit_is_reported_too() -> None:
    known = 0
    for seed in SEEDS:
        found = run(seed, _filter, {"src": "amnesia"}, "src")
        lost = lost_from(found.rows)
        ((_, from_id, to_id),) = found.gaps
        assert from_id <= lost[0] < lost[-1] + 1 == to_id
        assert not from_id or lost[0] - from_id <= found.between_points
        known += from_id > 0
    assert known > len(SEEDS) // 2


TOGETHER: list[tuple[dict[str, str | UnitProtection], tuple[str, ...], int]] = [
    ({"op": "rollback", "after": "rollback"}, ("op", "after"), 0),
    ({"op": "rollback"}, ("op", "op", "after"), 2_000),
    ({"src": "rollback", "op": "rollback", "after": "rollback"}, ("op", "after", "src"), 2_000),
    ({"op": "rollback", "after": "active standby"}, ("op", "after"), 300),
    ({"op": "rollback", "after": "passive standby"}, ("op", "after"), 300),
    ({"op": "rollback", "after": "checkpoints"}, ("op", "after"), 300),
    ({"src": "rollback", "op": "active standby"}, ("src", "op"), 300),
    ({"src": "rollback", "op": ROLLBACK["active standby"]}, ("src", "op"), 300),
    ({"op": ROLLBACK["active standby"], "after": "active standby"}, ("op", "after"), 300),
    ({"op": ROLLBACK["active standby"], "after": "rollback"}, ("op", "op", "after"), 2_000),
    ({"src": "rollback", "op": "passive standby"}, ("src", "op"), 300),
    ({"src": "rollback", "op": "checkpoints"}, ("src", "op"), 0),
    ({"src": "rollback", "op": "upstream backup"}, ("src", "op"), 0),
]
"""Protections, the units that fail, and the disorder of the input, microseconds."""


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize(("protections", "killed", "disorder_us"), TOGETHER)
def test_rollback_loses_nothing_whatever_fails_beside(
    protections: dict[str, str | UnitProtection],
    killed: tuple[str, ...],
    disorder_us: int,
    at_once: bool,
) -> None:
    for seed in range(2):
        for made in COMPLETE.values():
            found = run(seed, made, protections, *killed, disorder_us=disorder_us, at_once=at_once)
            assert not lost_from(found.rows)


@pytest.mark.parametrize(
    ("protections", "killed"),
    [
        ({"src": "amnesia"}, ("src",)),
        ({"src": "amnesia", "op": "amnesia", "after": "amnesia"}, ("src", "op", "after")),
        ({"op": "amnesia"}, ("op", "after")),
        ({"op": "amnesia", "after": "active standby"}, ("op", "after")),
        ({"op": "amnesia", "after": "passive standby"}, ("op", "after")),
        ({"src": "amnesia", "op": "checkpoints"}, ("src", "op")),
        ({"src": "amnesia", "op": "upstream backup"}, ("src", "op")),
        ({"src": "amnesia", "op": "active standby"}, ("src", "op")),
    ],
)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
def test_amnesia_loses_a_run_per_failure_whatever_fails_beside(
    protections: dict[str, str], killed: tuple[str, ...], at_once: bool
) -> None:
    for seed in range(2):
        for made in COMPLETE.values():
            found = run(seed, made, protections, *killed, at_once=at_once)
            lost = lost_from(found.rows)
            assert max(total(found.rows).values()) == 1
            assert 1 <= runs_of(lost) <= len(killed)
            assert found.gaps
            if made is _filter:
                assert sum(to_id - from_id for _, from_id, to_id in found.gaps) >= len(lost)
