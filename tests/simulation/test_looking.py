"""Checkers are called for the steps that concern them, and for no others."""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from types import UnionType
from typing import Any, get_args

import pytest

from holdfast.core.haunit import events
from holdfast.core.machine import TimerFired
from holdfast.sim.checkers import Checker, all_checkers
from holdfast.sim.checkers.base import Asked
from holdfast.sim.workload.oracle import Expected

_CHECKERS = all_checkers(Expected({}, {}, {}))
_NARROWED = [(type(one), hook) for one in _CHECKERS for hook in one.looks_at]


@pytest.mark.parametrize(
    ("kind", "hook"), _NARROWED, ids=lambda given: getattr(given, "__name__", given)
)
def test_a_hook_looks_at_no_class_that_it_is_not_called_for(kind: type[Checker], hook: str) -> None:
    assert all(issubclass(asked, kind.looks_at[hook]) for asked in _asked_for(kind, hook))


def test_most_hooks_say_what_they_look_at() -> None:
    assert sum(1 for kind, hook in _NARROWED if _asked_for(kind, hook)) > len(_NARROWED) // 2


def _asked_for(kind: type[Checker], hook: str) -> list[type]:
    """The classes that a hook compares its stimulus or effect with."""
    method = getattr(kind, hook)
    subject = list(inspect.signature(method).parameters)[2]
    names = vars(sys.modules[kind.__module__])
    found: list[type] = []
    for call in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method)))):
        match call:
            case ast.Call(ast.Name("isinstance"), [ast.Name(given), classes]) if given == subject:
                found += _classes(eval(ast.unparse(classes), names))
    return found


def _classes(given: Any) -> list[type]:
    if isinstance(given, UnionType):
        return list(get_args(given))
    return list(given) if isinstance(given, tuple) else [given]


def test_hooks_are_called_for_what_they_look_at_in_the_order_of_their_checkers() -> None:
    class Sinks(Checker):
        looks_at = {"performing": (events.WriteSink,)}  # noqa: RUF012

        def performing(self, *_: object) -> None: ...

    class All(Checker):
        def performing(self, *_: object) -> None: ...

    sinks, everything, nothing = Sinks(), All(), Checker()
    asked = Asked((sinks, everything, nothing), "performing")
    assert asked[events.WriteSink] == (sinks.performing, everything.performing)
    assert asked[TimerFired] == (everything.performing,)


def test_a_hook_that_is_idle_in_a_run_is_not_called() -> None:
    class Waits(Checker):
        def stepped(self, *_: object) -> None: ...

    waits, idle = Waits(), Waits()
    asked = Asked((waits, idle), "stepped")
    idle.idle = ("stepped",)  # As `begin` finds.
    assert asked[TimerFired] == (waits.stepped,)
