"""The manifest of a checkpoint: which parts it has, where they are, and their checksums.

It is written last; the restart point in the coordinator's journal holds its checksum. A JSON object
says what is small, arrays say what there is one of per page. Byte by byte in docs/formats.md.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import xxhash

from holdfast.core.checkpoint.page_image import PageFile, PageImage, file_to_empty
from holdfast.core.haunit.prepared import OutputSegment
from holdfast.core.model.ids import CheckpointId, Incarnation, NodeId, StreamId
from holdfast.core.model.notes import PlacedNote
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.state.page_manager import PageSetId
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.note_codecs import notes_from_json, notes_to_json

_MAGICS: Final = tuple(b"HFCKP\x00\x00" + bytes([version]) for version in range(2, 7))
"""As they once were, with outputs that have no constant columns; with any narrow columns, without
notes and with notes; as they are written, with outputs that may be packed, without notes and with
notes. Whoever knows the former alone must not take a packed record for damage."""
_HEAD: Final = struct.Struct("<8sQQQ")  # magic, bytes of JSON, page sets, pages
_ARRAYS: Final[tuple[np.dtype[Any], ...]] = (np.dtype("<i4"), np.dtype("<i8"), np.dtype("<u8"))
"""Of file, position and checksum."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint consists of.

    Attributes:
        node: Whose it is.
        checkpoint: Its name.
        point: The cut, without a reference to the checkpoint itself.
        image: Where the pages are.
        outputs: Where the output tuples are.
        created_ms: Wall-clock time at which it was written, ms since the epoch.
        written_bytes: Pages and output tuples written for it.
        notes: The notes among the output tuples, and behind them, per stream that has some.
    """

    node: NodeId
    checkpoint: CheckpointId
    point: RestartPoint
    image: PageImage
    outputs: tuple[OutputSegment, ...]
    created_ms: int
    written_bytes: int
    notes: dict[StreamId, tuple[PlacedNote, ...]] = field(default_factory=dict)


def folder_name(node: NodeId, sequence: int) -> str:
    """The folder of a checkpoint. [SGuard §5]"""
    return f"{node}-{sequence:010d}"


def manifest_name(node: NodeId, checkpoint: CheckpointId) -> str:
    """The name of a checkpoint's manifest in the store."""
    return f"{folder_name(node, checkpoint.sequence)}/{checkpoint.incarnation}.manifest"


def pages_name(node: NodeId, checkpoint: CheckpointId, worker: int) -> str:
    """The name of a file of pages in the store."""
    return f"{folder_name(node, checkpoint.sequence)}/{checkpoint.incarnation}.{worker}.pages"


def outputs_name(node: NodeId, checkpoint: CheckpointId) -> str:
    """The name of a checkpoint's file of output tuples in the store."""
    return f"{folder_name(node, checkpoint.sequence)}/{checkpoint.incarnation}.outputs"


def parse_name(name: str) -> tuple[NodeId, CheckpointId] | None:
    """Which checkpoint a name in the store belongs to; None: to none."""
    folder, _, file = name.partition("/")
    node, _, sequence = folder.rpartition("-")
    incarnation = file.partition(".")[0]
    if not (node and sequence.isdigit() and incarnation.isdigit()):
        return None
    return NodeId(node), CheckpointId(int(sequence), Incarnation(int(incarnation)))


def checkpoints_in(names: Iterable[str], node: NodeId) -> tuple[CheckpointId, ...]:
    """The checkpoints of a node that these names in the store belong to, each once."""
    parsed = (parse_name(name) for name in names)
    return tuple(dict.fromkeys(p[1] for p in parsed if p is not None and p[0] == node))


def encode_manifest(manifest: Manifest) -> tuple[bytes, int]:
    """The manifest as bytes, and its checksum."""
    image = manifest.image
    notes = notes_to_json(manifest.notes)
    text = json.dumps(
        {
            "node": manifest.node,
            "checkpoint": _plain(manifest.checkpoint),
            "point": manifest.point.to_json(),
            "created_ms": manifest.created_ms,
            "written_bytes": manifest.written_bytes,
            "page_bytes": image.page_bytes,
            "next_set": image.next_set,
            "files": [[*_plain(f.checkpoint), f.worker, f.pages] for f in image.files],
            "outputs": [
                [s.stream, s.from_id, s.to_id, *_plain(s.checkpoint), s.offset, s.size]
                for s in manifest.outputs
            ],
            **({"notes": notes} if notes else {}),
        },
        separators=(",", ":"),
    ).encode()
    sets = np.array([image.page_sets, image.counts.tolist()], dtype="<i8").reshape(2, -1)
    columns: tuple[np.ndarray, ...] = (image.file, image.position, image.checksum)
    magic = _MAGICS[-1 if notes else -2]
    body = b"".join(
        [
            _HEAD.pack(magic, len(text), len(image.page_sets), len(image.file)),
            text,
            sets.tobytes(),
            *(c.astype(kind).tobytes() for c, kind in zip(columns, _ARRAYS, strict=True)),
        ]
    )
    checksum = xxhash.xxh3_64_intdigest(body)
    return body + struct.pack("<Q", checksum), checksum


def decode_manifest(data: bytes, checksum: int | None = None) -> Manifest | CorruptRecord:
    """The manifest again; never raises on any bytes.

    Args:
        data: As it was read.
        checksum: What it must be; None: whatever the bytes themselves say.
    """
    if len(data) < _HEAD.size + 8:
        return CorruptRecord("the manifest is cut short")
    body, (stated,) = data[:-8], struct.unpack("<Q", data[-8:])
    if checksum is not None and stated != checksum:
        return CorruptRecord("the manifest is another one than the journal names")
    if xxhash.xxh3_64_intdigest(body) != stated:
        return CorruptRecord("the manifest fails its checksum")
    magic, text_bytes, set_count, page_count = _HEAD.unpack_from(body)
    if magic not in _MAGICS:
        return CorruptRecord("the manifest has another format version")
    try:
        return _decoded(body, text_bytes, set_count, page_count)
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        return CorruptRecord(f"the manifest makes no sense: {error}")


def _decoded(body: bytes, text_bytes: int, set_count: int, page_count: int) -> Manifest:
    at = _HEAD.size
    value: dict[str, Any] = json.loads(body[at : at + text_bytes])
    at += text_bytes
    sets = np.frombuffer(body, "<i8", 2 * set_count, at).reshape(2, set_count)
    at += sets.nbytes
    columns: list[np.ndarray] = []
    for kind in _ARRAYS:
        columns.append(np.frombuffer(body, kind, page_count, at))
        at += columns[-1].nbytes
    if at != len(body) or int(sets[1].sum()) != page_count:
        raise ValueError("its arrays do not fit its length")
    files = tuple(PageFile(_checkpoint(*f[:2]), int(f[2]), int(f[3])) for f in value["files"])
    file = columns[0].astype(np.int32)
    if page_count and not 0 <= int(file.min()) <= int(file.max()) < len(files):
        raise ValueError("a page is in a file that is not listed")
    image = PageImage(
        int(value["page_bytes"]),
        tuple(PageSetId(page_set) for page_set in sets[0].tolist()),
        sets[1].astype(np.int64),
        int(value["next_set"]),
        files,
        file,
        columns[1].astype(np.int64),
        columns[2].astype(np.uint64),
        file_to_empty(files, file),
    )
    return Manifest(
        NodeId(value["node"]),
        _checkpoint(*value["checkpoint"]),
        RestartPoint.from_json(value["point"]),
        image,
        tuple(
            OutputSegment(StreamId(s[0]), s[1], s[2], _checkpoint(s[3], s[4]), s[5], s[6])
            for s in value["outputs"]
        ),
        int(value["created_ms"]),
        int(value["written_bytes"]),
        notes_from_json(value.get("notes", {})),
    )


def _plain(checkpoint: CheckpointId) -> list[int]:
    return [checkpoint.sequence, checkpoint.incarnation]


def _checkpoint(sequence: int, incarnation: int) -> CheckpointId:
    return CheckpointId(int(sequence), Incarnation(int(incarnation)))
