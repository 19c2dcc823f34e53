"""Building a dataflow: what makes no sense is refused at once, with its name."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.api.clauses import parse_aggregate
from holdfast.api.dataflow import Dataflow
from holdfast.api.protections import (
    Checkpointed,
    CommunicationInduced,
    Coordinated,
    Protections,
    Uncoordinated,
    UpstreamBackup,
    parse_protection,
)
from holdfast.api.streams import Stream
from holdfast.api.windows import (
    Window,
    counting,
    duration_us,
    sliding,
    tumbling,
    window_from,
    window_words,
)
from holdfast.core.haunit.plan import Cuts
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import DataflowError, OptionError, UnsupportedError
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


def test_sliding_windows_leave_no_tuple_out() -> None:
    assert sliding("10 seconds", "3 seconds").slide_us == 3_000_000
    with pytest.raises(DataflowError, match="would leave tuples out"):
        sliding("3 seconds", "10 seconds")


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
            lambda s: s.join(s, on="auction", select=["left.price"], emit="changes"),
            "without window",
        ),
        (
            lambda s: s.window(tumbling("1 second")).join(
                s, on="auction", select=["left.price"], emit="often"
            ),
            "'final' or 'changes'",
        ),
        (
            lambda s: s.join(s, on=[("auction", "date_time")], select=["left.price"]),
            "join on auction",
        ),
        (lambda s: s.sink("../etc"), "'../etc'"),
        (lambda s: s.window("10 seconds"), r"window\('10 seconds'\); write"),
        (lambda s: s.union(s, order="random"), "order='random'"),
        (lambda s: s.sample(0), "fraction=0"),
        (lambda s: s.sort("nobody", slack=3), "no column 'nobody'"),
        (lambda s: s.select("'a' AS t").sort("t", slack=3), "cannot sort by t"),
        (lambda s: s.sort(slack=0), "slack=0"),
        (lambda s: s.sort(slack=1.5), "slack=1.5"),
        (lambda s: s.key_by("bidder").sort(slack=3), "leave key_by"),
        (lambda s: s.resample("price", within="1 second"), "either every=... or at="),
        (
            lambda s: s.resample("price", within="1 second", every="1 second", at=s),
            "either every=... or at=",
        ),
        (lambda s: s.resample("nobody", within="1 second", every="1 second"), "'nobody'"),
        (
            lambda s: s.resample("date_time", within="1 second", every="1 second"),
            "integers and floats",
        ),
        (lambda s: s.resample(within="1 second", every="1 second"), "no column to interpolate"),
        (lambda s: s.resample("auction", within="soon", every="1 second"), "'soon'"),
        (
            lambda s: s.resample("auction", within="1 second", every="1 second", on="bidder"),
            "not from on=",
        ),
        (
            lambda s: s.key_by("bidder").resample("auction", within="1 second", at=s),
            "not from key_by",
        ),
        (
            lambda s: s.resample(
                "auction AS a", within="1 second", at=s, on=[("auction", "date_time")]
            ),
            "resample on auction",
        ),
        (lambda s: s.resample("auction", within="1 second", at=s), "gives a column twice"),
        (
            lambda s: s.resample("auction", within="1 day", every="1 microsecond"),
            "at most 100000",
        ),
        (lambda _: tumbling("1 second", alignment="last"), "alignment='last'; it is 'epoch' or"),
        (lambda _: tumbling("1 second", time="local"), "time='local'"),
        (lambda _: tumbling("1 second", timeout="soon"), "'soon'"),
        (
            lambda _: tumbling("1 second", time="processing", alignment="first"),
            "aligned to the epoch",
        ),
        (
            lambda _: sliding("2 seconds", "1 second", time="processing", timeout="1 second"),
            "leave timeout out",
        ),
        (lambda _: counting(0), "size=0"),
        (lambda _: counting(2.5), "size=2.5"),
        (lambda _: counting(3, 4), "advance <= size"),
        (lambda _: counting(3, alignment="epoch"), "alignment='epoch'; it is 'key' or 'stream'"),
        (
            lambda _: counting(3, alignment="stream", timeout="1 second"),
            "use alignment='key'",
        ),
        (lambda s: s.window(counting(20_000, 1)).aggregate("count(*)"), "20000 windows"),
        (lambda s: s.unit(""), "''"),
    ],
)
def test_nonsense_is_refused_while_the_dataflow_is_built(build: object, message: str) -> None:
    with pytest.raises(DataflowError, match=message):
        build(bids())  # type: ignore[operator]


def test_values_are_counted_behind_an_operator_that_counts_their_rows() -> None:
    windows = bids().key_by("bidder").window(sliding("10 seconds", "3 seconds"))
    made = windows.aggregate(
        "count(DISTINCT auction) AS n", "sum(price) FILTER (WHERE price > 3) AS total", name="seen"
    )
    assert made.schema.names == ["window_start", "window_end", "bidder", "n", "total"]
    assert [step.unit for step in made.flow.steps][-3:] == ["seen_values", "seen", "seen"]


@pytest.mark.parametrize(
    ("text", "function", "argument"),
    [
        ("bool_and(price > 1)", "min", "price > 1"),
        ("count_if(price > 1) AS n", "count", "CASE WHEN price > 1 THEN 1 END"),
        ("sum(price) FILTER (WHERE price > 1) AS n", "sum", "CASE WHEN price > 1 THEN price END"),
        ("first_value(price, true)", "first_valid", "price"),
        ("max_by(auction, price) AS n", "max_by", "struct(auction, price)"),
        ("mean(price)", "avg", "price"),
    ],
)
def test_aggregates_that_are_others_by_another_name(
    text: str, function: str, argument: str
) -> None:
    parsed = parse_aggregate(text, bids().schema)
    assert parsed.expression is not None
    assert (parsed.function, parsed.expression.sql) == (function, argument)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.key_by("bidder").distinct("auction"), "leave key_by and window out"),
        (lambda s: s.distinct("auction", within="1 second", same_time=True), "either"),
        (lambda s: s.distinct("nowhere"), "no column 'nowhere'"),
    ],
)
def test_a_distinct_of_two_minds_is_refused(build: object, message: str) -> None:
    with pytest.raises(DataflowError, match=message):
        build(bids())  # type: ignore[operator]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda s: s.window(counting(5)).aggregate("count(distinct bidder) AS n"),
            "windows of event time aligned",
        ),
        (
            lambda s: s.window(tumbling("1 second")).aggregate(
                "count(distinct bidder) AS n", "avg(price) AS m"
            ),
            r"'avg\(price\) AS m' beside count\(DISTINCT",
        ),
        (
            lambda s: s.window(tumbling("1 second")).aggregate(
                "first(price) FILTER (WHERE bidder > 1) AS n"
            ),
            "nulls count for first",
        ),
        (lambda s: s.window(tumbling("1 second")).aggregate("mode(price) AS m"), "'mode'"),
        (lambda s: s.join(s, on="auction", select=["left.price"], how="outer"), "how='outer'"),
        (
            lambda s: s.window(tumbling("1 second")).join(
                s, on="auction", select=["left.price"], how="left", emit="changes"
            ),
            "known when the window has closed",
        ),
        (
            lambda s: s.window(sliding("2 seconds", "1 second")).join(
                s, on="auction", select=["left.price"]
            ),
            "sliding windows",
        ),
        (
            lambda s: s.window(counting(5)).join(s, on="auction", select=["left.price"]),
            "a join over CountWindow",
        ),
        (
            lambda s: s.window(tumbling("1 second", timeout="1 second")).join(
                s, on="auction", select=["left.price"]
            ),
            "without timeout",
        ),
        (
            lambda s: s.window(counting(5)).aggregate("count(*) AS n", emit="changes"),
            "emit='changes'",
        ),
    ],
)
def test_what_is_not_supported_is_refused_by_name(build: object, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        build(bids())  # type: ignore[operator]


def test_the_new_operators_have_schemas() -> None:
    stream = bids()
    by_id = stream.key_by("bidder").window(counting(10, alignment="stream"))
    assert by_id.aggregate("count(*) AS n").schema.names == ["first_id", "next_id", "bidder", "n"]
    every = stream.key_by("bidder").resample("auction AS a", within="1 second", every="1 second")
    assert every.schema.names == ["time", "bidder", "a"]
    assert every.schema.field("a").type == pa.float64()
    at = every.resample("a AS b", within="1 second", at=stream, on="bidder")
    assert at.schema.names == [*stream.schema.names, "b"]
    assert stream.sort("auction", slack=3).schema == stream.sample(0.5).schema == stream.schema


@pytest.mark.parametrize(
    ("windows", "text"),
    [
        (tumbling("1 second"), "Window(size_us=1000000, slide_us=1000000)"),
        (
            tumbling("1 second", alignment="first"),
            "Window(size_us=1000000, slide_us=1000000, first, None, event)",
        ),
    ],
)
def test_plain_windows_are_described_as_locations_have_them(windows: Window, text: str) -> None:
    assert str(windows) == text
    assert window_from(window_words(windows)) == windows


def test_windows_survive_their_description() -> None:
    for windows in (
        counting(5, 2, timeout="1 second"),
        counting(5, alignment="stream"),
        sliding("2 seconds", "1 second", time="processing"),
    ):
        assert window_from(json.loads(json.dumps(window_words(windows)))) == windows


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
    assert parse_protection("upstream-backup", "precise", None) == UpstreamBackup()
    wanted = Checkpointed(interval="1 second")
    assert parse_protection("checkpointed", "precise", "1 second") == wanted
    assert wanted.plan().interval_ms == 1000
    with pytest.raises(UnsupportedError, match="guarantee='gap'"):
        UpstreamBackup("gap").check(Dataflow("test"))
    with pytest.raises(UnsupportedError, match="'magic'"):
        parse_protection("magic", "precise", "1 second")
    with pytest.raises(OptionError, match="has no interval"):
        parse_protection("upstream-backup", "precise", "1 second")
    with pytest.raises(DataflowError, match="banana"):
        parse_protection("checkpointed", None, "banana")
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


def test_coordinated_checkpoints_are_aligned_or_not() -> None:
    flow = Dataflow("test")
    named = parse_protection("coordinated", None, "2 seconds")
    assert named == Coordinated(interval="2 seconds")
    told = named.of_unit()
    assert told.cuts is Cuts.ALIGNED
    assert told.checkpoints is not None
    assert told.checkpoints.interval_ms == 2_000
    assert Coordinated(aligned=False).of_unit().cuts is Cuts.UNALIGNED
    with pytest.raises(OptionError, match="Coordinated"):
        Coordinated(workers=0).check(flow)


def test_induced_checkpoints_name_their_algorithm_and_scope() -> None:
    flow = Dataflow("test")
    for name in ("hmnr", "bcs", "lazy-fi"):
        wanted = CommunicationInduced(algorithm=name, jitter="300 milliseconds")
        wanted.check(flow)
        told = wanted.of_unit()
        assert told.cuts is Cuts(name)
        assert not told.is_scope_whole
        assert told.checkpoints is not None
        assert told.checkpoints.jitter_ms == 300
    assert CommunicationInduced(scope="all").of_unit().is_scope_whole
    for protection in (Uncoordinated, Coordinated, CommunicationInduced):
        assert not protection().of_unit().all_go_back
        assert protection(rolls_back="all").of_unit().all_go_back
        with pytest.raises(OptionError, match=r"rolls_back='some'.*affected, all"):
            protection(rolls_back="some").check(flow)
        assert [protection(kept=n).of_unit().lines_kept for n in (1, 2)] == [1, 2]
        with pytest.raises(OptionError, match=r"kept=3"):
            protection(kept=3).check(flow)
    for wrong in ({"algorithm": "aligned"}, {"scope": "unit"}, {"workers": 0}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            CommunicationInduced(**wrong).check(flow)


def test_uncoordinated_checkpoints_say_what_they_can_give(tmp_path: Path) -> None:
    flow = Dataflow("test")
    wanted = Uncoordinated(interval="2 seconds", jitter="300 milliseconds")
    assert parse_protection("uncoordinated", None, "2 seconds") == Uncoordinated(
        interval="2 seconds"
    )
    told = wanted.of_unit()
    assert told.cuts is Cuts.UNCOORDINATED
    assert told.checkpoints is not None
    assert (told.checkpoints.interval_ms, told.checkpoints.jitter_ms) == (2_000, 300)
    assert not told.checkpoints.waits_for_windows
    waiting = Uncoordinated(trigger="after_windows").of_unit().checkpoints
    assert waiting is not None
    assert waiting.waits_for_windows
    for wrong in (
        Uncoordinated(workers=33),
        Uncoordinated(interval="5 microseconds"),
        Uncoordinated(trigger="sometimes"),
    ):
        with pytest.raises(OptionError, match="Uncoordinated"):
            wrong.check(flow)
    with pytest.raises(UnsupportedError, match="Uncoordinated"):
        Uncoordinated("gap").check(flow)
    at_least_once = Uncoordinated("rollback")
    at_least_once.check(flow)
    assert at_least_once.of_unit().guarantee is Guarantee.ROLLBACK
    assert at_least_once.describe() == "Uncoordinated rollback", "a location keeps to it"
    here, there = str(tmp_path / "here"), str(tmp_path / "there")
    assert Uncoordinated(store=here).describe() == f"Uncoordinated in {here}"
    assert Checkpointed(store=here).describe() == f"Checkpointed in {here}"
    generator = NexmarkSource("bid", 100, NexmarkConfig())
    bids = flow.source_generator(generator, name="bids")
    bids.unit("more").filter("price > 0").sink("more")
    both = {"bids": Uncoordinated(store=here), "more": Checkpointed(store=here, writers=2)}
    protections = Protections(both)
    protections.check(flow)
    assert protections.stored == both["bids"]
    assert protections.checkpointed == both["more"]
    with pytest.raises(OptionError, match="different stores"):
        Protections({**both, "more": Checkpointed(store=there)}).check(flow)


def test_every_location_has_a_folder_of_its_own_in_a_shared_store(tmp_path: Path) -> None:
    protection = Checkpointed(store=tmp_path / "store")
    specs = [protection.store_spec(str(tmp_path / name)) for name in ("a", "b", "a")]
    assert specs[0] == specs[2] != specs[1]
    remote = Checkpointed(store="s3://bucket/checkpoints/")
    assert "s3://bucket/checkpoints/" in repr(remote.store_spec(str(tmp_path / "a")))
