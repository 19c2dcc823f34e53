"""The NexMark generator: the same events for everyone, in the proportions of the benchmark."""

import numpy as np
import pyarrow as pa
import pytest

from holdfast.nexmark.generator import (
    ACTIVE_AUCTIONS,
    ACTIVE_PERSONS,
    CATEGORIES,
    FIRST_CATEGORY,
    HOT_FOR_EVER,
    HOT_SPAN,
    PER_GROUP,
    SCHEMAS,
    STATES,
    NexmarkConfig,
    event_number,
    event_time_us,
    generate,
)

CONFIG = NexmarkConfig(seed=5, hot_ratio=0.1)
KINDS = tuple(PER_GROUP)
GROUPS = 2_000


def columns(kind: str, config: NexmarkConfig = CONFIG, groups: int = GROUPS) -> dict[str, object]:
    batch = generate(kind, 0, groups * PER_GROUP[kind], config)
    return {
        name: column.to_numpy(zero_copy_only=False)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_any_slice_of_the_events_is_the_same_wherever_it_is_made(kind: str) -> None:
    whole = generate(kind, 0, 1_000, CONFIG)
    assert whole.schema == SCHEMAS[kind]
    whole.validate(full=True)
    for first, count in ((0, 1), (0, 999), (1, 45), (317, 500), (999, 1), (500, 0)):
        assert generate(kind, first, count, CONFIG).equals(whole.slice(first, count))
    pieces = [generate(kind, at, 7, CONFIG) for at in range(0, 994, 7)]
    assert pa.concat_batches(pieces).equals(whole.slice(0, 994))


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_decides_everything_and_another_seed_gives_other_events(kind: str) -> None:
    assert generate(kind, 40, 200, CONFIG).equals(generate(kind, 40, 200, CONFIG))
    other = generate(kind, 40, 200, NexmarkConfig(seed=6, hot_ratio=0.1))
    assert not other.equals(generate(kind, 40, 200, CONFIG))


def test_known_events_stay_as_they_are() -> None:
    """Whoever compares runs of two versions needs the same events."""
    person = generate("person", 7, 1, CONFIG).to_pylist()[0]
    auction = generate("auction", 22, 1, CONFIG).to_pylist()[0]
    assert {k: v for k, v in person.items() if k != "date_time"} == PERSON
    times = ("date_time", "expires")
    assert {k: v for k, v in auction.items() if k not in times} == AUCTION


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    numbers = {
        kind: [event_number(kind, k) for k in range(GROUPS * per_group)]
        for kind, per_group in PER_GROUP.items()
    }
    assert PER_GROUP == {"person": 1, "auction": 3, "bid": 46}
    assert sorted(n for of_kind in numbers.values() for n in of_kind) == list(range(GROUPS * 50))
    for group in (0, 1, GROUPS - 1):
        kinds = {n % 50: kind for kind in KINDS for n in numbers[kind] if n // 50 == group}
        in_order = [kinds[position] for position in range(50)]
        assert in_order == ["person"] + 3 * ["auction"] + 46 * ["bid"]


@pytest.mark.parametrize("kind", KINDS)
def test_events_happen_in_order_at_the_rate(kind: str) -> None:
    times = generate(kind, 0, 500, CONFIG).column("date_time").cast(pa.int64()).to_pylist()
    assert times == [event_time_us(kind, k, CONFIG) for k in range(500)]
    assert times == sorted(times)


@pytest.mark.parametrize("hot_ratio", [0.0, 0.1, 1.0])
def test_bids_and_auctions_refer_to_what_happened_before_and_is_active(hot_ratio: float) -> None:
    config = NexmarkConfig(seed=5, hot_ratio=hot_ratio)
    bids, auctions = columns("bid", config), columns("auction", config)
    of_bid, of_auction = np.arange(GROUPS * 46) // 46, np.arange(GROUPS * 3) // 3
    for refers, known, active in (
        (bids["auction"], 3 * of_bid + 3, ACTIVE_AUCTIONS),
        (bids["bidder"], of_bid + 1, ACTIVE_PERSONS),
        (auctions["seller"], of_auction + 1, ACTIVE_PERSONS),
    ):
        assert np.all((refers >= 0) & (refers < known))
        oldest = np.where(refers % HOT_SPAN == 0, known - max(active, HOT_SPAN), known - active)
        assert np.all(refers >= oldest)
    sellers = {row["id"] for row in generate("person", 0, GROUPS, config).to_pylist()}
    assert set(auctions["seller"].tolist()) <= sellers
    assert set(bids["bidder"].tolist()) <= sellers
    assert set(bids["auction"].tolist()) <= set(auctions["id"].tolist())


@pytest.mark.parametrize("kind", ["bid", "auction"])
def test_the_hot_item_changes_or_never_does(kind: str) -> None:
    column = "bidder" if kind == "bid" else "seller"
    moving, fixed = (
        generate(kind, 30_000, 30_000, NexmarkConfig(seed=5, hot_ratio=1.0, hot_span=span))
        for span in (HOT_SPAN, HOT_FOR_EVER)
    )
    assert len(set(moving.column(column).to_pylist())) > 5
    assert set(fixed.column(column).to_pylist()) == {0}


def test_the_hot_ratio_is_the_share_of_references_to_the_hot_item() -> None:
    for hot_ratio in (0.0, 0.25, 1.0):
        bids = columns("bid", NexmarkConfig(seed=5, hot_ratio=hot_ratio))
        newest = 3 * (np.arange(GROUPS * 46) // 46) + 2
        share = float(np.mean(bids["auction"] == newest // HOT_SPAN * HOT_SPAN))
        assert hot_ratio - 0.01 <= share <= hot_ratio + 0.02


def test_choices_are_spread_evenly() -> None:
    persons, auctions = columns("person"), columns("auction")
    categories = np.bincount(auctions["category"] - FIRST_CATEGORY, minlength=CATEGORIES)
    assert len(categories) == CATEGORIES
    assert np.all(np.abs(categories / len(auctions["category"]) - 1 / CATEGORIES) < 0.02)
    states = [int(np.sum(persons["state"] == state)) for state in STATES]
    assert sum(states) == GROUPS
    assert all(abs(count / GROUPS - 1 / len(STATES)) < 0.04 for count in states)
    assert np.all(auctions["reserve"] >= auctions["initial_bid"])


def test_names_and_addresses_belong_together() -> None:
    for row in generate("person", 0, 200, CONFIG).to_pylist():
        first, last = row["name"].split(" ")
        assert row["email"] == f"{first}.{last}{row['id']}@example.com".lower()
    for row in generate("auction", 0, 20, CONFIG).to_pylist():
        assert row["item_name"] == f"item {row['id']}"


PERSON = {
    "id": 7,
    "name": "Edda Gray",
    "email": "edda.gray7@example.com",
    "city": "Los Angeles",
    "state": "OR",
}
AUCTION = {
    "id": 22,
    "item_name": "item 22",
    "initial_bid": 3488,
    "reserve": 9479,
    "seller": 4,
    "category": 11,
}
