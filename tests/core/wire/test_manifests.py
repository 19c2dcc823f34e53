"""Manifests: notes among the output tuples, and the versions that are read."""

from dataclasses import replace

import numpy as np
import pytest
import xxhash

from holdfast.core.checkpoint.page_image import PageImage
from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.model.notes import CheckpointMarker, PlacedNote
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.manifests import Manifest, decode_manifest, encode_manifest

EDGE = StreamId("n>c")
NOTES = {
    EDGE: (PlacedNote(1 << 32, 5, CheckpointMarker(3)), PlacedNote(5 << 32, 5, CheckpointMarker(4)))
}


def manifest() -> Manifest:
    none = np.array([], np.int64)
    image = PageImage(4096, (), none, 1, (), none, none, none)
    point = RestartPoint(6, {"s": 0}, {"s": 10}, 50, {EDGE: 10}, next_notes={"s": 7})
    return Manifest(NodeId("n"), CheckpointId(6, Incarnation(1)), point, image, (), 5, 9)


@pytest.mark.parametrize(("notes", "version"), [({}, 5), (NOTES, 6)])
def test_notes_are_part_of_a_checkpoint_and_of_its_version(
    notes: dict[StreamId, tuple[PlacedNote, ...]], version: int
) -> None:
    data, checksum = encode_manifest(replace(manifest(), notes=notes))
    assert data[:8] == b"HFCKP\0\0" + bytes([version]), (
        "versions that know 3 and 4 alone say so, and take no packed record for damage"
    )
    got = decode_manifest(data, checksum)
    assert isinstance(got, Manifest)
    assert got.notes == notes
    assert got.point == manifest().point


@pytest.mark.parametrize(("notes", "version"), [({}, 2), ({}, 3), (NOTES, 4)])
def test_a_manifest_of_an_earlier_version_is_read(
    notes: dict[StreamId, tuple[PlacedNote, ...]], version: int
) -> None:
    got = decode_manifest(as_version(version, replace(manifest(), notes=notes)))
    assert isinstance(got, Manifest)
    assert (got.point, got.notes) == (manifest().point, notes)


@pytest.mark.parametrize("version", [1, 7])
def test_a_manifest_of_a_version_that_is_not_known_is_refused_as_one(version: int) -> None:
    got = decode_manifest(as_version(version, manifest()))
    assert got == CorruptRecord("the manifest has another format version")


def as_version(version: int, written: Manifest) -> bytes:
    """They differ by their number alone."""
    data, _ = encode_manifest(written)
    changed = data[:7] + bytes([version]) + data[8:-8]
    return changed + xxhash.xxh3_64_intdigest(changed).to_bytes(8, "little")


@pytest.mark.parametrize(
    "notes", ["[]", '{"n>c":5}', '{"n>c":"0"}', '{"n>c":"00"}', '{"n>c":"zz"}']
)
def test_notes_that_are_none_are_damage(notes: str) -> None:
    data, _ = encode_manifest(manifest())
    text = b'"outputs":[]'
    changed = data[:-8].replace(text, text + b',"notes":' + notes.encode())
    size = int.from_bytes(data[8:16], "little") + len(b',"notes":') + len(notes)
    changed = changed[:8] + size.to_bytes(8, "little") + changed[16:]
    changed += xxhash.xxh3_64_intdigest(changed).to_bytes(8, "little")
    got = decode_manifest(changed)
    assert isinstance(got, CorruptRecord)
    assert "makes no sense" in got.reason
