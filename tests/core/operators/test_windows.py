"""Which windows a tuple is in, against trying them all."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.operators.windows import WindowSpec

times = st.lists(
    st.one_of(st.integers(-60, 60), st.integers(-(10**6), 10**6)), min_size=1, max_size=60
)
shapes = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(lambda s: (max(s), min(s)))


@given(times, shapes, st.sampled_from([BEGINNING_US, 0, 7]))
@example([10**9, 0, 5], (2, 1), BEGINNING_US)  # More panes than 16 bits can number.
@example([40_000, 0, 70_000], (1, 1), BEGINNING_US)
@settings(max_examples=200)
def test_rows_are_in_the_windows_that_cover_them(
    rows: list[int], shape: tuple[int, int], earliest: int
) -> None:
    size, slide = shape
    covering: dict[int, list[int]] = {}
    for number, time_us in enumerate(rows):
        start = time_us // slide * slide
        while start + size > time_us:
            if start >= earliest:
                covering.setdefault(start, []).append(number)
            start -= slide
    found = WindowSpec(size, slide, earliest).assign(np.array(rows, dtype=np.int64))
    whole = list(range(len(rows)))
    plain = [(start, whole if some is None else some.tolist()) for start, some in found]
    assert plain == sorted(covering.items())
