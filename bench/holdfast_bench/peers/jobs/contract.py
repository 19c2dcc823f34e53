"""What every peer's script is told and what it tells; standard library only.

A script is called with the path of one JSON file, which `read` gives as a `Job`. It runs until its
input is read, or for ever where a peer knows no end or `follows` is set. What it has to tell are
lines of JSON on its standard output, written by `say`:

    started      seconds since the epoch when the engine began to read
    seconds      how long the engine worked, where the engine itself knows better
    victims      ids of the processes to be killed, where not all of them are to be
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

MARK = "@"
BID_COLUMNS = "auction BIGINT, bidder BIGINT, price BIGINT, made_us BIGINT"
"""Of a bid in a topic, an object of JSON; results have the newest `made_us` they depend on."""


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        query: `q1`, `q3`, `q8` or `q12`.
        inputs: A folder per kind of event that the query reads.
        output: Folder for the results.
        state: Folder for whatever must outlive a crash. Found full, the job goes on from there.
        follows: Whether more files come as long as the job runs.
        warm_up: Smaller inputs to run first, for engines that compile while they run.
        files_at_once: For engines that take their input in micro-batches, how many files of each
            kind one should have, unless the job follows.
        scratch: Folder for what nobody needs later.
        servers: Kafka's brokers, if `inputs` and `output` are topics rather than folders.
        jars: What its JVM needs beside its packages, separated by commas.
    """

    query: str
    inputs: dict[str, str]
    output: str
    state: str
    follows: bool
    warm_up: dict[str, str] | None
    files_at_once: int
    scratch: str
    servers: str = ""
    jars: str = ""


def read(path: str | None = None) -> Job:
    """The job, from the file named on the command line."""
    with open(path or sys.argv[1]) as file:
        return Job(**json.load(file))


def say(**facts: object) -> None:
    """Tell the benchmark something."""
    sys.stdout.write(MARK + json.dumps(facts) + "\n")
    sys.stdout.flush()
