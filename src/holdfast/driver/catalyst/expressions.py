"""Spark's analysed expressions as texts that Holdfast compiles.

A text is used only if Spark reads it as the very same expression: the text is analysed by Spark
over the same columns, and the two trees are compared by Spark. So a text cannot mean another thing
than the tree that it was made of; and Holdfast computes of a text what Spark does, or refuses it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from holdfast.api.expressions import SUPPORTED_FUNCTIONS
from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.trees import PYTHON_UDF, Expression, frame_of
from holdfast.errors import UnsupportedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Written = Callable[[Expression], str | None]
"""How a column, or what else is computed already, is written; None: it is neither."""

_INFIX: Final = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "IntegralDivide": "DIV",
    "Remainder": "%",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "And": "AND",
    "Or": "OR",
    "Like": "LIKE",
    "TimestampAddInterval": "+",
    "TimeAdd": "+",
}
_PATTERNS: Final = {
    "Not": "(NOT {})",
    "IsNull": "({} IS NULL)",
    "IsNotNull": "({} IS NOT NULL)",
    "UnaryMinus": "(- {})",
    "UnaryPositive": "(+ {})",
}
_AGGREGATES: Final = {
    "Count": "count",
    "Sum": "sum",
    "Min": "min",
    "Max": "max",
    "Average": "avg",
    "First": "first",
    "Last": "last",
    "MinBy": "min_by",
    "MaxBy": "max_by",
    "StddevSamp": "stddev_samp",
    "StddevPop": "stddev_pop",
    "VarianceSamp": "var_samp",
    "VariancePop": "var_pop",
    "BoolAnd": "bool_and",
    "BoolOr": "bool_or",
    "CountIf": "count_if",
    "BitAndAgg": "bit_and",
    "BitOrAgg": "bit_or",
    "BitXorAgg": "bit_xor",
    "CollectList": "collect_list",
    "CollectSet": "collect_set",
    "Median": "median",
    "Percentile": "percentile",
    "ApproximatePercentile": "approx_percentile",
}
_ARGUMENTS: Final = {"MinBy": 2, "MaxBy": 2, "Percentile": 3, "ApproximatePercentile": 3}
"""How many an aggregate has, if it is more than one."""
_FUNCTIONS: Final = frozenset(name.lower() for name in SUPPORTED_FUNCTIONS)


def untranslatable(what: str, why: str) -> UnsupportedError:
    """The refusal of a clause: its name, and the reason with what would work."""
    return UnsupportedError(f"from_dataframe: {what}: {why}")


def text_of(tree: Expression, written: Written) -> str:
    """The expression as Spark SQL, in parentheses wherever it needs any.

    Raises:
        UnsupportedError: It holds something that Holdfast does not compute.
    """
    own = written(tree)
    if own is not None:
        return own
    parts = tree.children
    match tree.kind:
        case "Literal":
            return str(tree.java.sql())
        case "Cast":
            return f"CAST({text_of(parts[0], written)} AS {tree.java.dataType().sql()})"
        case "CaseWhen":
            return _case([text_of(each, written) for each in parts])
        case "GetStructField":
            return f"{text_of(parts[0], written)}.{quoted(_field_of(tree))}"
        case "GetArrayItem" | "GetMapValue":
            return f"{text_of(parts[0], written)}[{text_of(parts[1], written)}]"
        case "LambdaFunction":
            body, *names = (text_of(each, written) for each in parts)
            given = names[0] if len(names) == 1 else f"({', '.join(names)})"
            return f"{given} -> {body}"
        case "NamedLambdaVariable":
            return tree.name
        case "In":
            value, *listed = (text_of(each, written) for each in parts)
            return f"({value} IN ({', '.join(listed)}))"
        case kind if kind in _INFIX:
            left, right = (text_of(each, written) for each in parts)
            return f"({left} {_INFIX[kind]} {right})"
        case kind if kind in _PATTERNS:
            return _PATTERNS[kind].format(*(text_of(each, written) for each in parts))
        case _ if "replacement" in tree.fields and len(parts) == 1:
            return text_of(parts[0], written)  # Spark computes that in its place.
    if tree.kind == "AttributeReference":
        raise untranslatable(f"column {tree.name!r}", "Holdfast does not have it here")
    if tree.kind == PYTHON_UDF:
        raise untranslatable(
            f"Python UDF {tree.java.name()}",
            "it has to be a column by itself here: df.withColumn('x', ...) before, and then 'x'",
        )
    name = str(tree.java.prettyName())
    if name not in _FUNCTIONS:
        raise untranslatable(
            str(tree.java.sql()), f"{name} is not among the functions of docs/expressions.md"
        )
    return f"{name}({', '.join(text_of(each, written) for each in parts)})"


def _field_of(tree: Expression) -> str:
    """The name of the field that is taken out of a struct, as the struct has it."""
    struct = tree.java.child().dataType()
    return str(struct.apply(int(tree.fields["ordinal"])).name())


def aggregate_text_of(tree: Expression, written: Written) -> str:
    """An aggregate function of an expression, as Holdfast takes it.

    Raises:
        UnsupportedError: There is no such aggregate.
    """
    function, *condition = tree.children
    what = str(tree.java.sql())
    name = _AGGREGATES.get(function.kind)
    if name is None:
        raise untranslatable(what, f"there are {', '.join(_AGGREGATES.values())}")
    if len(function.children) != _ARGUMENTS.get(function.kind, 1):
        raise untranslatable(what, "it takes one expression")
    if function.kind in ("CollectList", "CollectSet") and not function.fields.get(
        "ignoreNulls", True
    ):
        raise untranslatable(what, "nulls are left out; take coalesce(...) of them")
    is_distinct = bool(tree.fields["isDistinct"])
    if is_distinct and name != "count":
        raise untranslatable(what, "of distinct values there is count alone")
    first = function.children[0]
    arguments = [text_of(each, written) for each in function.children]
    text = ", ".join(arguments)
    if name == "count" and first.kind == "Literal" and first.fields["value"] is not None:
        text = "*"
    if function.kind in ("First", "Last") and function.fields["ignoreNulls"]:
        text = f"{text}, true"
    filtered = f" FILTER (WHERE {text_of(condition[0], written)})" if condition else ""
    return f"{name}({'DISTINCT ' if is_distinct else ''}{text}){filtered}"


def as_spark_names_it(tree: Expression) -> str | None:
    """How Spark writes a column, and an aggregate."""
    if tree.kind == "AttributeReference":
        return quoted(tree.name)
    if tree.kind == "GetStructField":
        inner = as_spark_names_it(tree.children[0])
        return None if inner is None else f"{inner}.{quoted(str(tree.fields['name']))}"
    if tree.kind == "AggregateExpression":
        return aggregate_text_of(tree, as_spark_names_it)
    return None


def require_same(spark: SparkSession, below: Any, tree: Expression, *keys: str) -> None:
    """Raise `UnsupportedError` unless Spark reads the text of an expression as that expression.

    Args:
        spark: The session.
        below: The JVM's plan whose columns it reads.
        tree: The expression.
        keys: Texts by which an aggregate groups.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    text = text_of(tree, as_spark_names_it)
    frame = frame_of(spark, below)
    has_aggregates = any(each.kind == "AggregateExpression" for each in tree.all())
    try:
        if keys or has_aggregates:
            read = frame.groupBy(*map(F.expr, keys)).agg(F.expr(text))._jdf
            found = read.queryExecution().analyzed().aggregateExpressions().last()
        else:
            read = frame.select(F.expr(text))._jdf
            found = read.queryExecution().analyzed().projectList().last()
    except PySparkException as error:
        raise untranslatable(text, str(error).splitlines()[0]) from None
    if found.getClass().getSimpleName() == "Alias":
        found = found.child()
    if not found.canonicalized().equals(tree.java.canonicalized()):
        raise untranslatable(
            str(tree.java.sql()), f"read again it would be {found.sql()}, another expression"
        )


def _case(parts: list[str]) -> str:
    otherwise = f" ELSE {parts[-1]}" if len(parts) % 2 else ""
    pairs = zip(parts[0::2], parts[1::2], strict=False)
    branches = " ".join(f"WHEN {when} THEN {then}" for when, then in pairs)
    return f"(CASE {branches}{otherwise} END)"
