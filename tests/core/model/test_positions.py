"""Positions are made once, unless they are many."""

import numpy as np

from holdfast.core.model.positions import positions


def test_those_of_a_single_large_release_are_not_kept() -> None:
    for count, is_kept in ((0, True), (1 << 16, True), (1 << 17, False)):
        one, other = positions(count), positions(count)
        assert one.tolist() == list(range(count))
        assert not one.flags.writeable
        assert (one.base is other.base is not None) is is_kept
        assert np.shares_memory(one, other) is (is_kept and count > 0)
