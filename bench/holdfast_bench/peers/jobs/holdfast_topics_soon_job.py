"""Holdfast from topic to topic, one transaction after the other."""

from __future__ import annotations

from contract import read
from holdfast_topics_job import run

if __name__ == "__main__":
    run(read(), commit_interval=None)
