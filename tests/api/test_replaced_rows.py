"""By which columns rows of a sink replace each other, as far as the dataflow says."""

from __future__ import annotations

from holdfast.api.dataflow import Dataflow
from holdfast.api.replaced_rows import replaced_by
from holdfast.api.streams import Stream
from holdfast.api.windows import tumbling
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource


def bids() -> Stream:
    return Dataflow("test").source_generator(
        NexmarkSource("bid", 100, NexmarkConfig()), name="bids"
    )


def counts(*keys: str) -> Stream:
    stream = bids().key_by(*keys) if keys else bids()
    return stream.aggregate("count(*) AS n", emit="changes")


def test_running_results_replace_each_other_by_their_key() -> None:
    assert replaced_by(counts("bidder").step) == ("bidder",)
    assert replaced_by(counts("bidder", "auction").step) == ("bidder", "auction")
    assert replaced_by(counts().step) == ()


def test_those_of_windows_by_window_and_key() -> None:
    windows = bids().key_by("bidder").window(tumbling("1 minute"))
    changes = windows.aggregate("count(*) AS n", emit="changes")
    keys = ("window_start", "window_end", "bidder")
    assert replaced_by(changes.step) == keys
    assert {*keys} <= {*changes.schema.names}
    assert replaced_by(windows.aggregate("count(*) AS n").step) is None


def test_a_select_may_rename_the_key_and_not_leave_it_out() -> None:
    made = counts("bidder", "auction")
    renamed = made.select("n + 1 AS n", "`bidder` AS who", "auction")
    assert replaced_by(renamed.step) == ("who", "auction")
    assert replaced_by(renamed.select("who AS w", "auction AS a").step) == ("w", "a")
    assert replaced_by(made.select("n", "bidder").step) is None
    assert replaced_by(made.select("bidder + 1 AS bidder", "auction", "n").step) is None


def test_behind_other_operators_nobody_knows_a_key() -> None:
    made = counts("bidder")
    assert replaced_by(made.filter("n < 3").step) is None, "the newest row may be left out"
    assert replaced_by(bids().step) is None
    assert (
        replaced_by(bids().key_by("bidder").aggregate("count(*) AS n", emit="changelog").step)
        is None
    )
