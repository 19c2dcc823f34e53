"""Machines whose executors leave politely: Spark says so a while before they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.sim.driver import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_LOOK_US: Final = 100_000
"""How often a driver asks Spark."""


class Departures:
    """The machines that are leaving now."""

    def __init__(self, world: World, kill: Callable[[Process], None]) -> None:
        """None is.

        Args:
            world: Of the run.
            kill: Ends whatever has stayed for too long.
        """
        self._world = world
        self._kill = kill
        self._leaving: dict[int, None] = {}

    def begin(self, machine: int, until_us: int) -> bool:
        """A machine is to leave by then; whether there is another one for its tasks."""
        if machine == DRIVER or len({*self._leaving, machine}) >= self._world.machines:
            return False
        if machine in self._leaving:
            return False
        self._leaving[machine] = None
        self._say(machine, until_us)
        return True

    def elsewhere(self, machine: int) -> int:
        """Where Spark puts a task that it would have put there: not where an executor leaves."""
        while machine in self._leaving:
            machine = machine % self._world.machines + 1
        return machine

    def _say(self, machine: int, until_us: int) -> None:
        scheduler = self._world.scheduler
        if scheduler.now_us >= until_us:
            self._go(machine)
            return
        life = self._world.life
        if life is not None and scheduler.now_us >= life.paused_until_us:
            life.leave([process for process in self._there(machine) if process.life is life])
        wait_us = min(_LOOK_US, until_us - scheduler.now_us)
        scheduler.after(wait_us, lambda: self._say(machine, until_us))

    def _go(self, machine: int) -> None:
        """The executor is gone; another one may come up there."""
        there = self._there(machine)
        if not there:
            self._world.count("machine left empty")
        for process in there:
            self._kill(process)
        del self._leaving[machine]

    def _there(self, machine: int) -> list[Process]:
        processes = self._world.processes.values()
        return [p for p in processes if p.endpoint.machine == machine and not p.is_dead]
