"""While cores run, clocks, chance, sockets, files and threads raise: nothing impure is reached."""

import builtins
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.haunit.node import Node
from holdfast.sim.seeds import Run, simulate

FORBIDDEN: list[tuple[Any, str]] = [
    (time, "time"),
    (time, "time_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (time, "perf_counter"),
    (time, "sleep"),
    (random, "random"),
    (random, "randint"),
    (os, "urandom"),
    (os, "getpid"),
    (uuid, "uuid4"),
    (socket.socket, "connect"),
    (socket.socket, "bind"),
    (threading.Thread, "start"),
    (builtins, "open"),
    (builtins, "print"),
]


def fenced(step: Callable[..., Any], reached: list[str]) -> Callable[..., Any]:
    """The step of a machine, with everything impure recorded and refused."""

    own_thread = threading.get_ident()

    def refuse(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def raising(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != own_thread:  # Somebody else's, who may.
                return original(*arguments, **named)
            reached.append(name)
            raise AssertionError(f"a core calls {name}")

        return raising

    def inside(*arguments: Any) -> Any:
        kept = [(owner, name, getattr(owner, name)) for owner, name in FORBIDDEN]
        for owner, name, original in kept:
            setattr(owner, name, refuse(name, original))
        try:
            return step(*arguments)
        finally:
            for owner, name, original in kept:
                setattr(owner, name, original)

    return inside


def test_no_core_reaches_a_clock_chance_socket_file_or_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(6):  # Kernels are compiled and cached by now; that does open files.
        simulate(Run(seed))
    reached: list[str] = []
    monkeypatch.setattr(Node, "step", fenced(Node.step, reached))
    monkeypatch.setattr(Coordinator, "step", fenced(Coordinator.step, reached))
    for seed in range(6):
        outcome = simulate(Run(seed))
        assert outcome.invariant is None, outcome.violation
    assert not reached


def test_the_fence_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    leaky = fenced(lambda: time.time(), reached)
    with pytest.raises(AssertionError, match="calls time"):
        leaky()
    assert reached == ["time"]
    assert time.time() > 0
