"""Where a data node comes up: where its chunks are, as long as they are needed from there."""

from holdfast.core.chunks.homes import Destination, destination


def test_a_data_node_goes_home_and_nowhere_else_while_chunks_are_out_of_reach() -> None:
    found = destination(["m0", "m3"], ["m3", "m0"], must_find_home=True)
    assert found == Destination("m0", is_binding=True)


def test_it_waits_for_its_first_home_only_if_it_must() -> None:
    assert destination(["m0", "m3"], ["m3", "m1"], must_find_home=True) is None
    assert destination(["m0", "m3"], ["m3", "m1"], must_find_home=False) == Destination("m3")
    assert destination(["m0"], ["m1"], must_find_home=False) == Destination()


def test_a_data_node_without_a_home_goes_anywhere() -> None:
    assert destination([], ["m0"], must_find_home=True) == Destination()
