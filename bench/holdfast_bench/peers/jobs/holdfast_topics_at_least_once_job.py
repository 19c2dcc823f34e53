"""Holdfast from topic to topic without transactions, as real-time mode writes."""

from __future__ import annotations

from contract import read
from holdfast_topics_job import run

if __name__ == "__main__":
    run(read(), exactly_once=False)
