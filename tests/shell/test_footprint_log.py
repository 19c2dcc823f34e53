"""Footprint logs in folders and behind URLs: over lives, torn, trimmed, damaged."""

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chunk_processes import ChunkProcesses
from s3_server import s3_place

from holdfast.core.model.footprints import FootprintKind, FootprintRecord, PassMark
from holdfast.shell.storage.errors import FileDamaged, LogSuperseded, StorageError
from holdfast.shell.storage.footprint_log import FootprintLogWriter, read_extent
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.base import StoreUnavailable
from holdfast.shell.stores.embedded_place import mount

BODY = pa.schema([("window", pa.int64()), ("key.0", pa.string()), ("state.0", pa.int64())])
G_OPEN, G_CHECK, R = FootprintKind.G_OPEN, FootprintKind.G_CHECK, FootprintKind.R


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with s3_place("footprints") as place:
        yield place


@pytest.fixture(scope="module")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    processes = ChunkProcesses(tmp_path_factory.mktemp("chunks"))
    mount("chunks://store", processes.spec)
    yield "chunks://store"
    mount("chunks://store", None)
    processes.end()


@pytest.fixture(params=["folder", "memory", "s3", "chunks"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a log, of each kind that there is."""
    kind = request.param
    if kind == "folder":
        return str(tmp_path)
    root = "memory:/" if kind == "memory" else request.getfixturevalue(kind)
    return f"{root}/{uuid.uuid4()}/counts[0]"


class Author:
    """One incarnation that writes records, each a few words on windows."""

    def __init__(self, place: str, incarnation: int, follows: int = 0) -> None:
        self.log = FootprintLogWriter(place, BODY, "w~footprints", incarnation)
        self.follows = follows

    def write(self, cut: int, n: int, *words: tuple[FootprintKind, str, int]) -> int:
        """Returns where the record ends."""
        kinds = np.array([kind for kind, _, _ in words], dtype=np.uint8)
        bodies = pa.RecordBatch.from_arrays(
            [
                pa.array([0] * len(words)),
                pa.array([key for _, key, _ in words]),
                pa.array([state for _, _, state in words]),
            ],
            schema=BODY,
        )
        mark = PassMark(n, cut, cut, (cut,), self.follows)
        batch = FootprintRecord(self.log.next_id, mark, kinds, bodies).to_batch()
        self.log.append(0, batch.first_id, batch.batch, 0, 0)
        self.log.sync()
        self.follows = batch.next_id
        return batch.next_id


def states(place: str, from_id: int, ends_at: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for record in read_extent(place, from_id, ends_at, 1).records:
        keys, values = record.bodies.column("key.0"), record.bodies.column("state.0")
        found |= dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))
    return found


def test_what_a_later_life_does_not_follow_does_not_count(place: str) -> None:
    log = place
    first = Author(log, 1)
    first.write(3, 2, (G_OPEN, "a", 1), (G_OPEN, "b", 1))
    safe = first.write(5, 2, (G_CHECK, "a", 2))
    first.write(9, 0, (R, "a", 0), (R, "b", 0))
    first.log.close()
    second = Author(log, 2, follows=safe)
    ends_at = second.write(7, 3, (G_OPEN, "c", 1))
    assert states(log, 0, ends_at) == {"a": 2, "b": 1, "c": 1}
    assert states(log, 0, safe) == {"a": 2, "b": 1}
    second.log.close()


def test_a_zombie_hears_that_it_was_replaced(place: str) -> None:
    log = place
    first = Author(log, 1)
    first.write(3, 1, (G_OPEN, "a", 1))
    second = Author(log, 2, follows=first.follows)
    ends_at = second.write(4, 1, (G_CHECK, "a", 2))
    with pytest.raises(LogSuperseded):
        first.write(9, 1, (G_CHECK, "a", 9))
    assert states(log, 0, ends_at) == {"a": 2}
    second.log.close()


def test_a_torn_record_is_none(tmp_path: Path) -> None:
    first = Author(str(tmp_path), 1)
    safe = first.write(3, 1, (G_OPEN, "a", 1))
    first.write(5, 1, (G_CHECK, "a", 2))
    first.log.close()
    (segment,) = tmp_path.glob("*.seg")
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-70])
    second = Author(str(tmp_path), 2, follows=safe)
    assert second.log.next_id == safe
    ends_at = second.write(6, 2, (G_OPEN, "b", 1))
    assert states(str(tmp_path), 0, ends_at) == {"a": 1, "b": 1}
    second.log.close()


def test_records_before_t_may_be_gone(place: str) -> None:
    log = place
    first = Author(log, 1)
    needed_from = first.write(3, 1, (G_OPEN, "a", 1))
    first.write(5, 1, (G_CHECK, "a", 2))
    ends_at = first.write(6, 2, (G_OPEN, "b", 1))
    first.log.trim(needed_from)
    first.log.tidy()
    assert states(log, needed_from, ends_at) == {"a": 2, "b": 1}
    first.log.close()


def test_who_lets_go_of_records_does_not_wait_for_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = f"memory://{uuid.uuid4()}"
    first, store = Author(place, 1), type(store_at(place))
    needed_from = first.write(3, 1, (G_OPEN, "a", 1))
    is_storing, may_store, store_put = threading.Event(), threading.Event(), store.put

    def slowly(*args: Any) -> None:
        is_storing.set()
        assert may_store.wait(240)
        store_put(*args)

    monkeypatch.setattr(store, "put", slowly)
    writes = threading.Thread(target=first.write, args=(5, 1, (G_CHECK, "a", 2)), daemon=True)
    writes.start()
    assert is_storing.wait(240)
    lets_go = threading.Thread(target=first.log.trim, args=(needed_from,), daemon=True)
    lets_go.start()
    lets_go.join(240)
    assert not lets_go.is_alive(), "it waits for a record that is being stored"
    may_store.set()
    writes.join()
    first.log.tidy()
    assert states(place, needed_from, first.follows) == {"a": 2}
    with pytest.raises(StorageError):
        states(place, 0, needed_from)
    first.log.close()


def test_any_flipped_bit_in_the_extent_is_named(tmp_path: Path) -> None:
    first = Author(str(tmp_path), 1)
    first.write(3, 1, (G_OPEN, "a", 1))
    first.write(5, 1, (G_CHECK, "a", 2))
    ends_at = first.write(6, 2, (G_OPEN, "b", 1))
    first.log.close()
    (segment,) = tmp_path.glob("*.seg")
    whole = segment.read_bytes()
    good, refused = states(str(tmp_path), 0, ends_at), list[str]()
    for at in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[at] ^= 16
        segment.write_bytes(bytes(damaged))
        try:
            assert states(str(tmp_path), 0, ends_at) == good  # Only padding has no checksum.
        except StorageError as error:
            refused.append(str(error))
    assert len(refused) > len(whole) // 37 // 2
    assert all(str(tmp_path) in said for said in refused)


def test_records_that_contradict_each_other_are_named(tmp_path: Path) -> None:
    first = Author(str(tmp_path), 1)
    ends_at = first.write(3, 2, (G_OPEN, "a", 1))
    with pytest.raises(FileDamaged, match="1 of 2 open windows"):
        states(str(tmp_path), 0, ends_at)
    first.log.close()


def test_the_log_is_read_backwards_over_pieces_and_lives_and_no_further_than_needed(
    place: str,
) -> None:
    log = place
    first = Author(log, 1)
    words = [(G_OPEN, f"k{i}", i) for i in range(20_000)]
    first.write(1, 20_000, *words)  # longer than a piece
    ends = [first.write(2 + i, 20_000, (G_CHECK, f"k{i}", -1)) for i in range(9)]
    first.log.close()
    second = Author(log, 2, follows=ends[-1])
    ends_at = second.write(99, 20_000, *((G_CHECK, f"k{i}", 7) for i in range(19_990)))
    wanted = {f"k{i}": i for i in range(20_000)}
    assert states(log, 0, ends_at) == wanted | {f"k{i}": 7 for i in range(19_990)}
    assert states(log, 0, ends[3]) == wanted | {f"k{i}": -1 for i in range(4)}
    ends_at = second.write(100, 1, *((R, f"k{i}", 0) for i in range(1, 20_000)))
    second.write(101, 0, (R, "k0", 0))
    assert len(read_extent(log, 0, ends_at, 1).records) == 2
    second.log.close()


def test_damage_before_the_extent_does_no_harm(tmp_path: Path) -> None:
    first = Author(str(tmp_path), 1)
    first.write(1, 3000, *((G_OPEN, f"k{i}" * 60, i) for i in range(3000)))
    first.write(2, 0, *((R, f"k{i}" * 60, i) for i in range(3000)))
    ends_at = first.write(3, 1, (G_OPEN, "a", 1))
    first.log.close()
    (segment,) = tmp_path.glob("*.seg")
    damaged = bytearray(segment.read_bytes())
    damaged[100_000] ^= 1
    segment.write_bytes(bytes(damaged))
    assert states(str(tmp_path), 0, ends_at) == {"a": 1}


def test_a_log_in_a_store_of_which_nobody_has_told_is_refused_by_name() -> None:
    with pytest.raises(StoreUnavailable, match="EmbeddedStore"):
        Author("chunks://another/footprints/counts[0]", 1)
