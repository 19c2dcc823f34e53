"""Classes of the user's that keep states per key: PySpark's `StatefulProcessor`, as it is written.

A class says in `init(handle)` which states it has. That is asked once where the dataflow is built,
of a copy of the class's object, and the answer travels with the dataflow: a node has no JVM that
could read a schema's text. On a node each operator has a copy of its own.

States are stored as JSON by their schemas; nothing is ever unpickled.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import pyarrow as pa

from holdfast.api.expressions.python_values import values_of
from holdfast.api.functions import FunctionError, batch_of
from holdfast.api.state_codecs import StateCodec, state_codec
from holdfast.core.model.nested_types import is_nested
from holdfast.core.model.users_code import USERS_CODE
from holdfast.core.operators.keyed_states import OF_ROW, OF_TIMER, OF_TTL, Scope, Timer
from holdfast.core.operators.process import Time
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    Schema: TypeAlias = pa.Schema | StructType | str

StateKind = Literal["value", "list", "map"]
RowKind = Literal["rows", "pandas"]
_WRITTEN: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_READ: Final = json.JSONDecoder().decode
_NO_TIMERS: Final = "there are no timers with time='none'; write time='event' or 'processing'"


@dataclass(frozen=True, slots=True)
class StateSpec:
    """A state that a class has said it keeps.

    Attributes:
        name: Its name.
        kind: One value per key, a list, or a map.
        schema: Of a value.
        key_schema: Of a key of a map.
        ttl_ms: How long a value lasts, by the clock; None: for ever.
    """

    name: str
    kind: StateKind
    schema: pa.Schema
    key_schema: pa.Schema | None = None
    ttl_ms: int | None = None

    def __str__(self) -> str:
        """By what a checkpoint location knows it."""
        parts = [self.kind, *([] if self.key_schema is None else [_columns(self.key_schema)])]
        parts += [_columns(self.schema), *([] if self.ttl_ms is None else [f"{self.ttl_ms} ms"])]
        return f"{self.name} {' '.join(parts)}"


@dataclass(frozen=True, slots=True)
class Processor:
    """A class's object, and what is known of it.

    Attributes:
        processor: The object.
        schema: Of its results.
        time: What its timers are of.
        rows: What it takes and gives: `Row` objects, or data frames of pandas.
        states: What it keeps.
    """

    processor: Any
    schema: pa.Schema
    time: Time
    rows: RowKind
    states: tuple[StateSpec, ...]

    @property
    def name(self) -> str:
        """The class's."""
        return type(self.processor).__qualname__

    @property
    def state_names(self) -> tuple[str, ...]:
        """Of what it keeps, in the order in which it is stored."""
        return tuple(spec.name for spec in self.states)

    def __str__(self) -> str:
        """By what a checkpoint location knows it."""
        return f"{self.name} of {self.rows}: {'; '.join(map(str, self.states)) or 'no states'}"

    def opened(self) -> OpenProcessor:
        """A copy for one operator."""
        return OpenProcessor(self)


def processor_of(
    processor: Any, schema: pa.Schema, time: str, rows: str, parse: Callable[[Any], pa.Schema]
) -> Processor:
    """What is to be known of a class's object.

    Args:
        processor: The object.
        schema: Of its results.
        time: What its timers are of.
        rows: What it takes and gives.
        parse: Makes an Arrow schema of one of Spark's, or of a text.

    Raises:
        DataflowError: It is no such object, or says something odd of its states.
        UnsupportedError: A state cannot be kept.
    """
    for word in ("init", "handleInputRows"):
        if not callable(getattr(processor, word, None)):
            raise DataflowError(
                f"process({processor!r}) takes an object of a class such as PySpark's "
                f"StatefulProcessor, with a method {word}"
            )
    if time not in ("none", "event", "processing"):
        raise DataflowError(f"process(time={time!r}); it is 'none', 'event' or 'processing'")
    if rows not in ("rows", "pandas"):
        raise DataflowError(f"process(rows={rows!r}); it is 'rows' or 'pandas'")
    asked = _Asking(parse, has_clock=time == "processing")
    other = _copied(processor)
    try:
        other.init(asked)
        if callable(getattr(other, "close", None)):
            other.close()
    except (DataflowError, UnsupportedError):
        raise
    except Exception as error:  # Whatever the user's code raises.
        raise DataflowError(f"process({processor!r}): init: {error}") from error
    states = tuple(asked.states.values())
    return Processor(processor, schema, cast("Time", time), cast("RowKind", rows), states)


@dataclass(frozen=True, slots=True)
class StoredStates:
    """What a class has stored, without the class: to be looked at."""

    states: tuple[str, ...]
    time: Time
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))

    def opened(self) -> Any:
        """Enough of a `KeyedFunction` for an operator that is only looked at."""
        return self


class _Asking:
    """The handle that writes down which states a class has."""

    def __init__(self, parse: Callable[[Any], pa.Schema], *, has_clock: bool) -> None:
        self._parse = parse
        self._has_clock = has_clock
        self.states: dict[str, StateSpec] = {}

    def getValueState(
        self, stateName: str, schema: Schema, ttlDurationMs: int | None = None
    ) -> None:
        self._add(stateName, "value", schema, None, ttlDurationMs)

    def getListState(
        self, stateName: str, schema: Schema, ttlDurationMs: int | None = None
    ) -> None:
        self._add(stateName, "list", schema, None, ttlDurationMs)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Schema,
        valueSchema: Schema,
        ttlDurationMs: int | None = None,
    ) -> None:
        self._add(stateName, "map", valueSchema, userKeySchema, ttlDurationMs)

    def deleteIfExists(self, stateName: str) -> None:
        self.states.pop(stateName, None)

    def _add(
        self, name: str, kind: StateKind, schema: Schema, key: Schema | None, ttl_ms: int | None
    ) -> None:
        if name in self.states:
            raise DataflowError(f"there are two states {name!r}")
        if ttl_ms is not None and ttl_ms <= 0:
            raise DataflowError(f"state {name!r} lasts {ttl_ms} milliseconds; more than none")
        if ttl_ms is not None and not self._has_clock:
            raise UnsupportedError(
                f"state {name!r} lasts {ttl_ms} milliseconds by the clock: write time='processing'"
            )
        key_schema = None if key is None else self._parse(key)
        found = StateSpec(name, kind, self._parse(schema), key_schema, ttl_ms)
        _Coding(found)  # Refuses what cannot be kept.
        self.states[name] = found


class _Coding:
    """How a state is stored."""

    def __init__(self, spec: StateSpec) -> None:
        self.spec = spec
        self._value = state_codec(spec.name, spec.schema)
        self._key: StateCodec | None = None
        if spec.key_schema is not None:
            self._key = state_codec(spec.name, spec.key_schema, is_key=True)

    def checked(self, value: Any) -> tuple[Any, ...]:
        """A value as it will be read again. Raises `FunctionError`."""
        return self._value.load(self._value.dump(value))

    def checked_key(self, key: Any) -> tuple[Any, ...]:
        """The same of a key of a map."""
        assert self._key is not None
        return self._key.load(self._key.dump(key))

    def dump(self, entries: Any) -> bytes | None:
        """Entries as they are stored; None: there are none."""
        if not entries:
            return None
        found: list[Any]
        if self._key is None:
            found = [[until, self._value.dump(value)] for until, value in entries]
        else:
            found = [
                [until, self._value.dump(value), self._key.dump(key)]
                for key, (until, value) in entries.items()
            ]
        return _WRITTEN(found).encode()

    def load(self, stored: bytes | None) -> Any:
        """The entries, each with the time up to which it lasts: a list, or of a map a dict."""
        found = [] if stored is None else _READ(stored.decode())
        if self._key is None:
            return [(until, self._value.load(value)) for until, value in found]
        return {
            self._key.load(key): (until, self._value.load(value)) for until, value, key in found
        }


class KeyScope:
    """What a key has, while a pass works on it; a `Scope`."""

    __slots__ = ("_changed", "_codings", "_loaded", "_stored", "key", "timers")

    def __init__(
        self,
        key: tuple[Any, ...],
        stored: list[bytes | None],
        timers: set[Timer],
        codings: list[_Coding],
    ) -> None:
        """As `KeyedFunction.scope`."""
        self.key = key
        self.timers = timers
        self._stored = stored
        self._codings = codings
        self._loaded: dict[int, Any] = {}
        self._changed: set[int] = set()

    def read(self, number: int) -> Any:
        """The entries of a state."""
        if number not in self._loaded:
            self._loaded[number] = self._codings[number].load(self._stored[number])
        return self._loaded[number]

    def write(self, number: int, entries: Any) -> None:
        """Give a state other entries."""
        self._loaded[number] = entries
        self._changed.add(number)

    def changes(self) -> list[tuple[int, bytes | None]]:
        """As of `Scope`; a state that is again as it was has not changed."""
        found: list[tuple[int, bytes | None]] = []
        for number in sorted(self._changed):
            stored = self._codings[number].dump(self._loaded[number])
            if stored != self._stored[number]:
                found.append((number, stored))
        return found

    def remember_until(self, until_ms: int) -> None:
        """Have a look at what lasts no longer, at this time at the latest."""
        if not any(kind == OF_TTL and time_ms <= until_ms for time_ms, kind in self.timers):
            self.timers.add((until_ms, OF_TTL))

    def forget(self, now_ms: int) -> None:
        """Let go of what lasts no longer."""
        ends: list[int] = []
        for number, coding in enumerate(self._codings):
            if coding.spec.ttl_ms is None:
                continue
            entries = self.read(number)
            pairs = entries.values() if isinstance(entries, dict) else entries
            if any(until <= now_ms for until, _ in pairs):
                self.write(number, _lasting(entries, now_ms))
            ends += [until for until, _ in pairs if until > now_ms]
        self.timers = {each for each in self.timers if each[1] != OF_TTL}
        if ends:
            self.timers.add((min(ends), OF_TTL))


def _lasting(entries: Any, now_ms: int) -> Any:
    """The entries that last beyond a time."""
    if isinstance(entries, dict):
        return {k: e for k, e in entries.items() if e[0] is None or e[0] > now_ms}
    return [e for e in entries if e[0] is None or e[0] > now_ms]


@dataclass(slots=True)
class _Turn:
    """What a class's handle and states are of now."""

    scope: KeyScope | None = None
    now_ms: int = -1
    watermark_ms: int = -1
    timer_kind: int = OF_ROW

    def key(self) -> KeyScope:
        if self.scope is None:
            raise FunctionError(
                "states belong to a key: use them while rows or a timer are handled"
            )
        return self.scope


class _State:
    """What states of all kinds have in common."""

    def __init__(self, turn: _Turn, number: int, coding: _Coding) -> None:
        self._turn = turn
        self._number = number
        self._coding = coding

    def exists(self) -> bool:
        """Whether there is anything."""
        return bool(self._entries())

    def clear(self) -> None:
        """Leave nothing."""
        self._put({} if self._coding.spec.kind == "map" else [])

    def _entries(self) -> Any:
        entries = self._turn.key().read(self._number)
        return entries if self._coding.spec.ttl_ms is None else _lasting(entries, self._turn.now_ms)

    def _put(self, entries: Any) -> None:
        self._turn.key().write(self._number, entries)

    def _entry(self, value: Any) -> tuple[int | None, tuple[Any, ...]]:
        checked, ttl_ms = self._coding.checked(value), self._coding.spec.ttl_ms
        if ttl_ms is None:
            return None, checked
        until_ms = self._turn.now_ms + ttl_ms
        self._turn.key().remember_until(until_ms)
        return until_ms, checked


class ValueState(_State):
    """One value per key; as PySpark's."""

    def get(self) -> tuple[Any, ...] | None:
        """The value; None: there is none."""
        entries = self._entries()
        return entries[0][1] if entries else None

    def update(self, newValue: Any) -> None:
        """Have this value."""
        self._put([self._entry(newValue)])


class ListState(_State):
    """A list of values per key; as PySpark's."""

    def get(self) -> Iterator[tuple[Any, ...]]:
        """The values."""
        return iter([value for _, value in self._entries()])

    def put(self, newState: list[Any]) -> None:
        """Have these values."""
        self._put([self._entry(each) for each in newState])

    def appendValue(self, newState: Any) -> None:
        """Have one more."""
        entries = self._entries()
        entries.append(self._entry(newState))
        self._put(entries)

    def appendList(self, newState: list[Any]) -> None:
        """Have these, too."""
        entries = self._entries()
        entries += [self._entry(each) for each in newState]
        self._put(entries)


class MapState(_State):
    """A map per key; as PySpark's. Its order is that in which keys came."""

    def getValue(self, key: Any) -> tuple[Any, ...] | None:
        """The value of a key; None: there is none."""
        found = self._entries().get(self._coding.checked_key(key))
        return None if found is None else found[1]

    def containsKey(self, key: Any) -> bool:
        """Whether there is one."""
        return self._coding.checked_key(key) in self._entries()

    def updateValue(self, key: Any, value: Any) -> None:
        """Have this value of a key."""
        entries = self._entries()
        entries[self._coding.checked_key(key)] = self._entry(value)
        self._put(entries)

    def removeKey(self, key: Any) -> None:
        """Have no such key."""
        entries = self._entries()
        entries.pop(self._coding.checked_key(key), None)
        self._put(entries)

    def iterator(self) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Keys with their values."""
        return iter([(key, value) for key, (_, value) in self._entries().items()])

    def keys(self) -> Iterator[tuple[Any, ...]]:
        """The keys."""
        return iter(list(self._entries()))

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The values."""
        return iter([value for _, value in self._entries().values()])


_STATES: Final = {"value": ValueState, "list": ListState, "map": MapState}


class Handle:
    """What a class is told in `init`; as PySpark's `StatefulProcessorHandle`."""

    def __init__(self, of: Processor, turn: _Turn, codings: list[_Coding]) -> None:
        """Hand out these states."""
        self._of = of
        self._turn = turn
        self._states = {
            coding.spec.name: _STATES[coding.spec.kind](turn, number, coding)
            for number, coding in enumerate(codings)
        }

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        """A state of one value."""
        del schema, ttlDurationMs
        return self._state(stateName, ValueState)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        """A state of a list."""
        del schema, ttlDurationMs
        return self._state(stateName, ListState)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Any,
        valueSchema: Any,
        ttlDurationMs: int | None = None,
    ) -> Any:
        """A state of a map."""
        del userKeySchema, valueSchema, ttlDurationMs
        return self._state(stateName, MapState)

    def deleteIfExists(self, stateName: str) -> None:
        """Nothing: a location goes on with the states that it was begun with."""

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Have a turn at this time; a second one of a time is none."""
        timers = self._timers()
        if self._of.time == "event" and expiryTimestampMs <= self._turn.watermark_ms:
            raise FunctionError(
                f"a timer of {expiryTimestampMs}, which is no later than the watermark, "
                f"{self._turn.watermark_ms}"
            )
        if not {(expiryTimestampMs, OF_ROW), (expiryTimestampMs, OF_TIMER)} & timers:
            timers.add((int(expiryTimestampMs), self._turn.timer_kind))

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Have no turn at this time."""
        self._timers().difference_update(
            {(expiryTimestampMs, OF_ROW), (expiryTimestampMs, OF_TIMER)}
        )

    def listTimers(self) -> Iterator[int]:
        """The times at which the key has a turn, in ascending order."""
        return iter(sorted(time_ms for time_ms, kind in self._timers() if kind != OF_TTL))

    def _timers(self) -> set[Timer]:
        if self._of.time == "none":
            raise FunctionError(_NO_TIMERS)
        return self._turn.key().timers

    def _state(self, name: str, kind: type[_State]) -> _State:
        found = self._states.get(name)
        if not isinstance(found, kind):
            raise FunctionError(f"init names other states on a node than before: {name!r}")
        return found


@dataclass(frozen=True, slots=True)
class TimerValues:
    """The times of a turn; as PySpark's. -1: the class's timers are of none."""

    now_ms: int
    watermark_ms: int

    def getCurrentProcessingTimeInMs(self) -> int:
        """The clock, if timers are of it."""
        return self.now_ms

    def getCurrentWatermarkInMs(self) -> int:
        """Up to where all rows have had their turn, if timers are of tuple time."""
        return self.watermark_ms


@dataclass(frozen=True, slots=True)
class ExpiredTimerInfo:
    """Which timer has its turn; as PySpark's."""

    time_ms: int

    def getExpiryTimeInMs(self) -> int:
        """Its time."""
        return self.time_ms


class OpenProcessor:
    """A class's object at work in an operator; a `KeyedFunction`."""

    def __init__(self, of: Processor) -> None:
        """Of a copy of the object."""
        self.schema = of.schema
        self.time = of.time
        self.states = of.state_names
        self._of = of
        self._codings = [_Coding(spec) for spec in of.states]
        self._turn = _Turn()
        with USERS_CODE.of(of.name):
            self._processor = _copied(of.processor)
            self._processor.init(Handle(of, self._turn, self._codings))
        self._make: Any = None

    def rows(self, batch: pa.RecordBatch) -> list[Any]:
        """`Row` objects, or a data frame for each row."""
        if self._of.rows == "pandas":
            return _frames(batch)
        if self._make is None:
            from pyspark.sql import Row

            self._make = Row(*batch.schema.names)
        columns = (values_of(c) if is_nested(c.type) else c.to_pylist() for c in batch.columns)
        return [self._make(*row) for row in zip(*columns, strict=True)]

    def scope(
        self, key: tuple[Any, ...], stored: list[bytes | None], timers: set[Timer]
    ) -> KeyScope:
        """What a key has."""
        return KeyScope(key, stored, timers, self._codings)

    def take(self, scope: Scope, row: Any, now_ms: int, watermark_ms: int) -> list[Any]:
        """The results for a row. Raises `FunctionError`."""
        assert isinstance(scope, KeyScope)
        key = scope.key
        self._begin(scope, now_ms, watermark_ms, OF_ROW)
        values = TimerValues(now_ms, watermark_ms)
        return self._given(lambda: self._processor.handleInputRows(key, iter([row]), values))

    def expire(self, scope: Scope, timer: Timer, now_ms: int, watermark_ms: int) -> list[Any]:
        """The results for a timer. Raises `FunctionError`."""
        assert isinstance(scope, KeyScope)
        key, (time_ms, kind) = scope.key, timer
        if kind == OF_TTL:
            scope.forget(now_ms)
            return []
        self._begin(scope, now_ms, watermark_ms, OF_TIMER)
        values, info = TimerValues(now_ms, watermark_ms), ExpiredTimerInfo(time_ms)
        found = self._given(lambda: self._processor.handleExpiredTimer(key, values, info))
        scope.timers.discard(timer)
        return found

    def batch(self, results: list[Any]) -> pa.RecordBatch:
        """Results, of the schema. Raises `FunctionError` if one is not."""
        names = self.schema.names
        rows = [{name: each.get(name) for name in names} for each in results]
        return batch_of(self._of.name, self.schema, rows)

    def _begin(self, scope: KeyScope, now_ms: int, watermark_ms: int, kind: int) -> None:
        turn = self._turn
        turn.scope, turn.now_ms, turn.watermark_ms, turn.timer_kind = (
            scope,
            now_ms,
            watermark_ms,
            kind,
        )

    def _given(self, call: Callable[[], Any]) -> list[Any]:
        """What a method gives, as dicts by column."""
        try:
            with USERS_CODE.of(self._of.name):
                found: list[Any] = []
                for each in call() or ():
                    found += self._dicts(each)
                return found
        except FunctionError as error:
            raise FunctionError(f"{self._of.name}: {error}") from error
        except Exception as error:  # Whatever the user's code raises.
            raise FunctionError(f"{self._of.name}: {type(error).__name__}: {error}") from error
        finally:
            self._turn.scope = None

    def _dicts(self, given: Any) -> list[dict[str, Any]]:
        if self._of.rows == "pandas":
            return _rows_of(given, self.schema)
        if isinstance(given, dict):
            return [given]
        if not hasattr(given, "asDict"):
            raise FunctionError(f"gave {given!r}; a result is a Row or a dict")
        return [given.asDict(True)]


def _frames(batch: pa.RecordBatch) -> list[Any]:
    """A data frame for each row, as Spark makes them."""
    frame = batch.to_pandas()
    for schema_field in batch.schema:
        if pa.types.is_timestamp(schema_field.type):
            frame[schema_field.name] = frame[schema_field.name].dt.tz_localize(None)
    return [frame.iloc[at : at + 1].reset_index(drop=True) for at in range(len(frame))]


def _rows_of(given: Any, schema: pa.Schema) -> list[dict[str, Any]]:
    """Rows of a data frame: by name, or, if its columns have no names, by place."""
    if not hasattr(given, "columns") or not hasattr(given, "iloc"):
        raise FunctionError(f"gave {type(given).__name__}, not a DataFrame of pandas")
    names = list(given.columns)
    if names and not all(isinstance(name, str) for name in names):
        given = given.set_axis(schema.names[: len(names)], axis=1)
    if len(given) and set(given.columns) < set(schema.names):
        raise FunctionError(
            f"gave columns {', '.join(map(str, names))}; its schema has {', '.join(schema.names)}"
        )
    table = pa.Table.from_pandas(given, preserve_index=False) if len(given) else None
    return [] if table is None else table.to_pylist()


def _copied(processor: Any) -> Any:
    try:
        return copy.deepcopy(processor)
    except Exception as error:  # Whatever the user's object raises.
        raise DataflowError(
            f"process({processor!r}): it cannot be copied, which is how it comes to nodes: {error}"
        ) from error


def _columns(schema: pa.Schema) -> str:
    return f"({', '.join(f'{each.name} {each.type}' for each in schema)})"
