"""SUnion: one order, whatever the arrival and however the streams are cut. [DPC "SUnion"]"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import RemoteProtocolError
from holdfast.core.model.ids import END_US, NO_ID
from holdfast.core.model.tuples import TIME_COLUMN, TupleBatch
from holdfast.core.replication import sunion as module
from holdfast.core.replication.sunion import Release, SUnion


def tuples(stream: int, first_id: int, times: list[int]) -> TupleBatch:
    tags = [stream * 1000 + first_id + i for i in range(len(times))]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(tags, pa.int64()), pa.array(times, pa.int64())], names=["tag", TIME_COLUMN]
    )
    return TupleBatch(first_id, batch, 0)


def released(sunion: SUnion, boundary_us: int, ports: int = 1) -> list[list[int]]:
    release = sunion.release(boundary_us)
    return [
        [] if port is None else port.batch.column(0).to_pylist() for port in release.ports[:ports]
    ]


def tags(release: Release) -> list[int]:
    (port,) = release.ports
    return [] if port is None else port.batch.column(0).to_pylist()


def test_sunion_holds_tuples_until_every_stream_passed_their_time() -> None:
    sunion = SUnion([0, 0], 1)
    sunion.add(0, tuples(0, 0, [1, 5, 9]))
    sunion.add(1, tuples(1, 0, [2, 5]))
    assert released(sunion, 5) == [[0, 1000]]
    assert released(sunion, 6) == [[1, 1001]]
    assert sunion.oldest_held().tolist() == [2, NO_ID]


def test_a_tuple_older_than_a_boundary_acted_on_is_refused() -> None:
    sunion = SUnion([0, 0], 1)
    sunion.release(10)
    with pytest.raises(RemoteProtocolError, match="older"):
        sunion.add(0, tuples(0, 0, [9]))


def test_ports_share_one_numbering() -> None:
    sunion = SUnion([0, 1], 2)
    sunion.add(0, tuples(0, 0, [1, 3]))
    sunion.add(1, tuples(1, 0, [2, 4]))
    release = sunion.release(10)
    assert [port.order.tolist() for port in release.ports if port is not None] == [[0, 2], [1, 3]]


@settings(max_examples=150)
@given(
    st.lists(st.lists(st.integers(0, 30), max_size=12), min_size=2, max_size=3),
    st.lists(st.integers(0, 31), max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_order_does_not_depend_on_passes_or_arrival(
    streams: list[list[int]], boundaries: list[int], chance: object
) -> None:
    expected = sorted(
        (time, stream, i) for stream, times in enumerate(streams) for i, time in enumerate(times)
    )
    sunion = SUnion([0] * len(streams), 1)
    for stream, times in enumerate(streams):
        cut = len(times) // 2
        sunion.add(stream, tuples(stream, 0, times[:cut]))
        sunion.add(stream, tuples(stream, cut, times[cut:]))
    got: list[int] = []
    for boundary in [*sorted(boundaries), END_US]:
        got += released(sunion, boundary)[0]
    assert got == [stream * 1000 + i for _, stream, i in expected]
    assert not np.any(sunion.oldest_held() != NO_ID)


def test_what_is_released_as_tentative_comes_again_with_what_was_late_for_it() -> None:
    sunion = SUnion([0, 0], 1)
    sunion.add(0, tuples(0, 0, [1, 5, 9]))
    sunion.hold_cut()
    assert tags(sunion.release_tentative(6)) == [0, 1]
    sunion.add(1, tuples(1, 0, [4, 7]))
    assert tags(sunion.release_tentative(10)) == [1001, 2]
    assert sunion.held_tuples == [3, 2]
    sunion.go_back()
    assert released(sunion, 10) == [[0, 1000, 1, 1001, 2]]
    assert sunion.held_tuples == [0, 0]


def test_tentative_tuples_are_never_released_as_stable_and_not_once_undone() -> None:
    sunion = SUnion([0, 0], 1)
    sunion.add_tentative(0, tuples(0, 0, [1, 5, 9]), 0)
    sunion.hold_cut()
    assert tags(sunion.release_tentative(4)) == [0]
    sunion.undo(0)
    sunion.add(1, tuples(1, 0, [6]))
    assert tags(sunion.release_tentative(10)) == [1000]
    sunion.add_tentative(0, tuples(0, 0, [8, 11]), 0)
    assert tags(sunion.release_tentative(12)) == [1]
    sunion.go_back()
    assert released(sunion, 20) == [[1000]]


def test_a_part_of_the_way_is_about_so_many_tuples_and_one_time_at_least() -> None:
    sunion = SUnion([0, 0], 1)
    sunion.add(0, tuples(0, 0, [1, 2, 2, 2, 3, 9]))
    sunion.add(1, tuples(1, 0, [2, 4]))
    assert sunion.boundary_for(1, 10) == 2
    assert sunion.boundary_for(4, 10) == 3
    assert sunion.boundary_for(100, 7) == 7
    sunion.release(2)
    assert sunion.boundary_for(1, 10) == 3
    assert sunion.boundary_for(1, 2) == 2


@pytest.mark.parametrize("late", [0, 15])
def test_a_correction_looks_at_each_piece_about_once(
    late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many have come; unless one is older than another one before it."""
    looked = 0

    def split(piece: Any, boundary_us: int) -> Any:
        nonlocal looked
        looked += 1
        return original(piece, boundary_us)

    original = module._split
    sunion = SUnion([0, 0], 1)
    sunion.hold_cut()
    for number in range(200):
        for stream in (0, 1):
            at_us = 10 * number - (late if number == 100 else 0)
            sunion.add(stream, tuples(stream, 2 * number, [at_us, at_us + 9]))
    sunion.release_tentative(2_000)
    sunion.go_back()
    monkeypatch.setattr(module, "_split", split)
    boundary_us, times = 0, []
    while boundary_us < 2_000:
        boundary_us = sunion.boundary_for(4, 2_000)
        port = sunion.release(boundary_us).ports[0]
        times += [] if port is None else port.time_us.tolist()
    assert times == sorted(times)
    assert len(times) == 800
    assert (looked < 1_500) == (late == 0)
