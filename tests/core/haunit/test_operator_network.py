"""The operators of a node: what goes back when a node does."""

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.haunit.operator_network import OperatorNetwork
from holdfast.core.haunit.plan import InputSpec, NodePlan, OperatorSpec, OutputSpec
from holdfast.core.model.ids import BEGINNING_US, END_US, NO_ID, NodeId, StreamId
from holdfast.core.operators.aggregate import WindowAggregate
from holdfast.core.operators.base import Rows
from holdfast.core.state import kernels
from holdfast.core.state.page_manager import PageManager

SCHEMA = pa.schema([("v", pa.int64())])
A, OUT = StreamId("a>n"), StreamId("n>c")
NOTHING_LOW = np.array([NO_ID])


def counts(pages: PageManager) -> WindowAggregate:
    return WindowAggregate("counts", SCHEMA, [], [("count", None, "n")], size_us=10, manager=pages)


def plan() -> NodePlan:
    schema = counts(PageManager()).output_schema
    output = OutputSpec(("operator", 0), schema, (OUT,), (NodeId("c"),))
    spec = OperatorSpec("counts", counts, (("port", 0),))
    source = InputSpec(A, 0, SCHEMA, NodeId("a"))
    return NodePlan(NodeId("n"), "n", 0, (source,), 1, (spec,), (output,))


def rows(times: list[int]) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(times, pa.int64())], schema=SCHEMA)
    return Rows(batch, np.array(times), np.arange(len(times)), 0)


def counted(
    network: OperatorNetwork,
    first_id: int,
    times: list[int],
    boundary_us: int,
    *,
    is_silent: bool = False,
) -> list[int]:
    """What windows that a pass closes have counted."""
    low = np.array([first_id])
    produced = network.process([rows(times)], low, boundary_us, is_silent=is_silent)
    return [n for made in produced for piece in made.pieces for n in piece.batch[-1].to_pylist()]


def reopened(pages: PageManager) -> PageManager:
    """Other pages, that hold now what these do."""
    snapshot = pages.checkpoint(np.ones(sum(pages.page_counts().values()), dtype=np.bool_))
    words = np.empty(len(snapshot.pages) * pages.page_words, dtype=np.int64)
    kernels.copy_pages(pages.arena, pages.shift, snapshot.pages, words)
    pages.finish(snapshot)
    other = PageManager(pages.page_bytes, 1 << 20, pooled_bytes=1024)
    order = np.arange(len(snapshot.pages), dtype=np.int64)
    physical = other.load(snapshot.page_sets, snapshot.counts, order, snapshot.next_set)
    other.arena.reshape(-1, other.page_words)[physical] = words.reshape(-1, pages.page_words)
    return other


def test_a_network_over_the_pages_of_a_cut_goes_on_where_the_cut_was() -> None:
    former = OperatorNetwork(plan(), PageManager(512, 1 << 20, pooled_bytes=1024))
    assert counted(former, 0, [1, 2, 3], 3) == []
    kept = reopened(former.pages)
    assert counted(former, 3, [4, 5, 12], 12) == [5], "what is to be gone back behind"
    again = OperatorNetwork(plan(), kept)
    again.resume(3)
    assert again.boundary_us == 3
    assert again.oldest_needed().tolist() == [0]
    assert counted(again, 3, [7, 12], 12) == [4], "other tuples this time"


def test_a_later_boundary_and_an_operator_that_wakes_are_news() -> None:
    network = OperatorNetwork(plan(), PageManager())
    assert not network.has_news(BEGINNING_US)
    (produced,) = network.process([None], NOTHING_LOW, 7, is_silent=False)
    assert (produced.pieces, produced.boundary_us) == ((), 7)
    assert not network.has_news(7)
    assert network.has_news(8)
    network.is_woken = True
    assert network.has_news(7)
    network.process([None], NOTHING_LOW, 7, is_silent=False)
    assert not network.has_news(7)


def test_a_silent_pass_changes_state_and_puts_nothing_out() -> None:
    network = OperatorNetwork(plan(), PageManager())
    assert counted(network, 0, [1, 2, 12], 12, is_silent=True) == []
    assert counted(network, 3, [13, 22], 22) == [2]


def test_a_silent_pass_promises_what_it_has_acted_on() -> None:
    network = OperatorNetwork(plan(), PageManager())
    (produced,) = network.process([rows([1, 12])], np.array([0]), 12, is_silent=True)
    assert (produced.pieces, produced.boundary_us) == ((), 12)


@pytest.mark.parametrize("boundary_us", [7, 12, END_US])
def test_promises_are_of_what_has_been_acted_on(boundary_us: int) -> None:
    network = OperatorNetwork(plan(), PageManager())
    network.resume(boundary_us)
    network.resume(5)
    assert network.boundary_us == boundary_us, "it never moves back"
    assert [made.boundary_us for made in network.promises()] == [boundary_us]
