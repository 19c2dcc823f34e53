"""Places of sinks with feeds as offsets of Spark's: names and numbers."""

from __future__ import annotations

from holdfast.shell.storage.feed_log import Place


def offset_of(places: dict[int, Place]) -> dict[str, int]:
    """What Spark keeps of the places of partitions."""
    named = [(n, name, at) for n, place in places.items() for name, at in place._asdict().items()]
    return {f"{n}.{name}": int(at) for n, name, at in named}


def place_in(offset: dict[str, int], partition: int) -> Place:
    """Of one partition; one that an offset does not know had nothing."""
    stable, feed, stands = (offset.get(f"{partition}.{name}", 0) for name in Place._fields)
    return Place(stable, feed, bool(stands))
