"""`exp`, `log`, `log10`, `cbrt` of arrays, to the last bit as in Java's `StrictMath`. [fdlibm 5.3]

Java prescribes the algorithms of fdlibm there, whose results differ from a C library's in the last
bit here and there: its `exp(1)` is 2.7182818284590455.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Words = npt.NDArray[np.int64]
_LEAST = 2.2250738585072014e-308
"""Smaller numbers have fewer digits."""
_HIGH, _LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts."""
_INVERSE = 1.44269504088896338700e00
_OF_EXP = (
    *(1.66666666666666019037e-01, -2.77777777770155933842e-03, 6.61375632143793436117e-05),
    *(-1.65339022054652515390e-06, 4.13813679705723846039e-08),
)
_ODD = (
    *(6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01),
    1.479819860511658591e-01,
)
_EVEN = (3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01)


def _series(number: Reals, terms: tuple[float, ...]) -> Reals:
    """`t1 + x * (t2 + x * (t3 + ...))`, from within."""
    total: Any = np.full_like(number, terms[-1])
    for term in terms[-2::-1]:
        total = term + number * total
    result: Reals = total
    return result


def _high_words(number: Reals) -> Words:
    """The upper 32 bits."""
    words: Words = (number.view(np.int64) >> 32).astype(np.int64)
    return words


def exp(number: Reals) -> Reals:
    """e to the power of each number."""
    with np.errstate(all="ignore"):
        size = _high_words(number) & 0x7FFFFFFF
        is_far = size > 0x3FD62E42  # More than half of ln 2.
        is_near = is_far & (size < 0x3FF0A2B2)  # Less than 1.5 of it.
        half = np.where(number < 0, -0.5, 0.5)
        steps = np.trunc(_INVERSE * number + half)
        steps = np.where(is_near, np.sign(number), steps)
        steps = np.where(is_far & np.isfinite(steps), steps, 0.0)
        above, below = number - steps * _HIGH, steps * _LOW
        rest = np.where(is_far, above - below, number)
        square = rest * rest
        bent = rest - square * _series(square, _OF_EXP)
        near_one = 1.0 - ((rest * bent) / (bent - 2.0) - rest)
        reduced = 1.0 - ((below - (rest * bent) / (2.0 - bent)) - above)
        result = np.where(steps == 0, near_one, np.ldexp(reduced, steps.astype(np.int32)))
        result = np.where(size < 0x3E300000, 1.0 + number, result)
        result = np.where(number > 7.09782712893383973096e02, np.inf, result)
        result = np.where(number < -7.45133219101941108420e02, 0.0, result)
        return np.where(np.isnan(number), np.nan, result)


def _taken_apart(number: Reals) -> tuple[Words, Words, Words]:
    """The upper and the lower 32 bits, and the exponent; of small numbers those of 2^54 times."""
    is_small = np.abs(number) < _LEAST
    scaled = np.ascontiguousarray(np.where(is_small, number * 2.0**54, number))
    high = _high_words(scaled)
    exponent = (high >> 20) - 1023 - np.where(is_small, 54, 0)
    return high, scaled.view(np.int64) & 0xFFFFFFFF, exponent


def _where_defined(number: Reals, logarithm: Reals) -> Reals:
    """A logarithm; of 0 it is infinite, below 0 NaN."""
    defined = np.where(number == 0, -np.inf, np.where(number < 0, np.nan, logarithm))
    return np.where(np.isfinite(number), defined, np.where(number > 0, np.inf, np.nan))


def log(number: Reals) -> Reals:
    """The natural logarithm of each number; of 0 it is infinite, below 0 NaN."""
    with np.errstate(all="ignore"):
        high, low, exponent = _taken_apart(number)
        high &= 0xFFFFF
        carry = (high + 0x95F64) & 0x100000
        bits = ((high | (carry ^ 0x3FF00000)) << 32) | low
        beyond = np.ascontiguousarray(bits).view(np.float64) - 1.0
        steps = (exponent + (carry >> 20)).astype(np.float64)
        result = _log_near(beyond, steps, high)
        return _where_defined(number, result)


def _log_near(beyond: Reals, steps: Reals, high: Words) -> Reals:
    """`log(1 + beyond)` and as many times ln 2."""
    above, below = steps * _HIGH, steps * _LOW
    rest = beyond * beyond * (0.5 - 0.33333333333333333 * beyond)
    tiny = np.where(steps == 0, beyond - rest, above - ((rest - below) - beyond))
    tiny = np.where(beyond == 0, above + below, tiny)
    ratio = beyond / (2.0 + beyond)
    square = ratio * ratio
    fourth = square * square
    total = square * _series(fourth, _ODD) + fourth * _series(fourth, _EVEN)
    half = 0.5 * beyond * beyond
    wide = ratio * (half + total)
    bent = np.where(steps == 0, beyond - (half - wide), above - ((half - (wide + below)) - beyond))
    slim = ratio * (beyond - total)
    straight = np.where(steps == 0, beyond - slim, above - ((slim - below) - beyond))
    is_bent = ((high - 0x6147A) | (0x6B851 - high)) > 0
    is_tiny = (0xFFFFF & (2 + high)) < 3
    result: Reals = np.where(is_tiny, tiny, np.where(is_bent, bent, straight))
    return result


def log10(number: Reals) -> Reals:
    """The decimal logarithm of each number."""
    with np.errstate(all="ignore"):
        high, low, exponent = _taken_apart(number)
        below_one = (exponent < 0).astype(np.int64)
        high = (high & 0xFFFFF) | ((0x3FF - below_one) << 20)
        bits = (high << 32) | low
        steps = (exponent + below_one).astype(np.float64)
        rest = log(np.ascontiguousarray(bits).view(np.float64))
        fraction = steps * 3.69423907715893078616e-13 + 4.34294481903251816668e-01 * rest
        result = fraction + steps * 3.01029995663611771306e-01
        return _where_defined(number, result)


def cbrt(number: Reals) -> Reals:
    """The cube root of each number."""
    with np.errstate(all="ignore"):
        size = np.abs(number)
        is_small = size < _LEAST
        scaled = np.ascontiguousarray(np.where(is_small, size * 2.0**54, size))
        high = _high_words(scaled) // 3 + np.where(is_small, 696219795, 715094163)
        guess = np.ascontiguousarray(high << 32).view(np.float64)
        ratio = 5.42857142857142815906e-01 + guess * guess / size * guess
        inner = ratio + 1.41428571428571436819e00 + -7.05306122448979611050e-01 / ratio
        guess = guess * (3.57142857142857150787e-01 + 1.60714285714285720630e00 / inner)
        coarse = ((np.ascontiguousarray(guess).view(np.int64) >> 32) + 1) << 32
        guess = np.ascontiguousarray(coarse).view(np.float64)
        quotient = size / (guess * guess)
        root = guess + guess * ((quotient - guess) / (guess + guess + quotient))
        root = np.where((size == 0) | ~np.isfinite(size), size, root)
        return np.copysign(root, number)
