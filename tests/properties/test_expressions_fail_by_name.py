"""Whatever the text and the rows: a value of the promised type, or an error that is ours."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from random_sql import RandomSql, edge_values

from holdfast.api.expressions import CompiledExpression, EvaluationError, compile_expression
from holdfast.errors import DataflowError, UnsupportedError

EDGES = edge_values()
KINDS = ("number", "text", "flag", "day", "time")


def compiled(text: str) -> CompiledExpression | None:
    try:
        return compile_expression(text, EDGES.schema)
    except (DataflowError, UnsupportedError):
        return None


def evaluate_in_parts(expression: CompiledExpression) -> None:
    """All rows at once, each alone, and none."""
    rows = EDGES.num_rows
    for start, count in [(0, rows), *((row, 1) for row in range(rows)), (0, 0)]:
        column, failure = None, expression.sql
        try:
            column = expression.evaluate(EDGES.slice(start, count))
        except EvaluationError as error:
            failure = str(error)
        assert expression.sql in failure
        assert column is None or (column.type, len(column)) == (expression.type, count)


@settings(max_examples=400)
@given(seed=st.integers(0, 2**48))
def test_expressions_have_values_or_our_errors(seed: int) -> None:
    draw = random.Random(seed)
    texts = RandomSql(draw, EDGES.schema.names)
    text = texts.typed(draw.choice(KINDS)) if draw.random() < 0.7 else texts.expression()
    expression = compiled(text)
    if expression is not None:
        evaluate_in_parts(expression)


@settings(max_examples=400)
@given(seed=st.integers(0, 2**48))
def test_scraps_of_sql_have_our_errors(seed: int) -> None:
    expression = compiled(RandomSql(random.Random(seed), EDGES.schema.names).scraps())
    if expression is not None:
        evaluate_in_parts(expression)


@settings(max_examples=300)
@given(text=st.text(max_size=30))
def test_any_text_has_our_errors(text: str) -> None:
    expression = compiled(text)
    if expression is not None:
        evaluate_in_parts(expression)
