"""Names from users and from stored bytes: none of them leads out of its root."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.core.wire import chunk_words
from holdfast.core.wire.frames import CorruptFrame
from holdfast.shell.storage import ingest_log
from holdfast.shell.storage.errors import BadName, StorageError
from holdfast.shell.storage.paths import checked_name, ingest_path, stream_path, within
from holdfast.shell.storage.places import store_at
from holdfast.shell.stores.base import CheckpointStore
from holdfast.shell.stores.chunks.chunk_folder import ChunkFolder
from holdfast.shell.stores.file_system import FileSystemStore, open_url
from holdfast.shell.stores.folder import FolderStore

EVIL = (
    *("..", ".", "", "/", "/etc/passwd", "../x", "a/../../x", "a/..", "./a", "a//b", "/a", "a/"),
    *("a\0b", "\0", "..\\x", "a\\..\\x", "a\nb", "\x7f", "x" * 300, "a/" * 600 + "b", "ü" * 200),
)
NAMES_TOO = ("é", "ａ", "..a", "a..b", ".hidden", "-a", "a b", "CON:", "a%2f..", "x" * 129, "∕etc")


@pytest.mark.parametrize("name", [*EVIL, *NAMES_TOO, "a/b"])
def test_names_of_streams_units_sources_and_sinks(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadName):
        checked_name(name)
    for path in (stream_path, ingest_path):
        with pytest.raises(BadName):
            path(str(tmp_path), name, *([0] if path is stream_path else []))  # type: ignore[operator]
    rows = pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())])
    ingest_log.prepare(str(tmp_path / "log"), ingest_log.IngestMeta(rows, "at", 0))
    flow = hf.Dataflow("names")
    with pytest.raises(hf.DataflowError):
        flow.source_log(str(tmp_path / "log"), name=name)
    if name:
        with pytest.raises(hf.DataflowError):
            flow.source_log(str(tmp_path / "log"), name="ok", unit=name)
    source = flow.source_log(str(tmp_path / "log"), name="fine")
    with pytest.raises(hf.DataflowError):
        source.sink(name)


STORES: dict[str, Callable[[Path], CheckpointStore]] = {
    "folder": lambda path: FolderStore(str(path)),
    "fsspec": lambda path: FileSystemStore(f"local://{path}", {}),
}


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("name", EVIL)
def test_names_of_objects(kind: str, name: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "x").write_bytes(b"secret")
    store = STORES[kind](root)
    attempts: list[Callable[[], object]] = [
        lambda: store.put(name, [b"evil"]),
        lambda: store.put_soon(name, b"evil"),
        lambda: store.create(name),
        lambda: store.read(name),
        lambda: store.size(name),
        lambda: store.read_into(name, 0, memoryview(bytearray(1))),
        lambda: store.delete(name),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError):
            attempt()
    assert (tmp_path / "x").read_bytes() == b"secret"
    assert os.listdir(root) == []
    assert sorted(os.listdir(tmp_path)) == ["root", "x"]


@pytest.mark.parametrize("kind", STORES)
def test_links_in_a_store_lead_nowhere(kind: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "f").write_bytes(b"secret")
    (root / "folder").symlink_to(outside)
    (root / "real").mkdir()
    (root / "real" / "f").symlink_to(outside / "f")
    (root / "real" / "none").symlink_to(outside / "new")
    store = STORES[kind](root)
    for name in ("folder/f", "real/f", "folder/new", "real/none"):
        for attempt in (store.read, store.delete, lambda n: store.put(n, [b"evil"]), store.create):
            with pytest.raises(StorageError):
                attempt(name)
    assert (outside / "f").read_bytes() == b"secret"
    assert os.listdir(outside) == ["f"]


def test_a_spare_file_that_is_a_link_is_not_written_into(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.write_bytes(b"secret")
    (root / ".spare").symlink_to(outside)
    store = FolderStore(str(root))
    for name in ("a/x", "a/y"):
        store.put_soon(name, b"text")
        assert bytes(store.read(name)).rstrip() == b"text"
    assert outside.read_bytes() == b"secret"
    assert not (root / ".spare").is_symlink()


def test_a_root_may_itself_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    FolderStore(str(tmp_path / "root")).put("a/x", [b"1"])
    assert (tmp_path / "disk" / "a" / "x").read_bytes() == b"1"


def test_folders_below_a_location_are_no_links(tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "counts").symlink_to("/tmp")
    (tmp_path / "ingest").symlink_to("/tmp")
    with pytest.raises(BadName):
        stream_path(str(tmp_path), "counts", 0)
    with pytest.raises(BadName):
        ingest_path(str(tmp_path), "bids")
    assert within(str(tmp_path), "spill", "counts[0]") == str(tmp_path / "spill" / "counts[0]")


def test_a_commit_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    rows = pa.schema([("at", pa.timestamp("us"))])
    ingest_log.prepare(str(tmp_path), ingest_log.IngestMeta(rows, "at", 0))
    evil = {"by": "batch", "at_us": 0, "files": [["../../outside", 1, 0, 0, 0]]}
    store_at(str(tmp_path)).put(f"commits/{0:020d}.json", [json.dumps(evil).encode()])
    with pytest.raises(BadName):
        ingest_log.IngestLogReader(str(tmp_path), 0, 1).poll()


@pytest.mark.parametrize("chunk", ["../1", "1-2/../..", "1-2\0", "/1-2", "1-٣", "01-2", "1-", "-1"])
def test_chunks_have_numbers_for_names(chunk: str) -> None:
    word = json.dumps(["PieceRequested", 1, chunk, 0]).encode()
    assert isinstance(chunk_words.decode([word], chunk_words.DOWN_THE_CHAIN), CorruptFrame)


def test_a_data_nodes_folder_follows_no_links(tmp_path: Path) -> None:
    from holdfast.core.chunks import effects as e
    from holdfast.core.chunks.messages import ChunkId, StoredChunk

    (tmp_path / "secret").write_bytes(b"x" * 100)
    folder = ChunkFolder(str(tmp_path / "data"), piece_bytes=10, wait_s=1)
    stored = StoredChunk(ChunkId("1-2"), 10, 7)
    folder.path(stored).symlink_to(tmp_path / "secret")
    answer = folder.perform(e.LoadPiece(1, stored, 0))
    folder.close()
    assert isinstance(answer, e.LoadFailed)


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hidden@bucket/x",
        "webhdfs://me:hidden@host:1/x",
        "simplecache::s3://bucket/x",
        "memory://a::file:///etc",
    ],
)
def test_urls_with_secrets_or_chains_are_refused(url: str) -> None:
    with pytest.raises(BadName) as refused:
        open_url(url, {})
    assert "hidden" not in str(refused.value)
    with pytest.raises(BadName):
        store_at(url)
