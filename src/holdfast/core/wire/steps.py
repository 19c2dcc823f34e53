"""Steps of a protocol as a generator: it yields what is to be done next, and is sent the answer.

The shell takes all steps at once, over real files or a real store; the simulator takes them one by
one, and lets others change things between any two.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")
_Result = TypeVar("_Result")


def run(
    steps: Generator[_Request, _Answer | None, _Result], perform: Callable[[_Request], _Answer]
) -> _Result:
    """Take all steps; what they come to."""
    answer: _Answer | None = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result
        answer = perform(request)
