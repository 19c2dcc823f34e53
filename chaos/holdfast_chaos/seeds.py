"""Seeds as the commands of real runs take them."""

from __future__ import annotations


def seeds_in(text: str) -> range:
    """`FROM:TO`, TO excluded, or a single one. Raises `ValueError` for what are no numbers."""
    first, _, stop = text.partition(":")
    return range(int(first), int(stop or int(first) + 1))
