"""Holdfast from a user's own Parquet files into a Delta table, each row within 50 ms."""

from __future__ import annotations

from contract import read
from holdfast_files_job import EVERY, run

if __name__ == "__main__":
    told = read()
    run(told, lambda rows, table: rows.sink_delta(table, name="q1", every=EVERY), told.state)
