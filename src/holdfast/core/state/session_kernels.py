"""The inner loops of sessions and of what comes first: rows are taken one after the other.

Conventions as in `kernels.py`, but nothing here touches pages.
"""

# Signatures are numba's; to mypy, machine words and Python integers are different types.
# mypy: disable-error-code="no-any-return,return-value,assignment,arg-type"

from __future__ import annotations

import numpy as np

from holdfast.core.state.kernels import kernel


@kernel(
    "int64(int64[::1], int64[::1], int64, int64, int64[::1], int64[::1], int64[::1], int64[::1],"
    " int64[::1], int64, int64[::1], int64[:,::1])"
)
def assign_sessions(
    keys: np.ndarray,
    time_us: np.ndarray,
    gap_us: int,
    begun: int,
    heads: np.ndarray,
    links: np.ndarray,
    earliest: np.ndarray,
    latest: np.ndarray,
    begins: np.ndarray,
    sessions: int,
    places: np.ndarray,
    merges: np.ndarray,
) -> int:
    """Put rows into sessions, one row after the other. Returns how many merges there are.

    Args:
        keys: int64 (n,), each row's key, counted from 0; `time_us` its time.
        gap_us: A row belongs to a session if one of its rows is at most so far away.
        begun: What a session has begun with whose first row is row 0.
        heads: int64 (keys,), per key a session; -1: none. Changed.
        links: int64 (sessions + n,), the next one of a session's key; -1: none. Changed, as are
        earliest, latest, begins: the times of its earliest and latest row, and when it began.
        sessions: How many there are before these rows.
        places: int64 (n,), receives each row's session at that moment.
        merges: int64 (n, 3), receives a row's number, and of the two sessions that it is near the
            one that stays, and the one that becomes part of that before it.
    """
    merged = 0
    for i in range(len(keys)):
        key, t = keys[i], time_us[i]
        into, before = np.int64(-1), np.int64(-1)
        session = heads[key]
        while session >= 0:
            follower = links[session]
            if earliest[session] - gap_us <= t <= latest[session] + gap_us:
                if into < 0:
                    into = before = session
                else:
                    merges[merged, 0], merges[merged, 1], merges[merged, 2] = i, into, session
                    merged += 1
                    earliest[into] = min(earliest[into], earliest[session])
                    latest[into] = max(latest[into], latest[session])
                    begins[into] = min(begins[into], begins[session])
                    links[before] = follower
            else:
                before = session
            session = follower
        if into < 0:
            into = sessions
            sessions += 1
            links[into] = heads[key]
            heads[key] = into
            earliest[into] = latest[into] = t
            begins[into] = begun + i
        else:
            earliest[into] = min(earliest[into], t)
            latest[into] = max(latest[into], t)
        places[i] = into
    return merged


@kernel("void(int64[::1], int64[::1], int64, int64, int64[::1], uint8[::1])")
def keep_first(
    keys: np.ndarray,
    time_us: np.ndarray,
    within_us: int,
    forever_us: int,
    until: np.ndarray,
    is_first: np.ndarray,
) -> None:
    """Which rows are no copies of one before them.

    Args:
        keys: int64 (n,), each row's key, counted from 0.
        time_us: int64 (n,), its time.
        within_us: Rows less than so much later are copies; negative: all are.
        forever_us: Later than any time.
        until: int64 (keys,), per key the time before which rows are copies. Changed.
        is_first: uint8 (n,), receives 1 for rows that are none.
    """
    for i in range(len(keys)):
        is_first[i] = time_us[i] >= until[keys[i]]
        if is_first[i]:
            until[keys[i]] = forever_us if within_us < 0 else time_us[i] + within_us
