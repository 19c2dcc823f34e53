"""Patience with a store that is away for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from holdfast.shell.stores.base import StoreUnavailable

_T = TypeVar("_T")

_ATTEMPTS = 5
_RETRY_S = 0.2


def patiently(call: Callable[[], _T]) -> _T:
    """What a call gives that may be made again; asks a store that is away once more.

    Raises:
        StoreUnavailable: It was away for about three seconds.
    """
    for attempt in range(_ATTEMPTS - 1):
        try:
            return call()
        except StoreUnavailable:
            time.sleep(_RETRY_S * 2**attempt)  # Nothing tells when it is back.
    return call()
