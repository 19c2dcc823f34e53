"""Spark's own watermarks: which column of a DataFrame has one, and what it was for a batch.

Spark marks the column in the schema. What the watermark was during a batch stands in the offset log
of the query, written before the batch runs; so a batch that is run again has the same one. What it
came to by a batch stands in the commit log, written after the batch.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.places import read_if_any, store_at
from holdfast.shell.stores.base import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

_DELAY_KEY = "spark.watermarkDelayMs"


@dataclass(frozen=True, slots=True)
class Watermark:
    """What `withWatermark(column, delay)` said."""

    column: str
    delay_us: int


def watermarks_of(schema: StructType) -> list[Watermark]:
    """The watermarks of a streaming DataFrame, in the order of columns. A batch one has none."""
    return [
        Watermark(field.name, int(field.metadata[_DELAY_KEY]) * 1000)
        for field in schema.fields
        if _DELAY_KEY in (field.metadata or {})
    ]


def watermark_of_batch(checkpoint: str, batch_id: int) -> int:
    """The watermark during a batch of a streaming query, in microseconds; 0 before the first one.

    Args:
        checkpoint: The query's checkpoint location.
        batch_id: The batch.

    Raises:
        StorageError: The offset log does not say.
    """
    found = _said(checkpoint, f"offsets/{batch_id}", "batchWatermarkMs")
    if found is None:
        raise StorageError(
            f"{os.path.join(checkpoint, f'offsets/{batch_id}')} is missing or names no "
            "batchWatermarkMs"
        )
    return found


def has_found_nothing(status: Mapping[str, Any]) -> bool:
    """Whether the last trigger of a streaming query found no data, by the query's `status`.

    Its message alone says so: `isDataAvailable` is false, too, while Spark looks for more behind a
    batch, and before the first one.
    """
    return bool(status["message"] == "Waiting for data to arrive")


def watermark_after_batch(checkpoint: str, batch_id: int) -> int | None:
    """The watermark that a finished batch has led to, in microseconds; None: it is not finished."""
    return _said(checkpoint, f"commits/{batch_id}", "nextBatchWatermarkMs")


def origin_of_batch(checkpoint: str, batch_id: int) -> str:
    """Stands for the offsets that a batch was read from; empty: they are not to be had.

    Args:
        checkpoint: The query's checkpoint location; empty if nobody has named it.
        batch_id: The batch.
    """
    found: bytes | None = None
    if checkpoint:
        with suppress(StoreUnavailable):  # Spark may know file systems that fsspec does not.
            found = _text(checkpoint, f"offsets/{batch_id}")
    return "" if found is None else f"{xxhash.xxh3_64_intdigest(found):016x}"


def _text(checkpoint: str, name: str) -> bytes | None:
    """One of Spark's small logs of a batch; None: there is none."""
    place = "s3://" + checkpoint.removeprefix("s3a://") if "s3a://" in checkpoint else checkpoint
    return read_if_any(store_at(place), name)


def _said(checkpoint: str, name: str, key: str) -> int | None:
    """What one of Spark's small logs says of a batch, in microseconds."""
    found = _text(checkpoint, name)
    for line in () if found is None else found.decode().splitlines()[1:]:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(value.get(key), int):
            return int(value[key]) * 1000
    return None
