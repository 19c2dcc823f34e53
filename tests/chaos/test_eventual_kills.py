"""Slow and fast windows survive what they are struck with; damage is what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.sim.draw import Draw
from holdfast_chaos.eventual_kills import DAMAGES, KINDS, Outcome, Run, harm


@pytest.mark.slow
def test_kills_of_nodes_and_driver_and_a_zombie_leave_each_result_once(tmp_path: Path) -> None:
    outcome = Run(5, tmp_path, kinds=tuple(KINDS)).execute(len(KINDS), damage="")
    assert outcome.kills == dict.fromkeys(KINDS, 1)
    assert outcome.drivers == 2
    assert not outcome.violations


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flip"])  # The simulator draws all of them.
def test_after_damage_the_results_are_right_or_it_is_named(tmp_path: Path, damage: str) -> None:
    """The node that wrote the log is killed, so that another one reads it."""
    outcome = Run(7, tmp_path, kinds=("node", "zombie")).execute(2, damage=damage)
    assert outcome.damage == damage
    assert not outcome.violations


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_changes_one_segment(tmp_path: Path, damage: str) -> None:
    segments = [tmp_path / f"{number}.seg" for number in range(3)]
    whole = bytes(range(200))
    for segment in segments:
        segment.write_bytes(whole)
    harm(damage, segments, Draw("harm"))
    left = [segment.read_bytes() if segment.exists() else None for segment in segments]
    (changed,) = [data for data in left if data != whole]
    if damage == "lose":
        assert changed is None
    elif damage == "tear":
        assert left[:2] == [whole, whole], "an older segment is whole, or lost"
        assert changed == whole[: len(changed or b"")]
    else:
        assert changed is not None
        assert sum((a ^ b).bit_count() for a, b in zip(changed, whole, strict=True)) == 1


@pytest.mark.parametrize("has_more", [True, False])
def test_nobody_waits_for_more_rows_where_all_have_come(has_more: bool) -> None:
    run = Run.__new__(Run)
    seen: list[bool] = []
    driver = SimpleNamespace(told={"rows": 500}, wait=lambda is_so, what: seen.append(is_so()))
    run._driver = driver  # type: ignore[assignment]
    run._feed = SimpleNamespace(has_more=has_more)  # type: ignore[assignment]
    run._wait_for_more_rows()
    driver.wait = lambda is_so, what: (driver.told.update(rows=501), seen.append(is_so()))
    run._wait_for_more_rows()
    assert seen == [not has_more, True]


def judged(damage: str, error: str, *differences: str) -> Outcome:
    """Of a query that has ended so."""
    run = Run.__new__(Run)
    run.outcome = Outcome(0, (), damage=damage)
    verdict = {"error": error, "differences": list(differences), "recoveries": 0}
    run._driver = SimpleNamespace(verdict=verdict)  # type: ignore[assignment]
    run._judge()
    return run.outcome


@pytest.mark.parametrize(
    ("made", "violations"),
    [
        (lambda: judged("", ""), []),
        (lambda: judged("flip", "StreamLogCorrupt: /x"), []),
        (lambda: judged("flip", ""), []),
        (lambda: judged("flip", "KeyError: 3"), ["I-LIVE: KeyError: 3"]),
        (lambda: judged("", "StreamLogCorrupt: /x"), ["I-LIVE: StreamLogCorrupt: /x"]),
        (lambda: judged("flip", "", "slow: 1 lost"), ["I-PRECISE: slow: 1 lost"]),
    ],
)
def test_only_an_error_that_names_the_damage_is_let_pass(
    made: Callable[[], Outcome], violations: list[str]
) -> None:
    assert made().violations == violations


def test_a_node_that_is_seen_is_struck_though_it_is_gone_a_moment_later() -> None:
    """1. A node is there. 2. It dies of the strike before. 3. There is none to draw from."""
    told = iter([{}, {"slow[0]": 1 << 30}, {}])
    run = Run.__new__(Run)
    run._draw = Draw("seen")

    class Driver:
        """Tells other nodes whenever it is asked."""

        @property
        def told(self) -> dict[str, object]:
            return {"nodes": next(told)}

        def wait(self, is_so: Callable[[], object], _: str) -> bool:
            while not is_so():
                pass
            return True

    run._driver = Driver()  # type: ignore[assignment]
    assert not run._strike("node"), "there is no such process"
    assert next(told) == {}
