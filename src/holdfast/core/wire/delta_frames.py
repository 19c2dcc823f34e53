"""The bodies of the frames of passive standby: runs of pages, and deltas. See docs/formats.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.haunit.copied_pages import PageRun, names_places, places_bytes
from holdfast.core.haunit.state_delta import StateDelta
from holdfast.core.model.ids import StreamId
from holdfast.core.model.tuples import TupleBatch, TupleType
from holdfast.core.recovery.restart_point import RestartPoint
from holdfast.core.wire.note_codecs import notes_from_json, notes_to_json

PAGE_WORDS_MAX = 1 << 17
BatchDecoder = Callable[[object, StreamId, int], pa.RecordBatch | None]
"""Of an Arrow message, its stream and its number of rows; None: it is none of that stream."""


def encode_page_run(run: PageRun) -> list[bytes]:
    """Ids, which words have changed, and the words that have.

    Few are said by their places among all words of the run, many by a bit per word, whichever
    takes fewer bytes: so their number tells which it is.
    """
    if names_places(run.changed.size, len(run.values)):
        said = np.flatnonzero(run.changed).astype(np.uint32).tobytes()
    else:
        said = np.packbits(run.changed).tobytes()
    return [run.ids.tobytes(), said, run.values.tobytes()]


def decode_page_run(parts: Sequence[object], sequence: int, pages: int, words: int) -> PageRun:
    """The inverse. Raises `ValueError` on anything else."""
    if len(parts) != 3 or pages < 1 or not 0 < words <= PAGE_WORDS_MAX:
        raise ValueError(f"{len(parts)} parts, {pages} pages of {words} words")
    ids, said, values = (memoryview(part) for part in parts)  # type: ignore[arg-type]
    contents = np.frombuffer(values, dtype=np.int64)
    if len(said) != places_bytes(pages * words, len(contents)):
        raise ValueError(f"{len(said)} bytes for the words of {pages} pages of {words}")
    if names_places(pages * words, len(contents)):
        places = np.frombuffer(said, dtype=np.uint32).astype(np.int64)
        if len(places) and (int(places[-1]) >= pages * words or bool((np.diff(places) < 1).any())):
            raise ValueError("the places of changed words do not follow one another")
        changed = np.zeros(pages * words, dtype=np.bool_)
        changed[places] = True
    else:
        packed = np.frombuffer(said, dtype=np.uint8)
        changed = np.unpackbits(packed, count=pages * words).astype(np.bool_)
    if np.count_nonzero(changed) != len(contents):
        raise ValueError(f"{len(contents)} words for {np.count_nonzero(changed)} that changed")
    placed = np.frombuffer(ids, dtype=np.int64).reshape(pages, 2)
    return PageRun(sequence, placed, changed.reshape(pages, words), contents)


def encode_delta(delta: StateDelta, streams: Sequence[StreamId]) -> list[bytes | pa.Buffer]:
    """A description as JSON, then one Arrow message per batch.

    Args:
        delta: The delta.
        streams: The node's output streams but sinks, in the order of its plan.
    """
    described = {
        "is_full": delta.is_full,
        "pages": delta.pages,
        "page_sets": list(delta.page_sets.items()),
        "gone": list(delta.gone),
        "next_set": delta.next_set,
        "cut": delta.cut.to_json(),
        "outputs": [list(positions) for positions in delta.outputs],
        "batches": [[number, streams[number], *_head(batch)] for number, batch in delta.batches],
    }
    if delta.notes:
        described["notes"] = notes_to_json(delta.notes)
    bodies = [batch.batch.serialize() for _, batch in delta.batches]
    return [json.dumps(described, separators=(",", ":")).encode(), *bodies]


def _head(batch: TupleBatch) -> list[int]:
    times = batch.boundary_us, batch.created_us
    return [batch.first_id, batch.count, *times, int(batch.tuple_type)]


def decode_delta(parts: Sequence[object], sequence: int, batch_of: BatchDecoder) -> StateDelta:
    """The inverse. Raises `ValueError` on anything else."""
    if not parts:
        raise ValueError("no parts")
    try:
        described: Any = json.loads(bytes(memoryview(parts[0])))  # type: ignore[arg-type]
        heads = described["batches"]
        if len(heads) != len(parts) - 1:
            raise ValueError(f"{len(heads)} batches in {len(parts) - 1} parts")
        return StateDelta(
            sequence=sequence,
            is_full=bool(described["is_full"]),
            pages=_whole(described["pages"]),
            page_sets={_whole(name): _whole(count) for name, count in described["page_sets"]},
            gone=tuple(_whole(name) for name in described["gone"]),
            next_set=_whole(described["next_set"]),
            cut=RestartPoint.from_json(described["cut"]),
            outputs=tuple((_whole(a), _whole(b)) for a, b in described["outputs"]),
            batches=tuple(
                _batch(head, body, batch_of) for head, body in zip(heads, parts[1:], strict=True)
            ),
            notes=notes_from_json(described.get("notes", {})),
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no delta: {type(error).__name__}: {error}") from error


def _batch(head: list[Any], body: object, batch_of: BatchDecoder) -> tuple[int, TupleBatch]:
    number, stream, first_id, count, boundary_us, created_us, tuple_type = head
    batch = batch_of(body, StreamId(stream), _whole(count))
    if batch is None:
        raise ValueError(f"no batch of {stream}")
    times = _whole(boundary_us), _whole(created_us)
    return _whole(number), TupleBatch(_whole(first_id), batch, *times, TupleType(tuple_type))


def _whole(value: object) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError("no whole number of 64 bits")
    return value
