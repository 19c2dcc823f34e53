"""Holdfast from a user's own Parquet files into its own log."""

from __future__ import annotations

from contract import read
from holdfast_files_job import run

if __name__ == "__main__":
    told = read()
    run(told, lambda rows, _: rows.sink("q1"), told.output)
