"""Union of several ports. [HA §3.2, DPC "SUnion"]

A plain Union is arbitrary, since it depends on the interleaving of arrivals. Here the node has
merged its input streams deterministically before operators run, which makes Union deterministic;
unless the dataflow asks for the order of arrival, and so spares the wait for the slowest stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from holdfast.core.operators.base import (
    NOTHING,
    Operator,
    OperatorClass,
    Output,
    Rows,
    has_rows,
    merge_permutation,
)


class Union(Operator):
    """All rows of all ports in the node's order. Stateless."""

    operator_class = OperatorClass.DETERMINISTIC

    def __init__(self, name: str, schema: pa.Schema, *, is_by_arrival: bool = False) -> None:
        """Every port has rows of `schema`; by arrival: the node does not merge its streams."""
        if is_by_arrival:
            self.operator_class = OperatorClass.ARBITRARY
        self.name = name
        self.output_schema = schema

    def process(self, inputs: Sequence[Rows | None], low: np.ndarray, boundary_us: int) -> Output:
        """The merged rows."""
        parts = [rows for rows in inputs if rows is not None and has_rows(rows)]
        if not parts:
            return NOTHING
        created_us = max(part.created_us for part in parts)
        permutation = merge_permutation(parts)
        batches = [
            pa.RecordBatch.from_arrays(part.batch.columns, schema=self.output_schema)
            for part in parts
        ]
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        time_us = np.concatenate([part.time_us for part in parts])
        order = np.concatenate([part.order for part in parts])
        if len(parts) > 1:
            batch = batch.take(pa.array(permutation))
            time_us, order = time_us[permutation], order[permutation]
        return Output((Rows(batch, time_us, order, created_us),), low)
