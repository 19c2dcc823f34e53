"""Real functions: trigonometry, exponentials, logarithms.

`exp`, `ln`, `log10`, `cbrt` and what is made of them are Java's to the last bit. Of the others Java
promises one or two units in the last place, and so does the C library that computes them here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.api.expressions import strict_math
from holdfast.api.expressions.signatures import Build, Function, double, kernel, rows
from holdfast.api.expressions.values import Column, Value

_DOUBLE = pa.float64()
_NAN = math.nan


def _of_arrow(compute: Callable[..., Column]) -> Function:
    return Function(kernel(_DOUBLE, compute, double), 1, 1)


def _of_python(compute: Callable[..., float | None], arity: int = 1) -> Function:
    return Function(rows(_DOUBLE, compute, *(double,) * arity), arity, arity)


def _inverse(compute: Callable[[Column], Column]) -> Callable[[Column], Column]:
    """One divided by a function; by zero it is infinite, with the zero's sign."""
    return lambda column: pc.divide(1.0, compute(column))


def _above(least: float, compute: Callable[[Column], Column]) -> Callable[[Column], Column]:
    """Null for arguments that are not above a number; NaN is."""

    def masked(column: Column) -> Column:
        is_below = pc.less_equal(column, least)
        return pc.if_else(is_below, pa.scalar(None, _DOUBLE), compute(column))

    return masked


def _strictly(compute: Callable[[strict_math.Reals], strict_math.Reals]) -> Callable[..., Column]:
    """A function of arrays of numbers as a kernel."""

    def kernel(column: Column) -> Column:
        if isinstance(column, pa.Scalar):
            return kernel(pa.repeat(column, 1))[0]
        numbers = column.fill_null(1.0).to_numpy(zero_copy_only=False)
        return pa.array(
            compute(np.ascontiguousarray(numbers)), _DOUBLE, mask=np.asarray(column.is_null())
        )

    return kernel


_EXP, _LOGARITHM = _strictly(strict_math.exp), _strictly(strict_math.log)
_LN_2 = float(strict_math.log(np.array([2.0]))[0])


def _log2(column: Column) -> Column:
    return pc.divide(_LOGARITHM(column), _LN_2)


def _ratio_of_logs(base: Column, column: Column) -> Column:
    logs = [_above(0.0, _LOGARITHM)(each) for each in (column, base)]
    return pc.divide(*logs)


def _log(args: Sequence[Value], text: str) -> Value:
    """`log(x)`, or `log(base, x)`."""
    if len(args) == 1:
        return _LN.build(args, text)
    return kernel(_DOUBLE, _ratio_of_logs, double, double)(args, text)


def _acosh(number: float) -> float:
    return math.acosh(number) if number >= 1 else _NAN


def _atanh(number: float) -> float:
    return 0.5 * (_ln1p(number) - _ln1p(-number))


def _ln1p(number: float) -> float:
    if number > -1:
        return math.log1p(number)
    return -math.inf if number == -1 else _NAN


def _bounded(compute: Callable[[float], float], is_odd: bool) -> Callable[[float], float]:
    """A function that overflows to infinity: to the negative one on its left if it is odd."""

    def attempt(number: float) -> float:
        try:
            return compute(number)
        except OverflowError:
            return -math.inf if is_odd and number < 0 else math.inf

    return attempt


def _cosh(number: float) -> float:
    size = abs(number)
    if not size > 0.34657359027997264:  # Half of ln 2; NaN is not above it.
        return math.cosh(number)
    if size <= 22:
        power = _e_to(size)
        return 0.5 * power + 0.5 / power
    if size < 709.782712893384:
        return 0.5 * _e_to(size)
    power = _e_to(0.5 * size)
    return 0.5 * power * power


def _e_to(number: float) -> float:
    return float(strict_math.exp(np.array([number]))[0])


def _power(base: float, exponent: float) -> float:
    if exponent == 0:
        return 1.0
    if abs(base) == 1 and not math.isfinite(exponent):
        return _NAN  # As in Java, unlike in C.
    try:
        return math.pow(base, exponent)
    except OverflowError:
        is_odd = math.fmod(exponent, 2) in (1, -1)
        return -math.inf if base < 0 and is_odd else math.inf
    except ValueError:
        if base != 0:
            return _NAN
        is_odd = math.fmod(exponent, 2) in (1, -1)
        return math.copysign(math.inf, base) if is_odd else math.inf


def _angle(ordinate: float, abscissa: float) -> float:
    return math.atan2(ordinate + 0.0, abscissa + 0.0)  # No -0.0.


_LN = _of_arrow(_above(0.0, _LOGARITHM))
_POWER = _of_python(_power, 2)
_LOG: Build = _log

FUNCTIONS: dict[str, Function] = {
    "acos": _of_arrow(pc.acos),
    "acosh": _of_python(_acosh),
    "asin": _of_arrow(pc.asin),
    "asinh": _of_python(math.asinh),
    "atan": _of_arrow(pc.atan),
    "atan2": _of_python(_angle, 2),
    "atanh": _of_python(_atanh),
    "cbrt": _of_arrow(_strictly(strict_math.cbrt)),
    "cos": _of_arrow(pc.cos),
    "cosh": _of_python(_cosh),
    "cot": _of_arrow(_inverse(pc.tan)),
    "csc": _of_arrow(_inverse(pc.sin)),
    "exp": _of_arrow(_EXP),
    "expm1": _of_python(_bounded(math.expm1, is_odd=False)),
    "hypot": _of_python(math.hypot, 2),
    "ln": _LN,
    "log": Function(_LOG, 1, 2),
    "log10": _of_arrow(_above(0.0, _strictly(strict_math.log10))),
    "log1p": _of_arrow(_above(-1.0, pc.log1p)),
    "log2": _of_arrow(_above(0.0, _log2)),
    "pow": _POWER,
    "power": _POWER,
    "sec": _of_arrow(_inverse(pc.cos)),
    "sin": _of_arrow(pc.sin),
    "sinh": _of_python(_bounded(math.sinh, is_odd=True)),
    "tan": _of_arrow(pc.tan),
    "tanh": _of_python(math.tanh),
}
