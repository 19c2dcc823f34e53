"""Quix Streams without a broker: how far it comes."""

from __future__ import annotations

from contract import read, say
from quixstreams import Application

if __name__ == "__main__":
    job = read()
    say(started=0.0)
    Application(consumer_group=job.query, state_dir=job.state).run(timeout=10.0)
