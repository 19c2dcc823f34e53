"""Building a dataflow: what makes no sense is refused at once, with its name."""

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.api.dataflow import Dataflow, Stream
from holdfast.api.errors import DataflowError, OptionError, UnsupportedError
from holdfast.api.protections import Checkpointed, UpstreamBackup, parse_protection
from holdfast.api.windows import duration_us, sliding, tumbling
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.source import NexmarkSource


def bids(flow: Dataflow | None = None, name: str = "bids") -> Stream:
    flow = flow or Dataflow("test")
    return flow.source_generator(NexmarkSource("bid", 100, NexmarkConfig()), name=name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10 seconds", 10_000_000), ("1 hour 30 minutes", 5_400_000_000), ("1 day", 86_400_000_000)],
)
def test_durations_are_read_as_spark_writes_them(text: str, expected: int) -> None:
    assert duration_us(text) == expected


@pytest.mark.parametrize("text", ["", "ten seconds", "10", "10 parsecs", "0 seconds", "-1 second"])
def test_a_duration_that_is_none_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(DataflowError, match=repr(text) if text else "''"):
        duration_us(text)


def test_sliding_windows_must_be_multiples_of_their_slide() -> None:
    assert sliding("10 seconds", "5 seconds").slide_us == 5_000_000
    with pytest.raises(DataflowError, match="no multiple"):
        sliding("10 seconds", "3 seconds")


def test_schemas_follow_the_operators() -> None:
    counts = bids().key_by("bidder").window(tumbling("10 seconds")).aggregate("count(*) AS n")
    assert counts.schema.names == ["window_start", "window_end", "bidder", "n"]
    assert counts.schema.field("n").type == pa.int64()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.key_by("nobody"), "no column 'nobody'; there are auction, bidder"),
        (lambda s: s.key_by(), "at least one column"),
        (lambda s: s.filter("price + 1"), "not boolean"),
        (lambda s: s.filter("pricee > 1"), "no column 'pricee'"),
        (lambda s: s.select("price", "price"), "twice"),
        (lambda s: s.aggregate("count(*) AS n"), "needs window"),
        (lambda s: s.window(tumbling("1 second")).aggregate(), "at least one aggregate"),
        (lambda s: s.window(tumbling("1 second")).aggregate("sum(*)"), "only count takes"),
        (
            lambda s: s.window(tumbling("1 second")).aggregate("count(*)", emit="often"),
            "emit='often'",
        ),
        (lambda s: s.union(s.select("price")), "different schemas"),
        (lambda s: s.join(s, on="auction", select=["price"]), "'left.column' or 'right.column'"),
        (
            lambda s: s.join(s, on=[("auction", "date_time")], select=["left.price"]),
            "join on auction",
        ),
        (lambda s: s.sink("../etc"), "'../etc'"),
        (lambda s: s.unit(""), "''"),
    ],
)
def test_nonsense_is_refused_while_the_dataflow_is_built(build: object, message: str) -> None:
    with pytest.raises(DataflowError, match=message):
        build(bids())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda s: s.window(tumbling("1 second")).aggregate("count(distinct bidder) AS n"),
            "distinct aggregates",
        ),
        (lambda s: s.window(tumbling("1 second")).aggregate("median(price) AS m"), "'median'"),
        (lambda s: s.join(s, on="auction", select=["left.price"], how="outer"), "how='outer'"),
        (
            lambda s: s.window(sliding("2 seconds", "1 second")).join(
                s, on="auction", select=["left.price"]
            ),
            "sliding windows",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(build: object, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        build(bids())  # type: ignore[operator]


def test_names_are_unique() -> None:
    flow = Dataflow("test")
    stream = bids(flow)
    with pytest.raises(DataflowError, match="already a step named 'bids'"):
        bids(flow)
    stream.sink("out")
    with pytest.raises(DataflowError, match="already a sink named 'out'"):
        stream.sink("out")
    with pytest.raises(DataflowError, match="no sink 'other'; there are out"):
        flow.sink_name("other")


def test_a_source_needs_a_partition() -> None:
    generator = NexmarkSource("bid", 100, NexmarkConfig())
    with pytest.raises(DataflowError, match="partitions=0"):
        Dataflow("test").source_generator(generator, name="bids", partitions=0)


def test_protections_say_what_they_can_give() -> None:
    assert parse_protection("upstream-backup", "precise", "1 second") == UpstreamBackup()
    wanted = Checkpointed(interval="1 second")
    assert parse_protection("checkpointed", "precise", "1 second") == wanted
    assert wanted.plan().interval_ms == 1000
    with pytest.raises(UnsupportedError, match="guarantee='gap'"):
        UpstreamBackup("gap").check(Dataflow("test"))
    with pytest.raises(UnsupportedError, match="'magic'"):
        parse_protection("magic", "precise", "1 second")
    flow = Dataflow("test")
    with pytest.raises(UnsupportedError, match="guarantee='gap'"):
        Checkpointed("gap").check(flow)
    with pytest.raises(OptionError, match="kept=1"):
        Checkpointed(kept=1).check(flow)
    with pytest.raises(OptionError, match="workers=0"):
        Checkpointed(workers=0).check(flow)
    with pytest.raises(DataflowError, match="soon"):
        Checkpointed(interval="soon").check(flow)
    with pytest.raises(OptionError, match="at least 1 millisecond"):
        Checkpointed(interval="5 microseconds").check(flow)


def test_every_location_has_a_folder_of_its_own_in_a_shared_store(tmp_path: Path) -> None:
    protection = Checkpointed(store=tmp_path / "store")
    specs = [protection.store_spec(str(tmp_path / name)) for name in ("a", "b", "a")]
    assert specs[0] == specs[2] != specs[1]
    remote = Checkpointed(store="s3://bucket/checkpoints/")
    assert "s3://bucket/checkpoints/" in repr(remote.store_spec(str(tmp_path / "a")))
