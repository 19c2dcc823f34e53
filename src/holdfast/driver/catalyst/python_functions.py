"""Python UDFs behind an operator with state: there Spark computes nothing, so nodes call them.

A UDF becomes a column of the stream before the clause that calls it, and of Spark's plan, too. What
is left of the clause's expressions reads that column, and is translated as any other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.model.column_names import quoted
from holdfast.driver.catalyst.expressions import require_same, text_of, untranslatable
from holdfast.driver.catalyst.native import Native
from holdfast.driver.catalyst.trees import (
    PYTHON_UDF,
    Expression,
    attribute_of,
    frame_of,
    unpickled,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.api.dataflow import Dataflow

_ODD: Final = re.compile(r"\W+", re.ASCII)


def with_functions(
    flow: Dataflow, spark: SparkSession, below: Native, java: Any, trees: list[Expression]
) -> tuple[Native, Any, list[Expression]]:
    """The stream and the plan with a column for each UDF that is called, and what is left.

    Args:
        flow: Where the functions are registered.
        spark: The session.
        below: What the expressions read.
        java: The JVM's plan of that.
        trees: The expressions.

    Raises:
        UnsupportedError: Nodes do not call such a function, or do not compute an argument.
    """
    while (found := next(filter(None, map(_innermost, trees)), None)) is not None:
        for each in found.children:
            require_same(spark, java, each)
        arguments = ", ".join(text_of(each, below.written) for each in found.children)
        frame = frame_of(spark, java)
        name = _registered(flow, found, {*frame.columns, *below.stream.schema.names})
        java = frame.select("*", _column(spark, found).alias(name))._jdf.queryExecution().analyzed()
        made = attribute_of(java.output().last())
        stream = below.stream.select("*", f"{name}({arguments}) AS {quoted(name)}")
        below = Native(stream, {**below.names, made.id: name}, below.time)
        trees = [_replaced(each, found, made) for each in trees]
    return below, java, trees


def _innermost(tree: Expression) -> Expression | None:
    """A UDF among whose arguments is none."""
    for child in tree.children:
        if (found := _innermost(child)) is not None:
            return found
    return tree if tree.kind == PYTHON_UDF else None


def _replaced(tree: Expression, old: Expression, new: Expression) -> Expression:
    """The same expression with a column in place of a UDF."""
    if tree is old:
        return new
    children = [_replaced(each, old, new) for each in tree.children]
    is_same = all(one is other for one, other in zip(children, tree.children, strict=True))
    return tree if is_same else tree.rebuilt(children)


def _registered(flow: Dataflow, tree: Expression, taken: set[str]) -> str:
    """The name by which the dataflow has the function now; also a column's, as it is not taken."""
    from pyspark.sql.types import _parse_datatype_json_string
    from pyspark.sql.udf import UserDefinedFunction

    own = str(tree.java.name())
    clause = f"Python UDF {own}"
    if not tree.java.udfDeterministic():
        raise untranslatable(clause, "it is not deterministic, and stands behind state")
    try:
        function, *_ = unpickled(tree.java.func())
    except Exception as error:  # Whatever the function's own code raises.
        raise untranslatable(clause, f"its object cannot be had from Spark: {error}") from None
    kind = _parse_datatype_json_string(tree.java.dataType().json())
    base = f"python_{_ODD.sub('_', own).strip('_')}".rstrip("_")
    used = {each.lower() for each in (*taken, *flow.functions)}
    name, number = base, 1
    while name.lower() in used:
        number += 1
        name = f"{base}_{number}"
    made: Callable[..., Any] = UserDefinedFunction(function, kind, own, int(tree.java.evalType()))
    flow.register_function(name, made)
    return name


def _column(spark: SparkSession, tree: Expression) -> Any:
    """An expression of the JVM as a column."""
    from pyspark.sql.classic.column import Column

    assert spark._jvm is not None
    return Column(spark._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(tree.java))
