"""Deterministic NexMark events: any range of any kind, made anywhere, always the same.

Of every 50 consecutive events the first is a person, the next three are auctions, the other 46
bids. The k-th event of a kind depends on (seed, kind, k) alone, through a counter-based hash. Event
n happens at `base_time_us + n * 10^6 / events_per_second`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

PER_GROUP: Final = {"person": 1, "auction": 3, "bid": 46}
_OFFSET: Final = {"person": 0, "auction": 1, "bid": 4}
_GROUP: Final = 50
_BLOCK_SHIFT: Final = 8
BLOCK: Final = 1 << _BLOCK_SHIFT
_STREAM: Final = {"person": 1 << 56, "auction": 2 << 56, "bid": 3 << 56}
_TIME: Final = pa.timestamp("us", tz="UTC")
ACTIVE_PERSONS: Final = 1_000
ACTIVE_AUCTIONS: Final = 300
HOT_SPAN: Final = 100
HOT_FOR_EVER: Final = 1 << 40
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
STATES: Final = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES: Final = ("Bend", "Boise", "Cheyenne", "Kent", "Los Angeles", "Palo Alto", "Phoenix")
FIRST_NAMES: Final = ("Ada", "Bo", "Cleo", "Dan", "Edda", "Finn", "Gus", "Hedy", "Ivo", "June")
LAST_NAMES: Final = ("Abel", "Bauer", "Cruz", "Diaz", "Evans", "Fox", "Gray", "Hahn", "Ito")

SCHEMAS: Final = {
    "person": pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("email", pa.string()),
            ("city", pa.string()),
            ("state", pa.string()),
            ("date_time", _TIME),
        ]
    ),
    "auction": pa.schema(
        [
            ("id", pa.int64()),
            ("item_name", pa.string()),
            ("initial_bid", pa.int64()),
            ("reserve", pa.int64()),
            ("seller", pa.int64()),
            ("category", pa.int64()),
            ("expires", _TIME),
            ("date_time", _TIME),
        ]
    ),
    "bid": pa.schema(
        [
            ("auction", pa.int64()),
            ("bidder", pa.int64()),
            ("price", pa.int64()),
            ("date_time", _TIME),
        ]
    ),
}


@dataclass(frozen=True, slots=True)
class NexmarkConfig:
    """What the events depend on.

    Attributes:
        seed: Of the hash.
        events_per_second: Events of all kinds per second of event time.
        hot_ratio: Probability that an event refers to the hot person or auction.
        base_time_us: Event time of event 0, microseconds since the epoch.
        hot_span: After so many persons, or auctions, another one is hot; `HOT_FOR_EVER`: the first
            one always is.
    """

    seed: int = 1
    events_per_second: int = 10_000
    hot_ratio: float = 0.0
    base_time_us: int = 1_436_918_400_000_000
    hot_span: int = HOT_SPAN


@dataclass(frozen=True, slots=True)
class Share:
    """One partition's events of a kind: every so many blocks of `BLOCK`.

    So partitions advance together in event time.

    Attributes:
        partition: Which.
        partitions: Of how many.
    """

    partition: int
    partitions: int

    def index(self, number: int) -> int:
        """Which event of its kind is the one with this number in the share."""
        return int(_index(number, self.partition, self.partitions))

    def count_before(self, index: int) -> int:
        """How many events of the share there are among the first `index` of their kind."""
        whole, rest = divmod(index, BLOCK * self.partitions)
        return whole * BLOCK + min(BLOCK, max(0, rest - self.partition * BLOCK))


ALL: Final = Share(0, 1)


def schema_of(kind: str) -> pa.Schema:
    """The attributes of a kind of event."""
    return SCHEMAS[kind]


def event_number(kind: str, index: int) -> int:
    """Which event of all kinds the k-th of a kind is."""
    per_group = PER_GROUP[kind]
    return index // per_group * _GROUP + _OFFSET[kind] + index % per_group


def event_time_us(kind: str, index: int, config: NexmarkConfig) -> int:
    """When the k-th event of a kind happens."""
    number = event_number(kind, index)
    return config.base_time_us + number * 1_000_000 // config.events_per_second


@numba.njit("uint64(uint64, uint64)", cache=True, nogil=True, inline="always")
def _mix(seed: Any, counter: Any) -> Any:
    """SplitMix64 of a counter."""
    z = seed + counter * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@numba.njit("int64(int64, int64, int64)", cache=True, nogil=True, inline="always")
def _index(number: Any, partition: Any, partitions: Any) -> Any:
    """Which event of its kind is the one with this number in a partition."""
    block = (number >> _BLOCK_SHIFT) * partitions + partition
    return (block << _BLOCK_SHIFT) + (number & (BLOCK - 1))


@numba.njit("uint64[:](uint64, uint64, int64[:])", cache=True, nogil=True)
def _draws(seed: Any, stream: Any, index: Any) -> Any:
    """One 64-bit draw per event."""
    drawn = np.empty(len(index), dtype=np.uint64)
    for i in range(len(index)):
        drawn[i] = _mix(seed, stream + np.uint64(index[i]))
    return drawn


@numba.njit(
    "void(uint64, uint64, int64, int64, int64, int64, int64, int64, int64, int64, "
    "int64[:], int64[:], int64[:], int64[:])",
    cache=True,
    nogil=True,
)
def _bids(  # type: ignore[no-untyped-def]
    seed,
    stream,
    first,
    partition,
    partitions,
    base,
    rate,
    hot,
    hot_span,
    prices,
    auction,
    bidder,
    price,
    time_us,
) -> None:
    """Fill the columns of bids; `hot` is the probability times 2^20, of one in `hot_span`."""
    for i in range(len(auction)):
        k = _index(first + i, partition, partitions)
        number = k // 46 * 50 + 4 + k % 46
        group = k // 46
        a = _mix(seed, stream + np.uint64(2 * k))
        b = _mix(seed, stream + np.uint64(2 * k + 1))
        auctions = group * 3 + 3
        persons = group + 1
        if np.int64(a & np.uint64(0xFFFFF)) < hot:
            auction[i] = (auctions - 1) // hot_span * hot_span
        else:
            span = min(auctions, 300)
            auction[i] = auctions - 1 - np.int64((a >> np.uint64(20)) % np.uint64(span))
        if np.int64(b & np.uint64(0xFFFFF)) < hot:
            bidder[i] = (persons - 1) // hot_span * hot_span
        else:
            span = min(persons, 1000)
            bidder[i] = persons - 1 - np.int64((b >> np.uint64(20)) % np.uint64(span))
        exponent = np.int64((a >> np.uint64(40)) % np.uint64(17)) + 6
        low = np.int64(1) << exponent
        price[i] = (low + np.int64((b >> np.uint64(40)) % np.uint64(low))) % prices + 1
        time_us[i] = base + number * 1000000 // rate


def generate(
    kind: str, first: int, count: int, config: NexmarkConfig, share: Share = ALL
) -> pa.RecordBatch:
    """Events [first, first + count) of a kind, or of a share of them."""
    if kind == "bid":
        return _bid_batch(first, count, config, share)
    index = _index.py_func(
        np.arange(first, first + count, dtype=np.int64), share.partition, share.partitions
    )
    drawn = _draws(np.uint64(config.seed), np.uint64(_STREAM[kind]), index)
    per_group = PER_GROUP[kind]
    number = index // per_group * _GROUP + _OFFSET[kind] + index % per_group
    time_us = config.base_time_us + number * 1_000_000 // config.events_per_second
    if kind == "person":
        return _person_batch(index, drawn, time_us)
    return _auction_batch(index, drawn, time_us, config)


def _bid_batch(first: int, count: int, config: NexmarkConfig, share: Share) -> pa.RecordBatch:
    columns = [np.empty(count, dtype=np.int64) for _ in range(4)]
    _bids(
        np.uint64(config.seed),
        np.uint64(_STREAM["bid"]),
        first,
        share.partition,
        share.partitions,
        config.base_time_us,
        config.events_per_second,
        int(config.hot_ratio * (1 << 20)),
        config.hot_span,
        10_000_000,
        *columns,
    )
    arrays = [pa.array(column) for column in columns[:3]]
    return pa.RecordBatch.from_arrays([*arrays, _times(columns[3])], schema=SCHEMAS["bid"])


def _person_batch(index: np.ndarray, drawn: np.ndarray, time_us: np.ndarray) -> pa.RecordBatch:
    first = _choices(FIRST_NAMES, drawn)
    last = _choices(LAST_NAMES, drawn >> np.uint64(8))
    names = pc.binary_join_element_wise(_taken(FIRST_NAMES, first), _taken(LAST_NAMES, last), " ")
    people = pc.binary_join_element_wise(
        _taken(_lower(FIRST_NAMES), first), _taken(_lower(LAST_NAMES), last), "."
    )
    numbers = pa.array(index).cast(pa.string())
    columns = [
        pa.array(index),
        names,
        pc.binary_join_element_wise(people, numbers, "@example.com", ""),
        _taken(CITIES, _choices(CITIES, drawn >> np.uint64(16))),
        _taken(STATES, _choices(STATES, drawn >> np.uint64(24))),
        _times(time_us),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS["person"])


def _auction_batch(
    index: np.ndarray, drawn: np.ndarray, time_us: np.ndarray, config: NexmarkConfig
) -> pa.RecordBatch:
    persons = index // PER_GROUP["auction"] + 1
    span = np.minimum(persons, ACTIVE_PERSONS)
    seller = persons - 1 - ((drawn >> np.uint64(20)) % span.astype(np.uint64)).astype(np.int64)
    is_hot = (drawn & np.uint64(0xFFFFF)).astype(np.int64) < int(config.hot_ratio * (1 << 20))
    seller = np.where(is_hot, (persons - 1) // config.hot_span * config.hot_span, seller)
    initial = 1 + ((drawn >> np.uint64(24)) % np.uint64(10_000)).astype(np.int64)
    reserve = initial + ((drawn >> np.uint64(30)) % np.uint64(10_000)).astype(np.int64)
    category = FIRST_CATEGORY + ((drawn >> np.uint64(44)) % np.uint64(CATEGORIES)).astype(np.int64)
    lasts_us = 10_000_000 + ((drawn >> np.uint64(34)) % np.uint64(10_000_000)).astype(np.int64)
    columns = [
        pa.array(index),
        pc.binary_join_element_wise("item", pa.array(index).cast(pa.string()), " "),
        pa.array(initial),
        pa.array(reserve),
        pa.array(seller),
        pa.array(category),
        _times(time_us + lasts_us),
        _times(time_us),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS["auction"])


def _choices(values: tuple[str, ...], drawn: np.ndarray) -> np.ndarray:
    """The index of one of the values for each draw."""
    return (drawn % np.uint64(len(values))).astype(np.int64)


def _taken(values: tuple[str, ...], choices: np.ndarray) -> pa.Array:
    return pa.array(values).take(pa.array(choices))


def _lower(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value.lower() for value in values)


def _times(time_us: np.ndarray) -> pa.Array:
    return pa.array(time_us).cast(_TIME)


def to_dataframe(spark: SparkSession, kind: str, count: int, config: NexmarkConfig) -> DataFrame:
    """The first `count` events of a kind as a DataFrame, made on the executors."""
    from pyspark.sql.pandas.types import from_arrow_schema

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = batch.column(0)
            if len(ids):
                yield generate(kind, ids[0].as_py(), len(ids), config)

    return spark.range(count).mapInArrow(make, from_arrow_schema(SCHEMAS[kind]))
