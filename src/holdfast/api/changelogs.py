"""Operators over changelogs, made of those that there are.

A table by its changes is a sum: what came in counts one, what went counts minus one. Sums may be
taken in any order, so that whatever is linear in its input may be computed of the changes: filters,
projections, unions, pairs of a join (whose signs multiply), counts and sums. A minimum is not: it
would have to know what is left. What is not linear, or has to see a row once, refuses changelogs.

An outer join is a sum of such parts. Its left rows without match are all left rows, less those
whose key the other side has, and which keys that has is a changelog again:

    left join = pairs + (left rows, null) - (left rows whose key the right side has, null)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from holdfast.api import steps
from holdfast.api.clauses import parse_aggregate, parse_join_field
from holdfast.api.expressions import compile_expression
from holdfast.api.expressions.types import name_of
from holdfast.api.joins import joined
from holdfast.api.steps import Aggregate, Changelog
from holdfast.core.model.changes import CHANGE_COLUMN, DELETE, INSERT, came
from holdfast.core.model.column_names import quoted
from holdfast.errors import DataflowError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.api.expressions import CompiledExpression
    from holdfast.api.steps import Operation, Step
    from holdfast.api.streams import Stream

_CAME: Final = came(CHANGE_COLUMN)
_SIGN: Final = f"CASE WHEN {_CAME} THEN 1 ELSE -1 END"
_PRESENCE: Final = "rows there are"
_ROWS: Final = None
"""What is known of rows that are no changes."""
_OF_CHANGES: Final = ("count", "sum", "avg")
_SIDES: Final = ("left", "right")


def require_rows(operation: Operation, inputs: Sequence[Step]) -> None:
    """Raise `UnsupportedError` for an operator that would take changes for rows."""
    if any(step.changelog for step in inputs):
        raise UnsupportedError(
            f"{operation.WORD.replace('_', ' ')} of a changelog: its results would be those of the "
            "changes, not of the rows that there are; as_feed() makes rows of changes, with their "
            "kind as a column"
        )


def require_no_changes(schema: pa.Schema, what: str) -> None:
    """Raise `DataflowError` for a column of rows that only changes have."""
    if CHANGE_COLUMN in map(str.lower, schema.names):
        raise DataflowError(
            f"{what}: a column {CHANGE_COLUMN!r} is that of changelogs; rename it, e.g. with AS"
        )


def _require_of_rows(columns: Iterable[str], what: str) -> None:
    """Raise `UnsupportedError` for what makes of a row that goes another one than that came."""
    if CHANGE_COLUMN in columns:
        raise UnsupportedError(
            f"{what} of a changelog goes by {CHANGE_COLUMN}: it would not take away what it had "
            "given; as_feed() makes rows of changes, with their kind as a column"
        )


def kept_by_filter(of: Changelog | None, columns: Sequence[str] = ()) -> Changelog | None:
    """What is known behind a filter by some columns: of an update it may drop either row.

    Raises:
        UnsupportedError: It goes by the kind of a change.
    """
    if of is None:
        return None
    _require_of_rows(columns, "filter")
    return Changelog(of.keys, is_paired=False)


def kept_by_select(
    of: Changelog | None, expressions: Sequence[CompiledExpression]
) -> Changelog | None:
    """What is known behind a projection: keys that it hands on are still some.

    Raises:
        UnsupportedError: A column is computed of the kind of a change.
    """
    if of is None:
        return None
    for each in expressions:
        if each.name != CHANGE_COLUMN:
            _require_of_rows(each.columns, f"select({each.sql!r})")
    names = {e.columns[0]: e.name for e in expressions if e.columns and e.sql in _ways(e)}
    keys = of.keys if of.keys is not None and all(key in names for key in of.keys) else None
    return Changelog(None if keys is None else tuple(names[key] for key in keys), of.is_paired)


def _ways(expression: CompiledExpression) -> tuple[str, str]:
    """How a column alone is written."""
    return expression.columns[0], quoted(expression.columns[0])


def kept_by_union(inputs: Sequence[Step]) -> Changelog | None:
    """What is known of a union: rows of several tables may have the same key."""
    changelogs = [step.changelog for step in inputs if step.changelog is not None]
    if not changelogs:
        return None
    return Changelog(None, is_paired=all(each.is_paired for each in changelogs))


def upsert_keys(of: Changelog, given: Sequence[str], sink: str) -> tuple[str, ...]:
    """The columns by which a sink replaces and deletes rows of a table.

    Args:
        of: What is known of the table's changes.
        given: What the user names; none: all that is known.
        sink: For messages.

    Raises:
        UnsupportedError: Changes of one key may come in any order, or the table has no key.
        DataflowError: Other columns than its own are named.
    """
    if not of.keys:
        raise UnsupportedError(
            f"{sink}: a changelog is written by its key, and this one has none, as that of a join, "
            "a union or an aggregate without key_by; as_feed() writes its changes as rows"
        )
    if given and {*given} != {*of.keys}:  # An update may change any other column.
        raise DataflowError(
            f"{sink}: key={tuple(given)!r}; what names a row of the table is {', '.join(of.keys)}"
        )
    return tuple(given) or of.keys


# -- aggregates ------------------------------------------------------------------------------------


def aggregated(stream: Stream, aggregates: Sequence[str], name: str) -> Stream:
    """`aggregate(emit="changelog")` without windows.

    Raises:
        DataflowError: Something is no aggregate.
        UnsupportedError: An aggregate over changes is none that can be taken back.
    """
    if stream.windows is not None:
        raise UnsupportedError("aggregate(emit='changelog') has no windows; leave window(...) out")
    if stream.step.changelog is not None:
        return _of_changes(stream, aggregates, name)
    parsed = tuple(parse_aggregate(text, stream.schema) for text in aggregates)
    presence = Aggregate("count", None, _PRESENCE, "count(*)")
    return _changing(stream, parsed, presence, name)


def _changing(
    stream: Stream, aggregates: tuple[Aggregate, ...], presence: Aggregate, name: str
) -> Stream:
    if not aggregates:
        raise DataflowError("aggregate needs at least one aggregate, e.g. 'count(*) AS n'")
    operation = steps.RunningAggregate(stream.keys, aggregates, presence)
    changelog = Changelog(stream.keys, is_paired=True)
    return stream._stateful(operation, name, (stream.step,), changes=changelog)


def _of_changes(stream: Stream, aggregates: Sequence[str], name: str) -> Stream:
    """Counts and sums, each by what a change adds to it or takes away from it."""
    schema = stream.schema
    _require_of_rows(stream.keys, "key_by")
    summed: list[Aggregate] = []
    results = [quoted(key) for key in stream.keys]
    for number, text in enumerate(aggregates):
        of = parse_aggregate(text, schema)
        _require_of_rows(() if of.expression is None else of.expression.columns, repr(text))
        value = None if of.expression is None else f"({of.expression.sql})"
        counted = _SIGN if value is None else f"CASE WHEN {value} IS NULL THEN 0 ELSE {_SIGN} END"
        summed.append(parse_aggregate(f"sum({counted}) AS count_{number}", schema))
        result = f"count_{number}"
        if of.function != "count":
            assert of.expression is not None
            change = _signed(of, of.expression, text)
            summed.append(parse_aggregate(f"sum({change}) AS sum_{number}", schema))
            whole = f"sum_{number}"
            if of.function == "avg":
                whole = f"CAST(sum_{number} AS DOUBLE) / count_{number}"
            result = f"CASE WHEN count_{number} > 0 THEN {whole} END"
        results.append(f"{result} AS {quoted(of.name)}")
    presence = replace(parse_aggregate(f"sum({_SIGN}) AS there", schema), name=_PRESENCE)
    return _changing(stream, tuple(summed), presence, name).select(*results)


def _signed(of: Aggregate, expression: CompiledExpression, text: str) -> str:
    """What a change adds to a sum."""
    kind, value = expression.type, f"({expression.sql})"
    is_exact = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and of.function == "sum")
    if of.function not in _OF_CHANGES or not is_exact:
        raise UnsupportedError(
            f"{text!r} over a changelog: there are count, count_if, sum of whole numbers and "
            f"decimals, and avg of whole numbers, which give back exactly what was added; not "
            f"{of.function} of {name_of(kind)}"
        )
    if pa.types.is_integer(kind):
        value = f"CAST({value} AS BIGINT)"
    return f"CASE WHEN {_CAME} THEN {value} ELSE - {value} END"


# -- joins -----------------------------------------------------------------------------------------


def joined_changes(
    left: Stream,
    right: Stream,
    *,
    on: Sequence[tuple[str, str]],
    select: Sequence[str],
    how: str,
    name: str,
) -> Stream:
    """A join without windows whose results change; arguments as of `Stream.join`.

    Raises:
        UnsupportedError: There is none such.
    """
    if how not in ("inner", "left", "right", "full"):
        raise UnsupportedError(
            f"join(how={how!r}, emit='changelog'): it is 'inner', 'left', 'right' or 'full'"
        )
    name = left.flow.unique_name(name)
    fields = [parse_join_field(text, left.schema, right.schema) for text in select]
    for side, stream in zip(_SIDES, (left, right), strict=True):
        if stream.step.changelog is not None:
            _require_of_rows([pair[_SIDES.index(side)] for pair in on], "join")
            _require_of_rows([column for at, column, _ in fields if at == side], "join")
    parts = [_pairs(left, right, on, select, name)]
    if how in ("left", "full"):
        parts[:0] = _alone(left, right, on, fields, "left", name)
    if how in ("right", "full"):
        turned = [(theirs, mine) for mine, theirs in on]
        parts[:0] = _alone(right, left, turned, fields, "right", name)
    if len(parts) == 1:
        return parts[0]
    return parts[0].unit(f"{name}-all").union(*parts[1:])


def _pairs(
    left: Stream,
    right: Stream,
    on: Sequence[tuple[str, str]],
    select: Sequence[str],
    name: str,
) -> Stream:
    """All pairs: one comes when both rows are there, and goes when one of them goes."""
    sides = dict(zip(_SIDES, (left, right), strict=True))
    marks = [side for side, stream in sides.items() if stream.step.changelog is not None]
    wanted = [*select, *(f"{side}.{CHANGE_COLUMN} AS _{side}_change" for side in marks)]
    pairs = _joined(left, right, on, wanted, name)
    names = [quoted(each) for each in pairs.schema.names[: len(select)]]
    both = [f"({came(f'_{side}_change')})" for side in marks]
    return _marked(pairs, names, " = ".join(both) if both else "true")


def _marked(rows: Stream, columns: Sequence[str], where: str) -> Stream:
    """Rows as a changelog: they come where a condition holds, and go elsewhere."""
    kind = f"CASE WHEN {where} THEN '{INSERT}' ELSE '{DELETE}' END AS {CHANGE_COLUMN}"
    return rows._projected([*columns, kind], Changelog(None, is_paired=False))


def _joined(
    left: Stream,
    right: Stream,
    on: Sequence[tuple[str, str]],
    select: Sequence[str],
    name: str,
) -> Stream:
    """The pairs of whatever has ever come on both sides, as rows."""
    operation = joined(left, right, on=on, select=select, how="inner", emit="final", within=None,
                       where=None)  # fmt: skip
    return left._stateful(operation, name, (left.step, right.step), changes=_ROWS)


def _alone(
    own: Stream,
    other: Stream,
    on: Sequence[tuple[str, str]],
    fields: Sequence[tuple[str, str, str]],
    side: str,
    name: str,
) -> list[Stream]:
    """The rows of one side that have no match, the columns of the other side null."""
    own_came = "true" if own.step.changelog is None else _CAME
    types = {named: other.schema.field(column).type for at, column, named in fields if at != side}
    texts = [
        f"{quoted(column)} AS {quoted(named)}"
        if at == side
        else f"CAST(NULL AS {name_of(types[named])}) AS {quoted(named)}"
        for at, column, named in fields
    ]
    every = _marked(own, texts, own_came)
    keys = tuple(theirs for _, theirs in on)
    counted = other.key_by(*keys)
    known = aggregated(counted, ["count(*) AS n"], f"{name}-keys-{_other(side)}")
    # A key that stays says nothing new.
    says_new = compile_expression(f"{CHANGE_COLUMN} IN ('{INSERT}', '{DELETE}')", known.schema)
    changes = kept_by_filter(known.step.changelog)
    known = known._then(steps.Filter(says_new), known.schema, changes=changes)
    wanted = [f"left.{quoted(column)} AS {quoted(named)}" for at, column, named in fields
              if at == side]  # fmt: skip
    marks = [f"right.{CHANGE_COLUMN} AS _known_change"]
    if own.step.changelog is not None:
        marks.append(f"left.{CHANGE_COLUMN} AS _own_change")
    matched = _joined(own, known, on, [*wanted, *marks], f"{name}-{side}")
    taken = {named: quoted(named) for at, _, named in fields if at == side}
    nulls = [
        taken[named] if at == side else text
        for (at, _, named), text in zip(fields, texts, strict=True)
    ]
    went = "_known_change = '" + DELETE + "'"
    if own.step.changelog is not None:
        went = f"({went}) = ({came('_own_change')})"
    return [every, _marked(matched, nulls, went)]


def _other(side: str) -> str:
    return _SIDES[1 - _SIDES.index(side)]
