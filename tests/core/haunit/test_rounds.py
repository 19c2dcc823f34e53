"""What a replica that runs rounds knows of those before it."""

import numpy as np

from holdfast.core.haunit.rounds import Round, Rounds, RoundStart
from holdfast.core.model.ids import NO_ID

FIRST = RoundStart(1, (0,))


def test_the_clock_does_not_move_back_behind_a_round_that_was_read_later() -> None:
    """1. A secondary begins behind a round. 2. It reads that one. 3. It is promoted."""
    rounds = Rounds(FIRST, (), replayed_from=FIRST)
    rounds.add((Round(0, 7_000, 1, 10, (5,)),))
    assert rounds.recorded is None
    assert rounds.decide(3_000, 2, 20, (9,)).clock_us == 7_000


def test_a_round_that_is_not_due_yet_does_not_set_the_clock() -> None:
    rounds = Rounds(FIRST, (), replayed_from=FIRST)
    rounds.add((Round(0, 100, 1, 10, (5,)), Round(1, 7_000, 1, 10, (6,))))
    assert rounds.clock_us == 100
    assert rounds.recorded is not None
    rounds.begun(rounds.recorded)
    assert rounds.decide(3_000, 2, 20, (9,)).clock_us == 7_000


def test_who_goes_on_from_a_copy_of_the_state_needs_the_rounds_that_made_it() -> None:
    """They are those behind the durable restart point; what comes before them is for the clock."""
    recorded = tuple(Round(n, 100 * n, 1, 10, (10 * n, n)) for n in range(2, 8))
    rounds = Rounds(RoundStart(6, (50, 5)), recorded, replayed_from=RoundStart(3, (20, 2)))
    assert rounds.recorded == recorded[4]
    assert rounds.needed_from(np.array([25, NO_ID])) == RoundStart(3, (20, 2))
    assert rounds.needed_from(np.array([35, NO_ID])) == RoundStart(4, (30, 3))
    assert rounds.needed_from(np.array([NO_ID, 4])) == RoundStart(5, (40, 4))
    assert rounds.needed_from(np.array([NO_ID, NO_ID])) == RoundStart(6, (50, 5))


def test_what_is_not_run_again_is_not_kept() -> None:
    rounds = Rounds(FIRST, (), replayed_from=None)
    for _ in range(100):
        rounds.begun(rounds.decide(0, 1, 10, (rounds.next_number,)))
    assert rounds.needed_from(np.array([3])) == RoundStart(101, (100,))
    assert not rounds._run


def test_it_is_known_how_far_recorded_rounds_take() -> None:
    rounds = Rounds(FIRST, (), replayed_from=FIRST)
    assert rounds.decided_before == (0,)
    rounds.add((Round(1, 100, 1, 10, (5,)), Round(2, 200, 1, 10, (40,))))
    assert rounds.decided_before == (40,)
    rounds.skip_recorded()
    assert rounds.decided_before == (0,), "what was decided for another stream does not hold"
