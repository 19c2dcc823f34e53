"""Spark's analysed plans and expressions, read from their JSON, beside the objects of the JVM.

The JSON lists a tree in preorder, each node with the number of its children. It leaves out what is
no tree, such as the options of a source; the object of the JVM has that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATELESS = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "View", "EventTimeWatermark", "Generate"),
        *("StreamingRelation", "StreamingRelationV2", "Union", "MapInPandas", "MapInArrow"),
    )
)
"""Plans whose rows depend on one row each, which Spark may therefore compute before a log."""
PYTHON_UDF: Final = "PythonUDF"
"""The kind of a call of a UDF in Python."""


class Expression:
    """A node of an expression.

    Attributes:
        kind: Spark's class, e.g. `Cast`.
        fields: What the JSON says of it.
        children: In Spark's order.
    """

    def __init__(
        self,
        fields: dict[str, Any],
        children: Sequence[Callable[[Callable[[], Any]], Expression]],
        find: Callable[[], Any],
    ) -> None:
        """Of a node of the JSON; `find` gives the JVM's object."""
        self.kind = str(fields["class"]).rpartition(".")[2]
        self.fields = fields
        self._find = find
        self.children = [make(partial(self._child, at)) for at, make in enumerate(children)]

    def _child(self, at: int) -> Any:
        return self.java.children().apply(at)

    @cached_property
    def java(self) -> Any:
        """The JVM's object."""
        return self._find()

    @property
    def id(self) -> int:
        """Of an attribute or alias: the number that Spark gave it."""
        return int(self.fields["exprId"]["id"])

    @property
    def name(self) -> str:
        """Of an attribute or alias."""
        return str(self.fields["name"])

    def over(self, children: Sequence[Expression]) -> Expression:
        """The same with other children; its own object of the JVM has not these."""
        other = Expression(self.fields, (), self._find)
        other.children = list(children)
        return other

    def rebuilt(self, children: Sequence[Expression]) -> Expression:
        """The same over other children, in the JVM too."""

        def find() -> Any:
            from pyspark import SparkContext

            context = SparkContext._active_spark_context
            assert context is not None
            assert context._jvm is not None
            listed = context._jvm.PythonUtils.toSeq([each.java for each in children])
            return self.java.withNewChildren(listed)

        other = Expression(self.fields, (), find)
        other.children = list(children)
        return other

    def all(self) -> Iterator[Expression]:
        """This node and those below."""
        yield self
        for child in self.children:
            yield from child.all()


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A node of an analysed plan.

    Attributes:
        kind: Spark's class, e.g. `Project`.
        fields: What the JSON says of it.
        children: In Spark's order.
        java: The JVM's object.
    """

    kind: str
    fields: dict[str, Any]
    children: tuple[Plan, ...]
    java: Any

    @property
    def child(self) -> Plan:
        """Of a plan with one."""
        (child,) = self.children
        return child

    def expression(self, field: str) -> Expression:
        """A field that is an expression."""
        return _expression(self.fields[field], getattr(self.java, field))

    def option(self, field: str) -> Expression | None:
        """A field that may be an expression, or nothing."""
        option = getattr(self.java, field)()
        return _expression(self.fields[field], option.get) if option.isDefined() else None

    def expressions(self, field: str) -> list[Expression]:
        """A field that is a list of expressions."""
        listed = getattr(self.java, field)
        return [
            _expression(nodes, partial(_at, listed, at))
            for at, nodes in enumerate(self.fields[field])
        ]

    def projection(self, at: int, column: int) -> Expression:
        """Of an `Expand`: a column of one of its projections."""
        return _expression(
            self.fields["projections"][at][column],
            lambda: self.java.projections().apply(at).apply(column),
        )

    @property
    def output_ids(self) -> list[int]:
        """The numbers of the columns that it puts out."""
        output = self.java.output()
        return [output.apply(at).exprId().id() for at in range(output.size())]

    @property
    def is_stateless(self) -> bool:
        """Whether each row that it puts out depends on one row of a streaming source."""
        streams = [child for child in self.children if child.java.isStreaming()]
        return self.has_no_state_itself and all(child.is_stateless for child in streams)

    @property
    def has_no_state_itself(self) -> bool:
        """Whether each row that it puts out depends on one row of a stream that it reads."""
        streams = [child for child in self.children if child.java.isStreaming()]
        return self.kind in _STATELESS or (self.kind == "Join" and len(streams) == 1)

    def all(self) -> Iterator[Plan]:
        """This node and those below."""
        yield self
        for child in self.children:
            yield from child.all()


def plan_of(df: DataFrame) -> Plan:
    """What Spark has understood of a DataFrame."""
    analysed = df._jdf.queryExecution().analyzed()
    nodes = iter(json.loads(analysed.toJSON()))

    def read(java: Any) -> Plan:
        fields = next(nodes)
        kind = str(fields["class"]).rpartition(".")[2]
        below = java.children()
        children = tuple(read(below.apply(at)) for at in range(fields["num-children"]))
        return Plan(kind, fields, children, java)

    return read(analysed)


def frame_of(spark: SparkSession, java: Any) -> DataFrame:
    """A plan of the JVM as a DataFrame, whose columns are still the same to Spark."""
    from pyspark.sql import DataFrame

    assert spark._jvm is not None
    rows = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows
    return DataFrame(rows(spark._jsparkSession, java), spark)


def attribute_of(java: Any) -> Expression:
    """A column of the JVM's as an expression."""
    (fields,) = json.loads(java.toJSON())
    return Expression(fields, (), lambda: java)


def unpickled(function: Any) -> Any:
    """What Spark has pickled for its tasks of a function in Python, in this very process."""
    from pyspark.serializers import CPickleSerializer

    stored = str(function.command().mkString(","))
    return CPickleSerializer().loads(bytes(int(each) & 255 for each in stored.split(",")))


def _at(listed: Callable[[], Any], at: int) -> Any:
    return listed().apply(at)


def _expression(listed: list[dict[str, Any]], find: Callable[[], Any]) -> Expression:
    nodes = iter(listed)

    def read() -> Callable[[Callable[[], Any]], Expression]:
        fields = next(nodes)
        children = [read() for _ in range(fields["num-children"])]
        return lambda found: Expression(fields, children, found)

    return read()(find)
