"""Spark's own watermarks: which column of a DataFrame has one, and what it was for a batch.

Spark marks the column in the schema. What the watermark was during a batch stands in the offset log
of the query, written before the batch runs; so a batch that is run again has the same one.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.places import read_if_any, store_at

if TYPE_CHECKING:
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
    name = f"offsets/{batch_id}"
    place = "s3://" + checkpoint.removeprefix("s3a://") if "s3a://" in checkpoint else checkpoint
    found = read_if_any(store_at(place), name)
    if found is None:
        raise StorageError(f"no offsets of batch {batch_id} in {os.path.join(checkpoint, name)}")
    for line in found.decode().splitlines()[1:]:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(value.get("batchWatermarkMs"), int):
            return int(value["batchWatermarkMs"]) * 1000
    raise StorageError(f"{os.path.join(checkpoint, name)} names no batchWatermarkMs")
