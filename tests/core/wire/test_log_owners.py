"""Whose tuples count in a log with several writers."""

from holdfast.core.model.ids import NO_ID, Incarnation
from holdfast.core.wire.log_owners import (
    Owner,
    Owners,
    Place,
    by_incarnation,
    chained,
    live_segments,
    owner_of,
    owners_of,
    read_in_vain,
    succeeded,
)


def place(incarnation: int, first_id: int) -> Place:
    return Incarnation(incarnation), first_id


def pairs(owners: Owners) -> list[tuple[int, int]]:
    return [(o.incarnation, o.first_id) for o in owners]


def test_a_log_of_before_belongs_to_later_incarnations_from_their_first_ids_on() -> None:
    owners = by_incarnation([place(1, 0), place(2, 50), place(3, 45), place(4, 40)])
    assert owners == (Owner(Incarnation(1), 0, 40), Owner(Incarnation(4), 40, NO_ID))
    assert owner_of(owners, 39) == owners[0]
    assert owner_of(owners, 40) == owners[1]
    assert owner_of(owners[1:], 39) is None
    several = by_incarnation([place(1, 0), place(1, 20), place(1, 30), place(2, 25)])
    assert pairs(several) == [(1, 0), (2, 25)]


def test_who_is_late_does_not_count_although_it_began_before() -> None:
    """1. 3 finds the end at 10 and stands still. 2. 4 begins at 15. 3. 3 begins at 10."""
    first = chained([place(1, 0)])
    said = {
        place(1, 0): first,
        place(4, 15): succeeded(first, Incarnation(4), 15),
        place(3, 10): succeeded(first, Incarnation(3), 10),
    }
    assert pairs(owners_of(said, said.get)) == [(1, 0), (4, 15)]
    assert pairs(owners_of([place(1, 0), place(3, 10)], said.get)) == [(1, 0), (3, 10)]


def test_who_has_not_begun_yet_says_nothing_and_a_log_of_before_is_read_up_to_its_successor() -> (
    None
):
    first = chained([place(1, 0)])
    said: dict[Place, Owners | None] = {place(1, 0): first, place(2, 10): None}
    assert owners_of(said, said.get) == first
    assert owners_of([], said.get) == ()
    before: dict[Place, Owners | None] = {place(1, 0): (), place(2, 10): ()}
    assert pairs(owners_of(before, before.get)) == [(1, 0), (2, 10)]
    after = before | {place(3, 20): succeeded(owners_of(before, before.get), Incarnation(3), 20)}
    assert pairs(owners_of(after, after.get)) == [(1, 0), (2, 10), (3, 20)]


def test_owners_without_a_tuple_are_not_named() -> None:
    owners = chained([place(1, 0), place(2, 10)])
    assert pairs(succeeded(owners, Incarnation(3), 10)) == [(1, 0), (3, 10)]
    assert pairs(succeeded(owners, Incarnation(3), 4)) == [(1, 0), (3, 4)]
    assert pairs(succeeded((), Incarnation(3), 7)) == [(3, 7)]


def test_segments_of_owners_count_up_to_the_next_one() -> None:
    owners = chained([place(1, 0), place(4, 15)])
    places = [place(1, 0), place(1, 8), place(1, 20), place(3, 10), place(4, 15), place(4, 30)]
    assert live_segments(places, owners) == {
        place(1, 0): 8,
        place(1, 8): 15,
        place(4, 15): 30,
        place(4, 30): NO_ID,
    }


def test_what_was_read_of_a_writer_that_does_not_own_it_is_found() -> None:
    owners = chained([place(1, 0), place(2, 10), place(4, 20)])
    assert read_in_vain([], 0, owners) is None
    assert read_in_vain([place(1, 0), place(2, 10)], 15, owners) is None
    assert read_in_vain([place(1, 3)], 10, owners) is None
    assert read_in_vain([place(1, 0)], 15, owners) == 10
    assert read_in_vain([place(1, 0), place(3, 8)], 12, owners) == 8
    assert read_in_vain([place(1, 0), place(2, 12), place(4, 20)], 25, owners) == 10


def test_an_owner_whose_segments_have_all_been_trimmed_takes_no_place() -> None:
    owners = chained([(Incarnation(1), 0), (Incarnation(2), 10)])
    assert live_segments([(Incarnation(2), 10)], owners) == {(Incarnation(2), 10): NO_ID}
    assert live_segments([], owners) == {}
    assert chained([]) == ()
