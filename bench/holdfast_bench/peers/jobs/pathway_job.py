"""Pathway: CSV to JSON lines, streaming mode, persistence on its file system backend.

Documentation: `pw.io.csv.read` in streaming mode, `windowby` with `exactly_once_behavior` for
results when windows close, `pw.persistence.Config` with a snapshot interval, one thread per core.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

THREADS = "2"
if os.environ.get("PATHWAY_THREADS") != THREADS:
    os.execve(
        sys.executable, [sys.executable, *sys.argv], os.environ | {"PATHWAY_THREADS": THREADS}
    )

import pathway as pw  # noqa: E402 - it reads the number of threads when it is imported
from contract import Job, read, say  # noqa: E402

_WINDOW_US = 10_000_000
_COMMIT_MS = 100
_SNAPSHOT_MS = 1_000
KINDS: dict[str, dict[str, type]] = {
    "bid": {"auction": int, "bidder": int, "price": int, "date_time": int},
    "person": dict.fromkeys(("name", "email", "city", "state"), str)
    | {"key": int, "date_time": int},
    "auction": dict.fromkeys(
        ("key", "initial_bid", "reserve", "seller", "category", "expires", "date_time"), int
    )
    | {"item_name": str},
}


def events(kind: str, folder: str) -> Any:
    """The stream of a kind of event."""
    schema = pw.schema_from_types(**KINDS[kind])
    return pw.io.csv.read(
        folder, schema=schema, mode="streaming", autocommit_duration_ms=_COMMIT_MS, name=kind
    )


def results(query: str, streams: dict[str, Any]) -> Any:
    """The query as a table."""
    window = pw.temporal.tumbling(duration=_WINDOW_US)
    if query == "q1":
        bids = streams["bid"]
        return bids.select(
            bids.auction, bids.bidder, price=bids.price * 0.908, date_time=bids.date_time
        )
    if query == "q12":
        bids = streams["bid"]
        counted = bids.windowby(
            bids.date_time,
            window=window,
            behavior=pw.temporal.exactly_once_behavior(),
            instance=bids.bidder,
        )
        return counted.reduce(
            window_start=pw.this._pw_window_start,
            window_end=pw.this._pw_window_end,
            bidder=pw.this._pw_instance,
            bids=pw.reducers.count(),
        )
    persons, auctions = streams["person"], streams["auction"]
    if query == "q3":
        wanted = (persons.state == "OR") | (persons.state == "ID") | (persons.state == "CA")
        persons, auctions = persons.filter(wanted), auctions.filter(auctions.category == 10)
        return auctions.join(persons, auctions.seller == persons.key).select(
            persons.name, persons.city, persons.state, auctions.key
        )
    joined = persons.window_join(
        auctions, persons.date_time, auctions.date_time, window, persons.key == auctions.seller
    )
    return joined.select(
        window_start=pw.this._pw_window_start,
        window_end=pw.this._pw_window_end,
        key=persons.key,
        name=persons.name,
        auction=auctions.key,
    )


def main() -> None:
    """Run for ever."""
    job: Job = read()
    streams = {kind: events(kind, folder) for kind, folder in job.inputs.items()}
    os.makedirs(job.output, exist_ok=True)
    # A file per start: it empties the file that it writes, whatever an earlier start put there.
    pw.io.csv.write(results(job.query, streams), f"{job.output}/{time.time_ns()}.csv")
    backend = pw.persistence.Backend.filesystem(job.state)
    say(started=time.time())
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=_SNAPSHOT_MS),
    )


if __name__ == "__main__":
    main()
