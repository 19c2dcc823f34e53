"""Structured Streaming in real-time mode: the native query with another trigger."""

from __future__ import annotations

from spark_job import run

if __name__ == "__main__":
    run(trigger={"realTime": "5 minutes"}, output_mode="update")
