"""What the paper prints: its tables 2 to 4, as they stand there. [CheckMate §VII]"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final

_FIGURES: Final = Path(__file__).parent / "figures"


def table(name: str) -> list[dict[str, str]]:
    """The rows of a table: `table2_message_overhead`, `table3_checkpoints` or `table4_cyclic`."""
    with (_FIGURES / f"checkmate_{name}.csv").open() as lines:
        return list(csv.DictReader(lines))


def message_overhead(protocol: str, query: str, workers: int) -> str:
    """Bytes over those without a protocol; empty where the paper has none."""
    for row in table("table2_message_overhead"):
        if row["protocol"] == protocol and row["workers"] == str(workers):
            return row.get(query, "")
    return ""


def invalid_percent(protocol: str, query: str, workers: int) -> str:
    """Checkpoints newer than the line, of all; empty where the paper has none."""
    for row in table("table3_checkpoints"):
        if row["query"] == query and row["workers"] == str(workers):
            return row[f"{protocol.lower()}_invalid_percent"]
    return ""
