"""Structured Streaming from topic to topic in real-time mode: the same with another trigger."""

from __future__ import annotations

from spark_topics_job import run

if __name__ == "__main__":
    run({"realTime": "5 minutes"})
