"""What may go wrong in a run, drawn as a plan before it starts.

A plan is a list of faults, each at a virtual time or at the n-th passing of a named protocol step;
some follow another one, to strike while the system recovers from it.
Swarm testing (Groce et al., ISSTA 2012): every seed allows a random subset of the kinds, so that no
kind always hides what another would show. A plan can be cut down fault by fault: what a fault does
is drawn with it, and what is left does the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from holdfast.sim.correction_steps import CORRECTION_STEPS
from holdfast.sim.draw import Draw
from holdfast.sim.driver import COMES_UP, COORDINATOR_STEPS
from holdfast.sim.process import NODE_STEPS
from holdfast.sim.process_sources import DRAINED

if TYPE_CHECKING:
    from holdfast.core.model.ids import NodeId

KINDS: Final = {
    "kill": "a node's process dies",
    "kill-replicas": "both replicas of a node die, perhaps when one has just taken over",
    "pause": "a node's process stops for a while, and may come back after it was replaced",
    "slow-node": "a machine computes 5 to 50 times slower for a while",
    "machine-crash": "all processes of a machine die, and what they had not synced is torn off",
    "driver-crash": "the driver's process dies and is started again",
    "driver-pause": "the driver's process stops for a while",
    "driver-overlap": "a second driver begins while the first still runs, or stands still",
    "break": "a connection breaks and reconnects: what is in flight is lost, a frame torn",
    "lost-frames": "a process's connections break and are back at once: single frames are lost",
    "lag": "what other nodes send to a process, a secondary if there is one, is held back",
    "cut": "one machine does not reach another for a while, in one direction; frames are lost",
    "isolate": "a machine reaches nobody and nobody reaches it for a while; frames are lost",
    "stall": "a machine's frames are held back for a while, then arrive",
    "slow-link": "a machine's links are 10 to 100 times slower for a while",
    "stale-frames": "old frames of all nodes arrive once more, at whoever runs the node now",
    "slow-disk": "a machine's disk is 10 to 100 times slower for a while",
    "full-disk": "a machine's disk takes nothing; the user makes room and starts the query again",
    "bit-flip": "a bit of a log or of the journal flips",
    "clock-jump": "a machine's clock jumps ahead",
    "clock-back": "the time of day of a machine is set back",
    "store-outage": "the checkpoint store answers nobody for a while",
    "lost-object": "an object of the checkpoint store disappears",
    "store-rot": "a sector of an object of the checkpoint store goes bad",
    "handover": "a node is handed over to its secondary, if it has one that is ready",
    "leave": "a machine's executor is told to leave, and ends what is still there a while later",
    "no-slots": "a node dies, and another query takes its slot and all free ones for a while",
    "silence": "a source gives nothing for a while, and then all of it",
    "no-boundaries": "a source promises nothing for a while; its tuples come",
    "late-end": "no source says that it has ended, for a while, and nodes die meanwhile",
    "footprint-rot": "a bit of a node's footprint log flips, and the node dies",
    "line-rot": "a checkpoint of a node that recovers with others goes bad, and the node dies",
}

SILENCES: Final = ("silence", "no-boundaries")
FOOTPRINT_ROT: Final = "footprint-rot"
LINE_ROT: Final = "line-rot"
NO_SLOTS: Final = "no-slots"
LATE_END: Final = "late-end"

_SILENT_PERCENT: Final = 40
_OFTEN_SILENT_PERCENT: Final = 90
_LEAVING_PERCENT: Final = 12
_LATE_END_PERCENT: Final = 15
_OFTEN_LATE_END_PERCENT: Final = 40
_ROTTEN_PERCENT: Final = 20
_NO_SLOTS_PERCENT: Final = 8
_LOST_HELLO_PERCENT: Final = 10
_APART: Final = (*SILENCES, "leave", NO_SLOTS, FOOTPRINT_ROT, LINE_ROT, LATE_END)
"""Kinds that are drawn for themselves."""
_ROTS: Final = {FOOTPRINT_ROT: "rot of footprints", LINE_ROT: "rot of lines"}
"""The draws of those that need something to rot."""
_BREAKS: Final = ("break", "lost-frames")
_NODE_KINDS: Final = (
    "kill",
    "kill-replicas",
    "handover",
    "pause",
    "machine-crash",
    "driver-crash",
    "driver-overlap",
    *_BREAKS,
    "lag",
    "isolate",
)
_COORDINATOR_KINDS: Final = ("driver-crash", "driver-pause", "driver-overlap", "kill", "pause")
_STORE_KINDS: Final = ("lost-object", "store-rot")
_STEPS: Final = (*NODE_STEPS, *COORDINATOR_STEPS)
_RECOVERY_STEPS: Final = (
    "assigned",
    "sinks opened",
    "subscription sent",
    "batch received",
    "pass due",
    "caught up",
    "first output",
    "acknowledged",
    "restart point asked for",
    "checkpoint loaded",
    "checkpoint prepared",
    "checkpoint written",
)
_PROMOTION_STEPS: Final = ("promotion sent", "promotion due", "promoted")
_CORRECTION_PERCENT: Final = 50
_CORRECTION_KINDS: Final = (
    "kill",
    "kill-replicas",
    "pause",
    "slow-node",
    "driver-crash",
    "driver-pause",
    "lost-frames",
    "lag",
    "isolate",
    *SILENCES,
    *SILENCES,
)
"""What strikes while nodes go on without missing input, and while they correct that."""
_SENDING_STEPS: Final = ("batch sent", "acknowledged", "subscription sent")
_HELLO_STEPS: Final = (COMES_UP, "hello received")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: A key of `KINDS`.
        at_us: Virtual time, or how long after the fault that it follows; None: at a step.
        step: The step's name; the process that passes it is the target.
        nth: At which passing, over all processes, from 1 on; for a fault that follows another, by
            the node that was hit last.
        pick: Chooses the target among those there are.
        length_us: How long it lasts.
        size: How bad it is: a factor, or ms of a clock's jump.
        follows: Number in the plan of the fault that it follows.
        is_same_place: Whether it hits a replica of the node, or the machine, of the fault that
            struck last.
        node: The node whose primary it hits, or else its newest living process; None: `pick`
            chooses.
        is_beside: Whether it hits another replica of the node that passes the step, if there is
            one side by side with it.
    """

    kind: str
    at_us: int | None
    step: str
    nth: int
    pick: int
    length_us: int
    size: int
    follows: int | None = None
    is_same_place: bool = False
    node: NodeId | None = None
    is_beside: bool = False

    def __str__(self) -> str:
        """As a line of a plan."""
        again = ", same place as the last" if self.is_same_place else ""
        since = "" if self.follows is None else f" after fault {self.follows}"
        when = f"at {self.at_us} us{since}"
        if self.at_us is None:
            when = f"at the {self.nth}. {self.step!r}"
        return f"{self.kind} {when}, for {self.length_us} us, size {self.size}{again}"


def plan_faults(
    seed: int, kinds: tuple[str, ...], span_us: int, *, is_often_silent: bool = False
) -> tuple[Fault, ...]:
    """The faults of a seed: none, one, or up to two dozen, some right after another.

    Args:
        seed: The run's.
        kinds: The kinds that may be drawn.
        span_us: Faults strike in [0, span_us) or at steps.
        is_often_silent: Whether sources fall silent in most runs, as that is looked at.
    """
    others = tuple(kind for kind in kinds if kind not in _APART)
    silences = tuple(kind for kind in kinds if kind in SILENCES)
    planned = (
        *_plan(seed, others, span_us),
        *_plan_silences(
            seed, silences, span_us, _OFTEN_SILENT_PERCENT if is_often_silent else _SILENT_PERCENT
        ),
        *(_plan_departures(seed, span_us) if "leave" in kinds else ()),
        *_plan_within_corrections(seed, kinds),
        *(_plan_rot(seed, FOOTPRINT_ROT, span_us) if FOOTPRINT_ROT in kinds else ()),
        *(_plan_rot(seed, LINE_ROT, span_us) if LINE_ROT in kinds else ()),
        *(_plan_full_clusters(seed, span_us) if NO_SLOTS in kinds else ()),
        *(_plan_lost_hellos(seed) if "lost-frames" in kinds else ()),
    )
    if LATE_END not in kinds:
        return planned
    percent = _OFTEN_LATE_END_PERCENT if is_often_silent else _LATE_END_PERCENT
    return (*planned, *_plan_late_end(seed, len(planned), percent))


def _plan_late_end(seed: int, number: int, percent: int) -> tuple[Fault, ...]:
    """In so many runs of a hundred nodes die between the last tuples and the end of the sources.

    Those that put out the last tuples again do so with the end; those that read them begin again
    at restart points that stand between the two. So often several die at once.

    Args:
        seed: The run's.
        number: Of the first of these faults in the plan.
        percent: See above.
    """
    draw = Draw(f"{seed}/late end")
    if not draw.percent(percent):
        return ()
    length_us = draw.steep(100_000, 1_500_000)
    late = Fault(LATE_END, None, DRAINED, draw.number(1, 3), draw.number(0, 1 << 30), length_us, 1)
    before_end_us = draw.steep(1_000, 400_000)
    deaths = (
        Fault(
            "kill",
            max(0, length_us - before_end_us) + draw.number(0, 20_000),
            step="",
            nth=0,
            pick=draw.number(0, 1 << 30),
            length_us=0,
            size=1,
            follows=number,
        )
        for _ in range(draw.number(1, 8))
    )
    return (late, *deaths)


def _plan_within_corrections(seed: int, kinds: tuple[str, ...]) -> tuple[Fault, ...]:
    """What strikes where no time that is drawn would: failures within failures, and within their
    corrections. Where nothing goes on without missing input, none of the steps is ever passed.
    """
    draw = Draw(f"{seed}/corrections")
    apt = [kind for kind in _CORRECTION_KINDS if kind in kinds]
    if not apt or not draw.percent(_CORRECTION_PERCENT):
        return ()
    return tuple(
        Fault(
            draw.one_of(apt),
            at_us=None,
            step=draw.one_of(CORRECTION_STEPS),
            nth=draw.steep(1, 12),
            pick=draw.number(0, 1 << 30),
            length_us=draw.steep(10_000, 1_500_000),
            size=draw.number(1, 10),
            is_beside=draw.percent(40),
        )
        for _ in range(draw.number(1, 4))
    )


def _plan_rot(seed: int, kind: str, span_us: int) -> tuple[Fault, ...]:
    """Now and then footprint logs, or checkpoints of lines, are damaged.

    Runs without any have no such fault.
    """
    draw = Draw(f"{seed}/{_ROTS[kind]}")
    if not draw.percent(_ROTTEN_PERCENT):
        return ()
    count = draw.number(1, 3)
    return tuple(_lasting(draw, kind, span_us, 1_000, 10_000) for _ in range(count))


def _plan_departures(seed: int, span_us: int) -> tuple[Fault, ...]:
    """Now and then executors leave, with more or less time for their nodes to go elsewhere."""
    draw = Draw(f"{seed}/departures")
    if not draw.percent(_LEAVING_PERCENT):
        return ()
    count = draw.number(1, 3)
    return tuple(_lasting(draw, "leave", span_us, 50_000, 3_000_000) for _ in range(count))


def _plan_full_clusters(seed: int, span_us: int) -> tuple[Fault, ...]:
    """Now and then another query takes the slot of a node that dies, and all that are free."""
    draw = Draw(f"{seed}/slots")
    if not draw.percent(_NO_SLOTS_PERCENT):
        return ()
    return (_lasting(draw, NO_SLOTS, span_us, 200_000, 6_000_000),)


def _plan_lost_hellos(seed: int) -> tuple[Fault, ...]:
    """Now and then every other frame is lost of processes that say hello, or are answered."""
    draw = Draw(f"{seed}/hellos")
    if not draw.percent(_LOST_HELLO_PERCENT):
        return ()
    return tuple(
        Fault(
            "lost-frames",
            at_us=None,
            step=draw.one_of(_HELLO_STEPS),
            nth=draw.steep(1, 12),
            pick=draw.number(0, 1 << 30),
            length_us=draw.steep(20_000, 1_000_000),
            size=1,
        )
        for _ in range(draw.number(1, 4))
    )


def _plan_silences(
    seed: int, kinds: tuple[str, ...], span_us: int, percent: int
) -> tuple[Fault, ...]:
    """In so many runs of a hundred some sources fall silent, for long or for a moment."""
    draw = Draw(f"{seed}/silences")
    if not kinds or not draw.percent(percent):
        return ()
    count = draw.number(1, 4)
    return tuple(
        _lasting(draw, draw.one_of(kinds), span_us, 10_000, 2_000_000) for _ in range(count)
    )


def _lasting(draw: Draw, kind: str, span_us: int, least_us: int, most_us: int) -> Fault:
    """A fault at a time, for a while."""
    return Fault(
        kind,
        draw.number(0, span_us - 1),
        step="",
        nth=0,
        pick=draw.number(0, 1 << 30),
        length_us=draw.steep(least_us, most_us),
        size=1,
    )


def _plan(seed: int, kinds: tuple[str, ...], span_us: int) -> tuple[Fault, ...]:
    draw = Draw(f"{seed}/faults")
    allowed = [kind for kind in kinds if draw.percent(50)] or list(kinds)
    if not allowed:
        return ()
    count = draw.one_of((0, 1, 1, 2, 3, 4, 6, 8, 12, 16))
    planned: list[Fault] = []
    while len(planned) < count:
        planned.append(_fault(draw, allowed, span_us))
        while draw.percent(35):  # Again, while it recovers.
            kinds_now = allowed
            if "machine-crash" in allowed and draw.percent(25):
                kinds_now = ["machine-crash"]  # A dying machine loses its processes first.
            is_at_step = draw.percent(40)
            planned.append(
                replace(
                    _fault(draw, kinds_now, span_us),
                    at_us=None if is_at_step else draw.steep(1_000, 800_000),
                    step=draw.one_of(_RECOVERY_STEPS) if is_at_step else "",
                    nth=draw.steep(1, 8),
                    follows=len(planned) - 1,
                    is_same_place=draw.percent(60),
                )
            )
    return tuple(planned)


def _fault(draw: Draw, allowed: list[str], span_us: int) -> Fault:
    kind = draw.one_of(allowed)
    at_us: int | None = draw.number(0, span_us - 1)
    step, nth = "", 0
    at_node = kind in _NODE_KINDS
    at_coordinator = kind in _COORDINATOR_KINDS
    if (at_node or at_coordinator) and draw.percent(50):
        at_us = None
        steps = _STEPS if at_node and at_coordinator else NODE_STEPS if at_node else None
        if kind in _BREAKS:
            steps = _SENDING_STEPS
        step = draw.one_of(steps or COORDINATOR_STEPS)
        nth = draw.steep(1, 100)
    if kind == "kill-replicas" and draw.percent(50):
        at_us, step, nth = None, draw.one_of(_PROMOTION_STEPS), draw.steep(1, 4)
    if kind in _STORE_KINDS and draw.percent(50):
        at_us, step, nth = None, "assigned", draw.steep(1, 30)  # Its next step is to read.
    return Fault(
        kind,
        at_us,
        step,
        nth,
        pick=draw.number(0, 1 << 30),
        length_us=draw.steep(10_000, 2_000_000),
        size=draw.number(1, 10),
    )
