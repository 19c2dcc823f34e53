"""Lives of the driver that overlap: what one that was replaced says changes nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow
from holdfast.core.haunit.plan import NodeLimits, UnitProtection
from holdfast.planning.plan import plan_dataflow
from holdfast.sim.checkers import Checker, Violation
from holdfast.sim.driver import Life
from holdfast.sim.workload.base import Recording
from holdfast.sim.world import World

DAMAGED = "out[0] has no checkpoint that can be read"


class _Hears(Checker):
    """What checkers are told of failures of the query."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def failed(self, reason: str) -> None:
        self.failures.append(reason)


def _two_lives() -> tuple[World, _Hears, Life, Life]:
    """A world whose driver was taken for dead, and works on beside the one that replaced it."""
    flow = Dataflow("t")
    rows = Recording(pa.schema([("k", pa.int64())]), 0, ((),), ((),))
    flow.source_generator(rows, name="src").sink("out")
    plan = plan_dataflow(
        flow, "", parallelism=1, limits=NodeLimits(), protection=lambda _: UnitProtection()
    )
    hears = _Hears()
    world = World(plan.nodes, dict(plan.sources), seed=1, checkers=(hears,))
    lives = []
    for _ in range(2):
        world.begin_life()
        assert world.life is not None
        lives.append(world.life)
    return world, hears, lives[0], lives[1]


def test_a_replaced_driver_that_fails_ends_alone_and_the_query_goes_on() -> None:
    world, hears, replaced, leads = _two_lives()
    world.failed(replaced, DAMAGED)
    assert replaced.is_over
    assert not leads.is_over
    assert world.life is leads
    assert not hears.failures


def test_the_query_fails_with_the_driver_that_leads() -> None:
    world, hears, replaced, leads = _two_lives()
    with pytest.raises(Violation, match="I-LIVE"):  # Nothing was damaged.
        world.failed(leads, DAMAGED)
    assert hears.failures == [DAMAGED]
    assert not replaced.is_over
