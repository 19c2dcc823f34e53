"""Joins and unions of streams, as Spark has analysed them.

Of a join's condition, the parts between AND are taken one by one: an equation of one expression per
side is a key; a comparison of both event times, one of them plus or minus a constant, is an end of
the span in which rows match; and anything else has to hold of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.expressions import require_same, text_of, untranslatable
from holdfast.driver.catalyst.native import Columns, Native

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.api.streams import Stream
    from holdfast.driver.catalyst.trees import Expression, Plan

_HOWS: Final = {
    "INNER": "inner",
    "LEFT OUTER": "left",
    "RIGHT OUTER": "right",
    "FULL OUTER": "full",
    "LEFT SEMI": "semi",
}
_UNBOUNDED_US: Final = 1 << 61
_COMPARED: Final = {
    "LessThan": (None, -1),
    "LessThanOrEqual": (None, 0),
    "GreaterThan": (1, None),
    "GreaterThanOrEqual": (0, None),
    "EqualTo": (0, 0),
}
"""Of the difference of the two sides: what is added to its least and to its greatest value."""
_TIMES: Final = ("TimestampAddInterval", "TimeAdd")


@dataclass(frozen=True, slots=True)
class JoinOfStreams:
    """A join of two streams.

    Attributes:
        spark: The session.
        plan: Spark's.
        left: What it reads.
        right: The same.
    """

    spark: SparkSession
    plan: Plan
    left: Native
    right: Native

    def joined(self, name: str) -> Native:
        """The stream of results, without a tuple time that Spark has, too.

        Raises:
            UnsupportedError: Holdfast has no such join.
        """
        word = str(self.plan.java.joinType().sql())
        how = _HOWS.get(word)
        if how is None:
            raise untranslatable(f"{word} JOIN of streams", f"there are {', '.join(_HOWS)}")
        keys: list[tuple[Expression, Expression]] = []
        others: list[Expression] = []
        lower_us, upper_us = -_UNBOUNDED_US, _UNBOUNDED_US
        condition = self.plan.option("condition")
        for each in [] if condition is None else _parts(condition):
            spans = [self._span(one) for one in _comparisons(each)]
            is_span = None not in spans
            for span in spans:
                if is_span and span is not None:
                    lower_us, upper_us = max(lower_us, span[0]), min(upper_us, span[1])
            key = self._key(each)
            if key is not None:
                keys.append(key)
            elif not is_span:
                others.append(each)
        is_bounded = lower_us > -_UNBOUNDED_US, upper_us < _UNBOUNDED_US
        if not keys:
            raise untranslatable("a join of two streams", "some column of both has to be equal")
        if not all(is_bounded) and how != "inner":
            raise untranslatable(
                f"{word} JOIN of streams",
                "both event times stand in its condition, with a least and a greatest distance",
            )
        left, right, on = self._keyed(keys)
        columns = self._columns()
        where = self._where(others, columns, how)
        if any(is_bounded):
            stream = left.join(
                right,
                on=on,
                select=columns.texts,
                how=how,
                within=(f"{lower_us} microseconds", f"{upper_us} microseconds"),
                where=where,
                name=name,
            )
        else:
            stream = left.join(right, on=on, select=columns.texts, name=name)
            stream = stream if where is None else stream.filter(where)
        return Native(stream, columns.names, None)

    def _key(self, part: Expression) -> tuple[Expression, Expression] | None:
        """The two sides of an equation of something of the left with something of the right."""
        if part.kind != "EqualTo":
            return None
        first, second = part.children
        if _is_of(first, self.left) and _is_of(second, self.right):
            return first, second
        if _is_of(first, self.right) and _is_of(second, self.left):
            return second, first
        return None

    def _span(self, part: Expression) -> tuple[int, int] | None:
        """How much later a right row may be, if the part compares the two event times."""
        if part.kind not in _COMPARED:
            return None
        one, other = map(_time, part.children)
        if one is None or other is None:
            return None
        (first, first_us), (second, second_us) = one, other
        least, greatest = _COMPARED[part.kind]
        apart_us = second_us - first_us  # first - second is compared with that.
        lower_us = -_UNBOUNDED_US if least is None else apart_us + least
        upper_us = _UNBOUNDED_US if greatest is None else apart_us + greatest
        if (first, second) == (self.right.time, self.left.time):
            return lower_us, upper_us
        if (first, second) == (self.left.time, self.right.time):
            return -upper_us, -lower_us
        return None

    def _keyed(
        self, keys: list[tuple[Expression, Expression]]
    ) -> tuple[Stream, Stream, list[tuple[str, str]]]:
        """Both streams with their keys as columns, and these by their names."""
        streams: list[Stream] = []
        names: list[list[str]] = []
        for number, side in enumerate((self.left, self.right)):
            own: list[str] = []
            made: list[str] = []
            for at, pair in enumerate(keys):
                tree = pair[number]
                column = side.names.get(tree.id) if tree.kind == "AttributeReference" else None
                if isinstance(column, str):
                    own.append(column)
                    continue
                require_same(self.spark, self.plan.children[number].java, tree)
                own.append(f"key_{at}")
                made.append(f"{text_of(tree, side.written)} AS key_{at}")
            streams.append(side.stream.select("*", *made) if made else side.stream)
            names.append(own)
        return streams[0], streams[1], list(zip(*names, strict=True))

    def _columns(self) -> Columns:
        """The output: columns of the left, and of the right."""
        columns = Columns()
        wanted = set(self.plan.output_ids)
        for word, side, plan in zip(
            ("left", "right"), (self.left, self.right), self.plan.children, strict=True
        ):
            for number, name in zip(plan.output_ids, _names(plan), strict=True):
                own = side.names[number]
                if number not in wanted:
                    continue
                if isinstance(own, tuple):
                    raise untranslatable("a join of two streams", f"column {name!r} is a window")
                columns.add(number, name, f"{word}.{quoted(own)}")
        return columns

    def _where(self, parts: list[Expression], columns: Columns, how: str) -> str | None:
        """What has to hold of pairs, over the output columns."""
        if not parts:
            return None
        if how == "semi":
            raise untranslatable(
                "LEFT SEMI JOIN of streams", "its condition has keys and times only"
            )
        made = replace(self.left, names=columns.names)
        for part in parts:
            require_same(self.spark, self.plan.java, part)
        return " AND ".join(text_of(part, made.written) for part in parts)


def united(plan: Plan, inputs: list[Native]) -> Native:
    """The union of streams, by the places of their columns; the first one names them."""
    first, *others = inputs
    ids = [child.output_ids for child in plan.children]
    names = [first.names[number] for number in ids[0]]
    flat = [each for name in names for each in ([name] if isinstance(name, str) else name)]
    times = {
        own.index(side.time) for own, side in zip(ids, inputs, strict=True) if side.time in own
    }
    if len(times) != 1:
        raise untranslatable("union", "the columns of the watermarks stand at one place")
    streams = [first.stream.select(*map(quoted, flat))]
    for side, own in zip(others, ids[1:], strict=True):
        texts: list[str] = []
        for number, name in zip(own, names, strict=True):
            found = side.names[number]
            if isinstance(found, tuple) or isinstance(name, tuple):
                raise untranslatable("union", "a column is a window")
            texts.append(f"{quoted(found)} AS {quoted(name)}")
        streams.append(side.stream.select(*texts))
    stream = streams[0].union(*streams[1:])
    made = dict(zip(plan.output_ids, names, strict=True))
    return Native(stream, made, plan.output_ids[times.pop()])


def _names(plan: Plan) -> list[str]:
    output = plan.java.output()
    return [str(output.apply(at).name()) for at in range(output.size())]


def _parts(tree: Expression) -> Iterator[Expression]:
    """What AND connects."""
    if tree.kind != "And":
        yield tree
        return
    for child in tree.children:
        yield from _parts(child)


def _comparisons(tree: Expression) -> list[Expression]:
    """The two that BETWEEN is; of anything else itself."""
    if tree.kind == "Between" and tree.children[0].kind == "With":
        body, *defined = tree.children[0].children
        if body.kind == "And" and len(defined) == 1:
            return [_with(each, defined[0].children[0]) for each in body.children]
    return [tree]


def _with(tree: Expression, meant: Expression) -> Expression:
    """A comparison whose reference to a common expression is that expression."""
    children = [meant if each.kind == "CommonExpressionRef" else each for each in tree.children]
    return tree.over(children)


def _is_of(tree: Expression, side: Native) -> bool:
    """Whether an expression reads columns of a side, and none else."""
    read = [each.id for each in tree.all() if each.kind == "AttributeReference"]
    return bool(read) and all(each in side.names for each in read)


def _time(tree: Expression) -> tuple[int, int] | None:
    """A column by its number, and what is added to it in microseconds."""
    if tree.kind == "AttributeReference":
        return tree.id, 0
    is_same = tree.kind == "Cast" and tree.fields["dataType"] == "timestamp"
    if is_same or "replacement" in tree.fields:
        return _time(tree.children[0]) if len(tree.children) == 1 else None
    if tree.kind in _TIMES:
        found, added_us = _time(tree.children[0]), _interval_us(tree.children[1])
        return None if found is None or added_us is None else (found[0], found[1] + added_us)
    return None


def _interval_us(tree: Expression) -> int | None:
    """Microseconds of a constant interval of days and less."""
    if tree.kind == "UnaryMinus":
        inner = _interval_us(tree.children[0])
        return None if inner is None else -inner
    kind = str(tree.fields.get("dataType", ""))
    units = kind.removeprefix("interval ").split(" to ")
    is_fixed = kind.startswith("interval ") and {*units} <= {"day", "hour", "minute", "second"}
    value = str(tree.fields.get("value", ""))
    is_number = value.lstrip("-").isdigit()
    return int(value) if tree.kind == "Literal" and is_fixed and is_number else None
