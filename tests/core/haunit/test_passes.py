"""What a replica that runs passes knows of those before it."""

import numpy as np
import pytest

from holdfast.core.errors import InvariantViolation
from holdfast.core.haunit.passes import Pass, Passes, PassStart
from holdfast.core.model.ids import NO_ID

FIRST = PassStart(1, (0,))


def test_the_clock_does_not_move_back_behind_a_pass_that_was_read_later() -> None:
    """1. A secondary begins behind a pass. 2. It reads that one. 3. It is promoted."""
    passes = Passes(FIRST, (), replayed_from=FIRST)
    passes.add((Pass(0, 7_000, 1, 10, (5,)),))
    assert passes.recorded is None
    assert passes.decide(3_000, 2, 20, (9,)).clock_us == 7_000


def test_a_pass_that_is_not_due_yet_does_not_set_the_clock() -> None:
    passes = Passes(FIRST, (), replayed_from=FIRST)
    passes.add((Pass(0, 100, 1, 10, (5,)), Pass(1, 7_000, 1, 10, (6,))))
    assert passes.clock_us == 100
    assert passes.recorded is not None
    passes.begun(passes.recorded)
    assert passes.decide(3_000, 2, 20, (9,)).clock_us == 7_000


def test_who_goes_on_from_a_copy_of_the_state_needs_the_passes_that_made_it() -> None:
    """They are those behind the durable restart point; what comes before them is for the clock."""
    recorded = tuple(Pass(n, 100 * n, 1, 10, (10 * n, n)) for n in range(2, 8))
    passes = Passes(PassStart(6, (50, 5)), recorded, replayed_from=PassStart(3, (20, 2)))
    assert passes.recorded == recorded[4]
    assert passes.needed_from(np.array([25, NO_ID])) == PassStart(3, (20, 2))
    assert passes.needed_from(np.array([35, NO_ID])) == PassStart(4, (30, 3))
    assert passes.needed_from(np.array([NO_ID, 4])) == PassStart(5, (40, 4))
    assert passes.needed_from(np.array([NO_ID, NO_ID])) == PassStart(6, (50, 5))


def test_what_is_not_run_again_is_not_kept() -> None:
    passes = Passes(FIRST, (), replayed_from=None)
    for _ in range(100):
        passes.begun(passes.decide(0, 1, 10, (passes.next_number,)))
    assert passes.needed_from(np.array([3])) == PassStart(101, (100,))
    assert not passes._run


def test_it_is_known_how_far_recorded_passes_take() -> None:
    passes = Passes(FIRST, (), replayed_from=FIRST)
    assert passes.decided_before == (0,)
    passes.add((Pass(1, 100, 1, 10, (5,)), Pass(2, 200, 1, 10, (40,))))
    assert passes.decided_before == (40,)
    passes.skip_recorded()
    assert passes.decided_before == (0,), "what was decided for another stream does not hold"


def test_passes_that_do_not_follow_one_another_are_a_defect() -> None:
    passes = Passes(FIRST, (), replayed_from=FIRST)
    passes.add((Pass(1, 100, 1, 10, (5,)), Pass(2, 200, 1, 10, (40,))))
    passes.check_invariants()
    passes.begun(Pass(1, 100, 1, 10, (5,)))
    passes.check_invariants()
    passes.add((Pass(4, 400, 1, 10, (50,)),))
    with pytest.raises(InvariantViolation, match="pass 4 is recorded, 3 comes next"):
        passes.check_invariants()


def test_a_pass_that_is_run_twice_is_a_defect() -> None:
    passes = Passes(FIRST, (), replayed_from=FIRST)
    passes.begun(Pass(1, 100, 1, 10, (5,)))
    passes.begun(Pass(1, 100, 1, 10, (5,)))
    with pytest.raises(InvariantViolation, match=r"passes \[1, 1\] were run"):
        passes.check_invariants()
