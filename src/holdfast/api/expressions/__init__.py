"""Spark SQL expressions on Arrow batches, with Spark's meaning in ANSI mode.

sqlglot parses; what its tree may hold and what that means on Arrow columns is said here, operator
by operator (`operators.py`) and function by function (`functions.py`). Everything else is refused
while the dataflow is built, with its name. The session's time zone is taken to be UTC.
"""

from holdfast.api.expressions.compiler import (
    SUPPORTED_FUNCTIONS,
    CompiledExpression,
    compile_expression,
    compile_projection,
)
from holdfast.api.expressions.values import EvaluationError

__all__ = [
    "SUPPORTED_FUNCTIONS",
    "CompiledExpression",
    "EvaluationError",
    "compile_expression",
    "compile_projection",
]
