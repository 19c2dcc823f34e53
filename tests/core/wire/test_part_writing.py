"""Opening a log of parts, one answer of the store after another."""

import pyarrow as pa
import pytest

from holdfast.core.model.ids import BEGINNING_US, Incarnation
from holdfast.core.model.tuples import TupleType, with_time
from holdfast.core.wire import log_parts, log_records
from holdfast.core.wire.log_opening import EndsEarly, OpenedLater
from holdfast.core.wire.log_owners import chained
from holdfast.core.wire.log_parts import PartName
from holdfast.core.wire.part_marks import PartDamaged
from holdfast.core.wire.part_reading import PartReading
from holdfast.core.wire.part_writing import open_parts
from holdfast.core.wire.steps import run
from holdfast.core.wire.store_steps import (
    ChangesTooFast,
    ListNames,
    PutObject,
    ReadObject,
    StoreAnswer,
    StoreRequest,
)

SCHEMA = with_time(pa.schema([("v", pa.int64())]))
ONE = Incarnation(1)


def part(first_id: int, count: int) -> bytes:
    ids = pa.array(range(first_id, first_id + count), pa.int64())
    rows = pa.RecordBatch.from_arrays([ids, ids], schema=SCHEMA)
    kind, boundary = log_records.RecordKind.DATA, BEGINNING_US
    body = log_records.encode_record(kind, TupleType.STABLE, 1, first_id, boundary, 0, rows)
    fields = ("s", 1, SCHEMA, first_id, body, first_id + count, boundary)
    return b"".join(bytes(one) for one in log_parts.encode_part(*fields, has_ended=False))


class Store:
    """Objects, and what its listings of the parts show: the last one is shown again and again."""

    def __init__(self, objects: dict[str, bytes], *listings: list[str]) -> None:
        mark = log_parts.encode_part(
            *("s", 1, SCHEMA, 0, [], 0, BEGINNING_US),
            has_ended=False,
            owners=chained([(ONE, 0)]),
        )
        self.objects = objects | {log_parts.mark_name(0, 1): b"".join(map(bytes, mark))}
        self._listings = list(listings)

    def __call__(self, request: StoreRequest) -> StoreAnswer:
        match request:
            case ListNames():
                if request.folder == log_parts.MARKS:
                    return [name for name in self.objects if name.startswith(log_parts.MARKS)]
                return self._listings.pop(0) if len(self._listings) > 1 else self._listings[0]
            case ReadObject():
                data = self.objects.get(request.name)
                return None if data is None else memoryview(data)
            case PutObject():
                self.objects[request.name] = b"".join(bytes(one) for one in request.parts)
        return None


def opened(store: Store, wanted: int = 0) -> int:
    return run(open_parts("s", Incarnation(2), SCHEMA, 0, wanted), store).end.next_id


def test_a_listing_that_shows_neither_what_was_merged_nor_what_it_became_is_not_believed() -> None:
    """1. It passes the place of the merged part. 2. That is put, and the others deleted."""
    merged = str(PartName(ONE, 0, 10))
    assert opened(Store({merged: part(0, 10)}, [], [merged])) == 10


def test_a_part_that_is_gone_when_it_is_read_has_been_merged() -> None:
    plain, merged = str(PartName(ONE, 8)), str(PartName(ONE, 0, 10))
    assert opened(Store({merged: part(0, 10)}, [plain], [plain], [merged])) == 10


def test_a_folder_that_never_looks_the_same_twice_is_an_error() -> None:
    listings = [[str(PartName(ONE, n))] for n in range(200)]
    with pytest.raises(ChangesTooFast):
        opened(Store({}, *listings))


def test_a_mark_names_the_owners_that_were_found() -> None:
    plain = str(PartName(ONE, 0))
    store = Store({plain: part(0, 7)}, [plain])
    assert opened(store) == 7
    mark = log_parts.decode_part(memoryview(store.objects[log_parts.mark_name(7, 2)]))
    assert isinstance(mark, log_parts.Part)
    assert mark.header.owners == chained([(ONE, 0), (Incarnation(2), 7)])
    with pytest.raises(OpenedLater):
        opened(store)


def test_a_log_that_ends_early_is_not_begun_so_that_what_is_brought_back_counts() -> None:
    first, second = str(PartName(ONE, 0)), str(PartName(ONE, 7))
    objects = {first: part(0, 7), second: part(7, 3)}
    damaged = Store({first: objects[first]}, [first])
    before = dict(damaged.objects)
    with pytest.raises(EndsEarly) as early:
        opened(damaged, 10)
    assert (early.value.end, early.value.wanted) == (7, 10)
    assert damaged.objects == before
    assert opened(Store(objects | damaged.objects, [first, second]), 10) == 10


MERGED, LATER = PartName(ONE, 0, 10), PartName(ONE, 10, 14)
PLAIN = tuple(str(PartName(ONE, n)) for n in (10, 12))


def damages() -> dict[str, bytes]:
    """A merged part that was whole once."""
    whole = part(10, 4)
    flipped = bytearray(whole)
    flipped[-log_records.RECORD_HEADER_BYTES - 100] ^= 1
    return {
        "flipped": bytes(flipped),
        "torn": whole[:-9],
        "half": whole[: len(whole) // 2],
        "empty": b"",
    }


@pytest.mark.parametrize("damage", list(damages()))
def test_a_merged_part_that_is_not_whole_any_more_hides_no_tuple(damage: str) -> None:
    """What was merged into it is gone: an end before it would be an end before what was stored."""
    names = [str(MERGED), str(LATER)]
    store = Store({str(MERGED): part(0, 10), str(LATER): damages()[damage]}, names)
    with pytest.raises(PartDamaged, match=r"10-0+14.part is damaged"):
        opened(store)
    with pytest.raises(PartDamaged, match=r"10-0+14.part is damaged"):
        run(PartReading().find(10, is_sure=True), store)
    assert not any(name.endswith("-0000000002") for name in store.objects)


@pytest.mark.parametrize("damage", list(damages()))
def test_a_merged_part_that_is_not_whole_says_nothing_as_long_as_its_parts_are_there(
    damage: str,
) -> None:
    names = [str(MERGED), *PLAIN, str(LATER)]
    objects = {str(MERGED): part(0, 10), PLAIN[0]: part(10, 2), PLAIN[1]: part(12, 2)}
    store = Store(objects | {str(LATER): damages()[damage]}, names)
    found = run(PartReading().find(10, is_sure=True), store)
    assert found is not None
    assert str(found.name) == PLAIN[0]
    assert opened(store) == 14


def test_a_merged_part_that_becomes_whole_while_a_reader_looks_is_read() -> None:
    """1. A listing misses what is merged. 2. The merged part is read too early. 3. It is whole."""

    class Merging(Store):
        reads = 0

        def __call__(self, request: StoreRequest) -> StoreAnswer:
            if isinstance(request, ReadObject) and request.name == str(LATER):
                self.reads += 1
                if self.reads == 2:
                    self.objects[str(LATER)] = part(10, 4)
            return super().__call__(request)

    names = [str(MERGED), str(LATER)]
    store = Merging({str(MERGED): part(0, 10), str(LATER): part(10, 4)[:-9]}, names)
    found = run(PartReading().find(10, is_sure=True), store)
    assert found is not None
    assert found.name == LATER
