"""What the view shows of a query that runs on Spark, from its checkpoint location alone.

With `HOLDFAST_FEEDS=tests/view/feeds` a test also keeps what the view was fed with there. Tests of
the page in a browser show it again (tests/view/test_protections_in_chromium.py).
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.driver.query import Query
from holdfast.view.model import page_of
from holdfast.view.watching import Location


def seen(query: Query, name: str) -> dict[str, Any]:
    """The page now; `name` is that of the feed."""
    facts = Location(query._location).look()
    if (folder := os.environ.get("HOLDFAST_FEEDS")) is not None:
        kept = asdict(facts) | {"location": "/data/bids"}
        text = json.dumps(kept, indent=1).replace(query._location, "/data/bids")
        Path(folder, f"{name}.json").write_text(text + "\n")
    return page_of(facts)


def rows_of(page: dict[str, Any], table: str) -> dict[str, dict[str, str]]:
    """By its first column, each row of a table, by column."""
    columns = page["tables"][table]["columns"]
    rows = page["tables"][table]["rows"].values()
    return {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
