"""Holdfast from topic to topic, a transaction per 5 ms."""

from __future__ import annotations

from contract import read
from holdfast_topics_job import run

if __name__ == "__main__":
    run(read(), {"spark.holdfast.ackIntervalMs": "5"})
