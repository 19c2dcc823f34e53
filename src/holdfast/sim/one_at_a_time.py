"""Faults one at a time, for units that survive one failure and no more. [HA §5.2]

Where a unit's state is with its two replicas alone, a second failure before the first has been
recovered from is more than was promised. So a replica is struck only while the other one could go
on without it: a primary while its secondary has its state, a secondary while its primary works.
Everything else that could end both, or make both be taken for dead, is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.life import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.sim.faults import Fault
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_ENDS_ONE: Final = "kill"
_ENDS_A_MACHINE: Final = "machine-crash"
_HARMLESS: Final = ("handover", "slow-disk", "stale-frames")
KINDS: Final = (_ENDS_ONE, _ENDS_A_MACHINE, *_HARMLESS)


def is_allowed(world: World, fault: Fault, target: Process | None, machine: int) -> bool:
    """Whether a fault may strike; in a world without such units always."""
    if not any(plan.survives_one for plan in world.plans.values()):
        return True
    if fault.kind in _HARMLESS:
        return True
    alive = [process for process in world.processes.values() if not process.is_dead]
    if fault.kind == _ENDS_ONE:
        return target is not None and _is_spared_by([target], alive)
    if fault.kind == _ENDS_A_MACHINE and machine > 0:
        struck = [process for process in alive if process.endpoint.machine == machine]
        return _is_spared_by(struck, alive)
    return False


def _is_spared_by(struck: Iterable[Process], alive: Iterable[Process]) -> bool:
    """Whether of each unit of these somebody is left who goes on with its state."""
    ended = list(struck)
    left = [process for process in alive if process not in ended]
    return all(any(_goes_on(other, process) for other in left) for process in ended)


def _goes_on(other: Process, process: Process) -> bool:
    """Whether another process can do without this one."""
    if other.node != process.node or not other.plan.survives_one:
        return False
    instance = None if other.life.is_over else other.life.machine.instance(other.node)
    if instance is None or not instance.counts(other.incarnation):
        return False
    if other.is_primary and other.core.phase is Phase.AT_WORK:
        return not process.is_primary
    is_its_secondary = process.incarnation in other.core.known_peers().values()
    return other.core.phase is Phase.FOLLOWING and other.core.has_joined and is_its_secondary
