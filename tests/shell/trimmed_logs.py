"""What tests of trimming ask of a log, wherever it lies."""

from __future__ import annotations

from holdfast.shell.storage.logs import open_reader


def read(place: str, from_id: int) -> list[int]:
    """The first column from an id on, as far as the log is written."""
    reader = open_reader(place, from_id)
    found: list[int] = []
    while batches := reader.poll():
        found += [v for logged in batches for v in logged.batch.column(0).to_pylist()]
    reader.close()
    return found


def lead() -> None:
    """This driver leads."""
