"""The faults of a run: when each strikes, whom, and how long its traces last.

A fault strikes at a time, at a named step of a node, or after another one. Adversaries pick what is
worst: the process or the machine with most to lose.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from holdfast.core.haunit.plan import Standby
from holdfast.core.haunit.told import PeerTold
from holdfast.sim.ailments import Ailments
from holdfast.sim.departures import Departures
from holdfast.sim.driver import DRIVER
from holdfast.sim.faults import FOOTPRINT_ROT, LATE_END, LINE_ROT, NO_SLOTS
from holdfast.sim.one_at_a_time import is_allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.machine import Stimulus
    from holdfast.core.model.ids import NodeId
    from holdfast.core.wire.messages import NodeMessage
    from holdfast.sim.faults import Fault
    from holdfast.sim.process import Process
    from holdfast.sim.world import World

_STALE_FRAMES: Final = 32
_STALE_WORDS: Final = 32
_PICK_WORST_FROM: Final = 5
_NOTICED_US: Final = 600_000
"""By then a failure is known."""


class Strikes:
    """Strikes the faults of a world.

    Attributes:
        struck: How many of each kind have had an effect.
        ailments: What machines, disks, sources and the store suffer from for a while.
        departures: Which machines leave politely.
    """

    def __init__(self, world: World) -> None:
        """Nothing strikes before `begin`."""
        self._world = world
        self.struck: dict[str, int] = {}
        self._passings: dict[str, int] = {}
        self._at_steps: dict[str, list[int]] = {}
        self._followers: dict[int, list[int]] = {}
        self._armed: dict[int, tuple[NodeId, int]] = {}  # waits for a node to pass its step
        self.ailments = Ailments(world.scheduler)
        self.departures = Departures(world, self.kill)
        self._stale: deque[tuple[NodeId, int, NodeMessage]] = deque(maxlen=_STALE_FRAMES)
        self._words: deque[tuple[Process, PeerTold]] = deque(maxlen=_STALE_WORDS)
        self._last_hit: tuple[NodeId, int] | None = None  # of the last fault

    def begin(self) -> None:
        """Wait for the times and steps of all faults."""
        plans = self._world.plans.values()
        may_rot = {FOOTPRINT_ROT: any(p.footprints for p in plans)}
        may_rot[LINE_ROT] = any(p.region for p in plans)
        for number, fault in self._world.faults.items():
            if not may_rot.get(fault.kind, True):
                continue
            if fault.follows is not None:
                self._followers.setdefault(fault.follows, []).append(number)
            elif fault.at_us is None:
                self._at_steps.setdefault(fault.step, []).append(number)
            else:
                self._schedule(number, fault.at_us)

    # -- what may come again ----------------------------------------------------------------------

    def remember_frame(self, receiver: NodeId, epoch: int, frame: NodeMessage) -> None:
        """A frame was sent; it may arrive once more, much later."""
        self._stale.append((receiver, epoch, frame))

    def remember_word(self, receiver: Process, word: Stimulus) -> None:
        """A driver has said something; it may arrive once more, much later."""
        if isinstance(word, PeerTold):
            self._words.append((receiver, word))

    def _schedule(self, number: int, delay_us: int) -> None:
        self._world.wait_until(self._world.scheduler.now_us + delay_us)
        self._world.scheduler.after(delay_us, lambda: self._strike(number, None))

    # -- faults -------------------------------------------------------------------------------

    def passed(self, step: str, process: Process | None) -> None:
        """A named step is passed; the faults planned for it strike."""
        passings = self._passings[step] = self._passings.get(step, 0) + 1
        for number in self._at_steps.get(step, ()):
            if self._world.faults[number].nth == passings:
                self._strike(number, process)
        if process is not None and self._armed:
            self._count_down(step, process)

    def _count_down(self, step: str, process: Process) -> None:
        """Strike the faults that wait for this node to pass the step so many times more."""
        for number, (node, waits) in list(self._armed.items()):
            if node != process.node or self._world.faults[number].step != step:
                continue
            self._armed[number] = (node, waits - 1)
            if waits == 1:
                del self._armed[number]
                self._strike(number, process)

    def _strike(self, number: int, process: Process | None) -> None:
        if self._world.is_over:
            return
        fault = self._world.faults[number]
        alive = [p for p in self._world.processes.values() if not p.is_dead]
        target = process
        if (target is None or target.is_dead) and alive:
            target = alive[fault.pick % len(alive)]
        machine = fault.pick % (self._world.machines + 1)
        if process is not None:
            machine = process.endpoint.machine
        if fault.is_same_place and self._last_hit is not None:
            node, machine = self._last_hit
            own = [p for p in reversed(alive) if p.node == node]
            target = own[fault.pick % len(own)] if own else target
        if fault.is_beside and target is not None:
            target = self._beside(target, fault.pick)
            machine = target.endpoint.machine
        if fault.node is not None:
            own = [p for p in reversed(alive) if p.node == fault.node]
            target = next((p for p in own if p.is_primary), own[0] if own else None)
        if target is not None:
            hits_machine = fault.kind not in _HIT_PROCESSES
            self._last_hit = target.node, machine if hits_machine else target.endpoint.machine
        until_us = self._world.scheduler.now_us + fault.length_us
        self._world.wait_until(until_us)
        name = target.endpoint.name if target else "-"
        self._world.scheduler.note(f"fault {number}: {fault} (process {name}, machine {machine})")
        may_strike = is_allowed(self._world, fault, target, machine)
        strike = _STRIKES[fault.kind]
        if may_strike and strike(self, fault, target, machine, until_us) is not False:
            self.struck[fault.kind] = self.struck.get(fault.kind, 0) + 1
        for follower in self._followers.get(number, ()):
            at_us = self._world.faults[follower].at_us
            if at_us is not None:
                self._schedule(follower, at_us)
            elif self._last_hit is not None:
                self._armed[follower] = (self._last_hit[0], self._world.faults[follower].nth)

    def _beside(self, process: Process, pick: int) -> Process:
        """A process of another node that runs the same instance; the same, if there is none."""
        others = [
            p
            for p in self._world.processes.values()
            if p.node in process.plan.replicas and p.node != process.node and not p.is_dead
        ]
        return others[pick % len(others)] if others else process

    def _strike_kill(self, fault: Fault, target: Process | None, *_: int) -> bool:
        if target is None:
            return False
        if fault.at_us is not None and fault.size > _PICK_WORST_FROM:
            target = self._process_with_most_to_lose(target)
        self.kill(target)
        return True

    def _process_with_most_to_lose(self, otherwise: Process) -> Process:
        """The one that has written most without syncing it; adversaries wait for such moments."""
        sizes = {
            p.endpoint.name: sum(log.unsynced_bytes_of(p.incarnation) for log in p.logs.all())
            for p in self._world.processes.values()
            if not p.is_dead and p.machine is not None
        }
        worst = max(sizes, key=lambda name: sizes[name], default=None)
        return self._world.processes[worst] if worst is not None and sizes[worst] else otherwise

    def kill(self, process: Process) -> None:
        """A process is gone from one moment to the next, and its driver hears of it."""
        machine = process.machine
        if process.launch > 1 and (machine is None or machine.statistics().is_silent):
            self._world.count("killed while recovering")
        process.die()
        process.life.process_died(process, "killed")

    def _kill_if_alive(self, process: Process | None) -> None:
        if process is not None and not process.is_dead:
            self.kill(process)

    def _strike_handover(self, fault: Fault, target: Process | None, *_: int) -> bool:
        node, life = self._replicated(fault, target), self._world.life
        return node is not None and life is not None and life.hand_over(node)

    def _strike_kill_replicas(self, fault: Fault, target: Process | None, *_: int) -> bool:
        nodes: tuple[NodeId | None, ...] = (self._replicated(fault, target),)
        if target is not None and target.plan.replicas:  # None is left, and then all are back.
            nodes = target.plan.replicas
        replicas = [p for p in self._world.processes.values() if p.node in nodes and not p.is_dead]
        for process in replicas:
            self.kill(process)
        return len(replicas) > 1

    def _replicated(self, fault: Fault, target: Process | None) -> NodeId | None:
        """The target if it has a secondary, or else another node that has."""
        plans = self._world.plans.items()
        standing_by = [node for node, plan in plans if plan.standby is not Standby.NONE]
        if target is None or not standing_by:
            return None
        is_apt = target.node in standing_by
        return target.node if is_apt else standing_by[fault.pick % len(standing_by)]

    def _strike_pause(self, _: Fault, target: Process | None, __: int, until_us: int) -> bool:
        if target is None:
            return False
        target.paused_until_us = until_us
        return True

    def _strike_machine(self, fault: Fault, _: Process | None, machine: int, __: int) -> bool:
        if machine == DRIVER:
            self._world.journal.crash(self._pick)
            self._world.crash_driver(fault.length_us)
            return True
        if fault.size > _PICK_WORST_FROM:
            machine = self._machine_with_most_to_lose(machine)
        for log in self._world.sinks.values():
            if log.crash(machine, self._pick):
                self._world.count("unsynced tuples torn off a log")
        for process in list(self._world.processes.values()):
            if process.endpoint.machine == machine and not process.is_dead:
                self.kill(process)
        return True

    def _machine_with_most_to_lose(self, otherwise: int) -> int:
        sizes: dict[int, int] = {}
        for log in self._world.sinks.values():
            for machine, size in log.unsynced_bytes().items():
                sizes[machine] = sizes.get(machine, 0) + size
        return max(sorted(sizes), key=lambda machine: sizes[machine], default=otherwise)

    def _pick(self, low: int, high: int) -> int:
        return self._world.scheduler.uniform("disk/crash", low, high)

    def _strike_driver(self, fault: Fault, *_: object) -> None:
        self._world.crash_driver(fault.length_us)

    def _strike_driver_overlap(
        self, fault: Fault, _: Process | None, __: int, until_us: int
    ) -> bool:
        """Somebody believes that the driver is gone; often it only stood still."""
        life = self._world.life
        if life is None or life.is_over:
            return False
        if fault.size > _PICK_WORST_FROM:
            life.paused_until_us = until_us
        self._world.begin_life(is_beside=True)
        return True

    def _strike_driver_pause(self, _: Fault, __: Process | None, ___: int, until_us: int) -> None:
        if self._world.life is not None:
            self._world.life.paused_until_us = until_us

    def _strike_break(self, fault: Fault, target: Process | None, *_: int) -> bool:
        if target is None:
            return False
        back_us = self._world.scheduler.now_us + fault.length_us % 50_000
        self._world.network.break_links(target.endpoint.name, back_us)
        return True

    def _strike_loss(self, fault: Fault, target: Process | None, _: int, until_us: int) -> bool:
        if target is None:
            return False
        self._world.network.lose(target.endpoint.name, 2 * fault.size, until_us)
        return True

    def _strike_lag(self, fault: Fault, target: Process | None, _: int, until_us: int) -> bool:
        """Often the primary dies before its secondary has caught up."""
        if target is None:
            return False
        alive = [p for p in self._world.processes.values() if not p.is_dead]
        own = [p for p in alive if p.node == target.node]
        receiver = next((p for p in reversed(own) if not p.is_primary), target)
        if fault.size > _PICK_WORST_FROM:
            primary = next((p for p in reversed(own) if p.is_primary and p is not receiver), None)
            self._world.scheduler.after(fault.length_us, lambda: self._kill_if_alive(primary))
            until_us += _NOTICED_US
            self._world.wait_until(until_us)
        self._world.network.hold_back(
            (p.endpoint.name for p in alive), receiver.endpoint.name, until_us
        )
        return True

    def _strike_cut(self, fault: Fault, _: Process | None, machine: int, until_us: int) -> None:
        other = (machine + 1 + fault.size % self._world.machines) % (self._world.machines + 1)
        self._world.network.cut(machine, other, until_us, holds=False)

    def _strike_isolate(self, _: Fault, __: Process | None, machine: int, until_us: int) -> None:
        self._world.network.cut(machine, None, until_us, holds=False)
        self._world.network.cut(None, machine, until_us, holds=False)

    def _strike_stall(self, _: Fault, __: Process | None, machine: int, until_us: int) -> None:
        self._world.network.cut(machine, None, until_us, holds=True)

    def _strike_slow_link(
        self, fault: Fault, _: Process | None, machine: int, until_us: int
    ) -> None:
        self._world.network.slow_down(machine, 10 * fault.size, until_us)

    def _strike_slow(self, fault: Fault, _: Process | None, machine: int, until_us: int) -> None:
        factor = fault.size * (5 if fault.kind == "slow-node" else 10)
        self.ailments.slow_down(fault.kind, machine, until_us, factor)

    def _strike_stale(self, *_: object) -> bool:
        newest = {p.node: p for p in self._world.processes.values()}
        for node, epoch, frame in list(self._stale):
            newest[node].channels.receive(frame, epoch, newest[node].endpoint, is_torn=False)
        last = {(receiver, word.peer): word for receiver, word in self._words}
        for receiver, word in list(self._words):
            if last[(receiver, word.peer)] is not word:
                receiver.take(word)
        return bool(self._stale)

    def _strike_flip(self, fault: Fault, *_: object) -> bool:
        files = self._world.files()
        return files[fault.pick % len(files)].flip(self._pick)

    def _strike_footprints(self, fault: Fault, *_: object) -> bool:
        """A log that its node's replacement reads at once, if it needs what was damaged."""
        plans = [plan for plan in self._world.plans.values() if plan.footprints is not None]
        plan = plans[fault.pick % len(plans)]
        if not self._world.sinks[plan.footprint_stream].flip(self._pick):
            return False
        for process in [p for p in self._world.processes.values() if p.node == plan.node]:
            self._kill_if_alive(process)
        return True

    def _strike_line(self, fault: Fault, *_: object) -> bool:
        """Mostly the newest checkpoint, which the next plan has its node begin from."""
        life = self._world.life
        members = [plan.node for plan in self._world.plans.values() if plan.region]
        node = members[fault.pick % len(members)]
        points = () if life is None else life.machine.registry.points(node)
        if not points:
            return False
        point = points[-1 if fault.pick % 4 else 0].point
        if point.checkpoint is None:
            return False
        self._world.store.spoil(self._pick, node, point.checkpoint.checkpoint)
        for process in [p for p in self._world.processes.values() if p.node == node]:
            self._kill_if_alive(process)
        return True

    def _strike_slots(self, _: Fault, target: Process | None, __: int, until_us: int) -> bool:
        """Only who had its slots can lose them: who begins waits until there are enough."""
        life = self._world.life
        if target is None or life is None or not life.was_up(target.node):
            return False
        self.ailments.take_slots(until_us)
        self.kill(target)
        return True

    def _strike_object(self, fault: Fault, target: Process | None, *_: object) -> bool:
        node, store = None if target is None else target.node, self._world.store
        damage = store.lose if fault.kind == "lost-object" else store.flip
        return self._kill_owner(fault, damage(self._pick, node))

    def _kill_owner(self, fault: Fault, node: NodeId | None) -> bool:
        """Often the node dies too: damage that nobody reads does no harm."""
        if node is not None and fault.at_us is not None and fault.size > _PICK_WORST_FROM // 2:
            for process in [p for p in self._world.processes.values() if p.node == node]:
                self._kill_if_alive(process)
        return node is not None

    def _strike_silence(self, fault: Fault, _: Process | None, __: int, until_us: int) -> bool:
        streams = sorted(self._world.sources)
        if streams:
            self.ailments.silence(fault.kind, streams[fault.pick % len(streams)], until_us)
        return bool(streams)

    def _strike_clock(self, fault: Fault, _: Process | None, machine: int, __: int) -> None:
        clock = self._world.clocks[machine]
        strike = clock.jump if fault.kind == "clock-jump" else clock.set_back
        strike(fault.size * 100)


_STRIKES: dict[str, Callable[..., bool | None]] = {
    "kill": Strikes._strike_kill,
    "kill-replicas": Strikes._strike_kill_replicas,
    "handover": Strikes._strike_handover,
    "leave": lambda self, _, __, machine, until_us: self.departures.begin(machine, until_us),
    "pause": Strikes._strike_pause,
    "slow-node": Strikes._strike_slow,
    "machine-crash": Strikes._strike_machine,
    "driver-crash": Strikes._strike_driver,
    "driver-pause": Strikes._strike_driver_pause,
    "driver-overlap": Strikes._strike_driver_overlap,
    "break": Strikes._strike_break,
    "lost-frames": Strikes._strike_loss,
    "lag": Strikes._strike_lag,
    "cut": Strikes._strike_cut,
    "isolate": Strikes._strike_isolate,
    "stall": Strikes._strike_stall,
    "slow-link": Strikes._strike_slow_link,
    "stale-frames": Strikes._strike_stale,
    "slow-disk": Strikes._strike_slow,
    "full-disk": Strikes._strike_slow,
    "bit-flip": Strikes._strike_flip,
    "clock-jump": Strikes._strike_clock,
    "clock-back": Strikes._strike_clock,
    FOOTPRINT_ROT: Strikes._strike_footprints,
    LINE_ROT: Strikes._strike_line,
    NO_SLOTS: Strikes._strike_slots,
    "store-outage": lambda self, _, __, ___, until_us: self.ailments.take_store_away(until_us),
    "lost-object": Strikes._strike_object,
    "store-rot": Strikes._strike_object,
    "silence": Strikes._strike_silence,
    "no-boundaries": Strikes._strike_silence,
    LATE_END: lambda self, _, __, ___, until_us: self.ailments.hold_ends(until_us),
}


_HIT_PROCESSES = ("kill", "kill-replicas", "handover", "pause", "break", "lost-frames", "lag")
