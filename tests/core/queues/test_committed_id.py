"""Which committed offsets of a sink are believed."""

import pytest

from holdfast.core.model.ids import Incarnation
from holdfast.core.queues.committed_id import (
    Foreign,
    GoOn,
    Lost,
    Superseded,
    metadata_of,
    next_of,
)

ME = "holdfast-00ff-out[0]"


def found(
    offset: int, metadata: str, *, has_written: bool = True
) -> GoOn | Superseded | Lost | Foreign:
    return next_of(offset, metadata, writer=ME, incarnation=Incarnation(5), has_written=has_written)


def test_what_this_sink_has_committed_is_believed() -> None:
    for former in (1, 4, 5):
        assert found(17, metadata_of(ME, Incarnation(former))) == GoOn(17)
    assert found(17, metadata_of(ME, Incarnation(6))) == Superseded(Incarnation(6))
    assert found(17, metadata_of(ME, Incarnation(5)), has_written=False) == GoOn(17)


def test_without_an_offset_a_sink_begins_unless_it_has_written() -> None:
    assert found(-1001, "", has_written=False) == GoOn(0)
    assert found(-1001, "") == Lost()


@pytest.mark.parametrize(
    "metadata",
    [
        *("", "0", "5", "incarnation", "incarnation ", "incarnation -1", "incarnation x"),
        *(f"{ME}", f"{ME} 5", f"{ME} incarnation 5 ", f" {ME} incarnation 5", "{}"),
        *("holdfast-1234-out[0] incarnation 5", f"incarnation 5 {ME}", "Incarnation 5"),
        *(f"{ME} incarnation {10**20}", f"{ME}\nincarnation 5"),
    ],
)
@pytest.mark.parametrize("has_written", [True, False])
def test_what_anybody_else_has_committed_is_not(metadata: str, has_written: bool) -> None:
    assert found(17, metadata, has_written=has_written) == Foreign()


def test_an_incarnation_without_a_name_is_believed_where_the_location_has_written() -> None:
    assert found(17, "incarnation 4") == GoOn(17)
    assert found(17, "incarnation 6") == Superseded(Incarnation(6))
    assert found(17, "incarnation 4", has_written=False) == Foreign()
