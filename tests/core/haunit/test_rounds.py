"""What a replica that runs rounds knows of those before it."""

from holdfast.core.haunit.rounds import Round, Rounds


def test_the_clock_does_not_move_back_behind_a_round_that_was_read_later() -> None:
    """1. A secondary begins behind a round. 2. It reads that one. 3. It is promoted."""
    rounds = Rounds(1, (0,), (), is_replayed=True)
    rounds.add((Round(0, 7_000, 1, 10, (5,)),))
    assert rounds.recorded is None
    assert rounds.decide(3_000, 2, 20, (9,)).clock_us == 7_000


def test_a_round_that_is_not_due_yet_does_not_set_the_clock() -> None:
    rounds = Rounds(1, (0,), (), is_replayed=True)
    rounds.add((Round(0, 100, 1, 10, (5,)), Round(1, 7_000, 1, 10, (6,))))
    assert rounds.clock_us == 100
    assert rounds.recorded is not None
    rounds.begun(rounds.recorded)
    assert rounds.decide(3_000, 2, 20, (9,)).clock_us == 7_000
