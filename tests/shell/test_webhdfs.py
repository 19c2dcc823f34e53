"""The store on a real name node and two data nodes; the contract itself is tested as for others."""

import random
import threading
from collections.abc import Iterator

import pytest

from holdfast.shell.storage.errors import BadName
from holdfast.shell.stores.base import CheckpointStore, NameTaken, ObjectMissing, StoreUnavailable
from holdfast.shell.stores.file_system import open_url
from holdfast.shell.stores.webhdfs import WebHdfsStore
from holdfast_chaos.hdfs_cluster import HdfsCluster

pytestmark = pytest.mark.slow


@pytest.fixture
def store(hdfs: HdfsCluster) -> Iterator[CheckpointStore]:
    opened = open_url(f"{hdfs.url}/a place/store", {})
    for name in opened.names():
        opened.delete(name)
    yield opened
    opened.close()


def test_objects_are_written_once_and_read_in_any_part(store: CheckpointStore) -> None:
    data = random.Random(1).randbytes(3_000_000)
    writer = store.create("counts[0]-1/1.0.pages")
    for begin in range(0, len(data), 700_000):
        writer.write(memoryview(data)[begin : begin + 700_000])
    assert store.names() == [], "nobody sees a part of it"
    writer.close()
    assert store.names("counts") == ["counts[0]-1/1.0.pages"]
    assert store.size("counts[0]-1/1.0.pages") == len(data)
    assert store.read("counts[0]-1/1.0.pages") == data
    part = bytearray(1_000)
    store.read_into("counts[0]-1/1.0.pages", 2_900_000, memoryview(part))
    assert part == data[2_900_000:2_901_000]
    with pytest.raises(ObjectMissing):
        store.read_into("counts[0]-1/1.0.pages", len(data) - 1, memoryview(bytearray(2)))
    with pytest.raises(ObjectMissing):
        store.read("counts[0]-1/2.0.pages")
    with pytest.raises(NameTaken):
        store.create("counts[0]-1/1.0.pages")
    store.delete("counts[0]-1/1.0.pages")
    store.delete("counts[0]-1/1.0.pages")
    assert store.children() == []


def test_an_empty_object_and_one_in_no_folder(store: CheckpointStore) -> None:
    store.create("a-1/empty").close()
    store.put("location.id", [b"x"])
    assert store.size("a-1/empty") == 0
    assert bytes(store.read("a-1/empty")) == b""
    assert store.children() == ["a-1", "location.id"]
    assert store.names() == ["a-1/empty"]


def test_of_several_that_put_at_once_one_succeeds(store: CheckpointStore) -> None:
    assert store.is_exclusive
    won: list[int] = []
    lost: list[int] = []

    def put(number: int) -> None:
        try:
            store.put("coordinator/1", [b"%d" % number])
            won.append(number)
        except NameTaken:
            lost.append(number)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 4)
    assert bytes(store.read("coordinator/1")) == b"%d" % won[0]
    assert store.names() == ["coordinator/1"]


def test_a_writer_that_was_overtaken_or_gives_up_leaves_nothing(store: CheckpointStore) -> None:
    slow = store.create("a-1/x")
    slow.write(b"late")
    store.put("a-1/x", [b"first"])
    with pytest.raises(NameTaken):
        slow.close()
    for number in range(20):
        given_up = store.create(f"a-1/y{number}")
        given_up.write(b"half")
        given_up.abort()
        given_up.abort()
    assert bytes(store.read("a-1/x")) == b"first"
    assert store.names() == ["a-1/x"]
    assert isinstance(store, WebHdfsStore)
    assert store.drafts("a-1") == []


def test_places_and_options_that_make_no_sense_are_refused(hdfs: HdfsCluster) -> None:
    for url in ("webhdfs://host:1", "webhdfs://u:secret@host:1/x", "webhdfs://host:1/../x"):
        with pytest.raises(BadName) as refused:
            open_url(url, {})
        assert "secret" not in str(refused.value)
    with pytest.raises(BadName, match="kerberos"):
        open_url("webhdfs://host:1/x", {"kerberos": True})
    nobody = open_url("webhdfs://127.0.0.1:1/x", {"token": "secret"})
    with pytest.raises(StoreUnavailable) as away:
        nobody.put("a/b", [b"x"])
    assert "secret" not in str(away.value) + repr(nobody)


def test_what_was_written_survives_a_data_node(hdfs: HdfsCluster, store: CheckpointStore) -> None:
    data = random.Random(2).randbytes(2_000_000)
    store.put("a-1/x", [data])
    writer = store.create("a-1/y")
    writer.write(data)
    hdfs.kill_data_node(0)
    try:
        writer.write(data)
        writer.close()
        assert store.read("a-1/y") == data + data
    except StoreUnavailable:
        writer.abort()  # It was written by way of the killed one.
        with pytest.raises(ObjectMissing):
            store.read("a-1/y")
    for number in range(5):
        assert store.read("a-1/x") == data
        store.put(f"a-1/{number}", [data[:1_000]])
        assert store.read(f"a-1/{number}") == data[:1_000]
    hdfs.start_data_node(0)
    hdfs.wait_for_all()
