"""Debezium's records in JSON: how rows of a database's table have changed.

A record has the row as it was (`before`), as it is (`after`), and what happened (`op`): `c` and `r`
are inserts, the latter of a snapshot; `u` is an update, and `d` a delete. It may come with its
schema or without. The schema says what a number stands for where a column is a time; without it
such numbers are of no known unit, and their records are bad. A date is a number of days.

What a change replaced must be known, as it is taken away again from whatever was computed of it. So
a record of an update or a delete without all of `before` is bad: PostgreSQL sends that of tables
with REPLICA IDENTITY FULL, MySQL with binlog_row_image=FULL.

A record without a value, which follows a delete in topics that are compacted, says nothing new; nor
does a message (`m`). A truncated table (`t`) does not say which rows it had; its record is bad.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from holdfast.core.model.changes import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

FORMAT: Final = "debezium"
CHANGE: Final = "kafka_change"
"""The column of the kind of change, in the log of the source."""
CHANGE_OF_LOG: Final = pa.field(CHANGE, pa.string())
_UNAVAILABLE: Final = "__debezium_unavailable_value"
_EPOCH: Final = dt.datetime(1970, 1, 1)
_OPERATIONS: Final = {
    "c": ((INSERT, "after"),),
    "r": ((INSERT, "after"),),
    "u": ((UPDATE_BEFORE, "before"), (UPDATE_AFTER, "after")),
    "d": ((DELETE, "before"),),
    "m": (),
}
_MOVED: Final = ((DELETE, "before"), (INSERT, "after"))
_FULL: Final = (
    "which was not sent: have the database send whole rows (REPLICA IDENTITY FULL, or "
    "binlog_row_image=FULL)"
)


class NoChange(ValueError):
    """A record is no change of a row; the message says why."""


def changes_of(
    value: bytes | None, columns: list[str], keys: Sequence[str] = ()
) -> list[tuple[str, bytes]]:
    """The changes that a record tells: their kinds, and the rows as JSON.

    Args:
        value: Of the record.
        columns: That a row should have.
        keys: Those that name a row of the table. An update that changes one is another row's.

    Raises:
        NoChange: It tells none, or not the whole of it.
    """
    if value is None:
        return []
    try:
        given = json.loads(value, parse_float=_Text)
    except (ValueError, RecursionError) as error:
        raise NoChange(f"it is no JSON: {error}") from None
    envelope = given.get("payload", given) if isinstance(given, dict) else given
    if isinstance(given, dict) and envelope is None:
        return []
    if not isinstance(envelope, dict) or envelope.get("op") not in _OPERATIONS:
        what = envelope.get("op") if isinstance(envelope, dict) else envelope
        raise NoChange(f"it is no change of a row that Holdfast knows: op is {what!r}")
    operations = _OPERATIONS[envelope["op"]]
    if len(operations) > 1 and _is_another(envelope, keys):
        operations = _MOVED
    return [
        (kind, _row(envelope.get(side), _types(given, side), columns, side))
        for kind, side in operations
    ]


def _is_another(envelope: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Whether the row has another key than it had."""
    before, after = envelope.get("before"), envelope.get("after")
    if not isinstance(before, dict) or not isinstance(after, dict):
        return False
    return any(before.get(key) != after.get(key) for key in keys)


class _Text(str):
    """A number with a point, to the digit."""

    __slots__ = ()


def _row(row: Any, types: Mapping[str, Any], columns: list[str], side: str) -> bytes:
    if not isinstance(row, dict):
        raise NoChange(f"it lacks the row {side!r}, {_FULL}")
    missing = [name for name in columns if name not in row]
    unavailable = [name for name in columns if row.get(name) == _UNAVAILABLE]
    if missing or unavailable:
        raise NoChange(f"its row {side!r} lacks {', '.join(missing + unavailable)}, {_FULL}")
    found = {name: _plain(row[name], types.get(name)) for name in columns}
    try:
        return _encoded(found)
    except RecursionError:
        raise NoChange(f"its row {side!r} is nested too deeply") from None


def _encoded(row: Mapping[str, Any]) -> bytes:
    """JSON in which numbers stand as they stood."""
    return ("{" + ",".join(f"{json.dumps(k)}:{_value(v)}" for k, v in row.items()) + "}").encode()


def _value(value: Any) -> str:
    match value:
        case _Text():
            return str(value)
        case dict():
            return _encoded(value).decode()
        case list():
            return f"[{','.join(map(_value, value))}]"
        case _:
            return json.dumps(value)


def _types(given: Mapping[str, Any], side: str) -> dict[str, Any]:
    """By column what its schema says of it, if there is one."""
    envelope = given.get("schema")
    if not isinstance(envelope, dict):
        return {}
    sides = [each for each in envelope.get("fields") or () if each.get("field") == side]
    return {each["field"]: each for side in sides for each in side.get("fields") or ()}


def _plain(value: Any, said: Mapping[str, Any] | None) -> Any:
    """A value as JSON has it elsewhere, by what the schema says it stands for."""
    name = "" if said is None else str(said.get("name") or "")
    if value is None or name not in _MEANINGS:
        return value
    assert said is not None
    try:
        return _MEANINGS[name](value, said.get("parameters") or {})
    except (ValueError, TypeError, ArithmeticError) as error:
        raise NoChange(f"{value!r} is no {name}: {error}") from None


def _moment(units: int) -> Callable[[Any, Mapping[str, Any]], str]:
    def meaning(value: Any, _: Mapping[str, Any]) -> str:
        micros, rest = divmod(value * 1_000_000, units)
        if rest:
            raise ValueError("it is finer than a microsecond")
        return (_EPOCH + dt.timedelta(microseconds=micros)).isoformat(" ", "microseconds")

    return meaning


def _decimal(value: Any, parameters: Mapping[str, Any]) -> str:
    unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    return f"{Decimal(unscaled).scaleb(-int(parameters['scale'])):f}"


_MEANINGS: Final[dict[str, Callable[[Any, Mapping[str, Any]], str]]] = {
    "io.debezium.time.Timestamp": _moment(1_000),
    "org.apache.kafka.connect.data.Timestamp": _moment(1_000),
    "io.debezium.time.MicroTimestamp": _moment(1_000_000),
    "io.debezium.time.NanoTimestamp": _moment(1_000_000_000),
    "org.apache.kafka.connect.data.Decimal": _decimal,
}
"""What columns stand for whose JSON does not show it, by the name that their schema has."""
