"""What has changed from one page to the next, as a JSON merge patch. [RFC 7386] Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that makes `now` of `before`; neither holds None, which stands for "no more"."""
    patch: dict[str, Any] = {key: None for key in before if key not in now}
    for key, value in now.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if inner := difference(old, value):
                patch[key] = inner
        elif old != value:
            patch[key] = value
    return patch
