"""Which steps make up a unit, how many instances it has, and what it reads at which port.

Sources and stateless operators share the unit of their input; every stateful and every arbitrary
operator begins a unit of its own unless `unit(...)` says otherwise. A unit with p instances splits
each input by the hash of the key that its first stateful operator needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api import steps
from holdfast.api.steps import Loop, Source, Stateful
from holdfast.api.windows import CountWindow
from holdfast.errors import DataflowError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step


def units_of(flow: Graph) -> dict[str, list[Step]]:
    """The steps that sinks depend on, by unit, inputs first."""
    units: dict[str, list[Step]] = {}
    for step in needed(flow):
        if not isinstance(step.operation, Loop):
            units.setdefault(step.unit, []).append(step)
    return units


def needed(flow: Graph) -> list[Step]:
    """The steps that some sink depends on, inputs first."""
    return lineage(flow.sinks.values())


def lineage(last: Iterable[Step]) -> list[Step]:
    """These steps and all that they depend on, inputs first."""
    found: dict[Step, None] = {}

    def visit(step: Step) -> None:
        if step not in found:
            for source in step.inputs:
                visit(source)
            found[step] = None

    open_ = list(last)
    while open_:
        before = len(found)
        visit(open_.pop(0))
        open_ += [back for step in list(found)[before:] for back in step.feedback]
    return list(found)


def producers_of(step: Step) -> tuple[Step, ...]:
    """The steps that put a step's tuples out: of a loop, which no node runs, what it reads."""
    if not isinstance(step.operation, Loop):
        return (step,)
    return tuple(one for source in (*step.inputs, *step.feedback) for one in producers_of(source))


def read_by(step: Step) -> tuple[Step, ...]:
    """The steps that a step reads without the way round a loop."""
    found: list[Step] = []
    for source in step.inputs:
        while isinstance(source.operation, Loop):
            source = source.inputs[0]
        found.append(source)
    return tuple(found)


def ports_read(members: list[Step]) -> list[tuple[Step, tuple[str, ...]]]:
    """What a unit reads, port by port, and the keys by which it is split: its own sources first.

    Rows of one time come in this order where several streams are merged.

    Args:
        members: The unit's steps, inputs first.
    """
    unit = members[0].unit
    ports: list[tuple[Step, tuple[str, ...]]] = [
        (step, ()) for step in members if isinstance(step.operation, Source)
    ]
    for step in members:
        for position, producer in enumerate(step.inputs):
            port = producer, keys_read(step, position)
            if producer.unit != unit and port not in ports:
                ports.append(port)
    return ports


def keys_read(step: Step, position: int) -> tuple[str, ...]:
    """The columns by which an input of a step is split among instances; empty: it is not."""
    keys = _partition_keys(step)
    return keys[position] if keys else ()


def _partition_keys(step: Step) -> tuple[tuple[str, ...], ...]:
    """Per port the columns by which the input may be split; empty if it must not be."""
    match step.operation:
        case steps.WindowAggregate(keys=keys, windows=windows):
            is_of_stream = isinstance(windows, CountWindow) and windows.alignment == "stream"
            return (keys,) if keys and not is_of_stream else ()
        case steps.RunningAggregate(keys=keys):
            return (keys,) if keys else ()
        case steps.Distinct(keys=keys) | steps.Process(keys=keys):
            return (keys,)
        case steps.Resample(match=match):
            return match if match[0] else ()
        case operation if isinstance(operation, steps.Join):
            return (operation.left_keys, operation.right_keys)
        case _:
            return ()


def instances_of(unit: str, members: list[Step], parallelism: int | dict[str, int]) -> int:
    """How many nodes a unit has.

    Raises:
        DataflowError: It cannot have as many as are wanted.
    """
    partitions = {s.operation.partitions for s in members if isinstance(s.operation, Source)}
    if len(partitions) > 1:
        raise DataflowError(f"the sources of unit {unit!r} have different partitions")
    keyed = [step for step in members if isinstance(step.operation, Stateful)]
    if partitions:
        count = partitions.pop()
        if count > 1 and keyed:
            raise DataflowError(
                f"unit {unit!r} holds a source with {count} partitions and a stateful operator; "
                "leave the operator in a unit of its own"
            )
        return count
    wanted = parallelism.get(unit, 1) if isinstance(parallelism, dict) else parallelism
    if wanted < 1:
        raise DataflowError(f"parallelism of unit {unit!r} is {wanted}; at least 1")
    if not keyed or not all(_partition_keys(step) for step in keyed):
        return 1
    if wanted > 1 and len(keyed) > 1:
        names = ", ".join(step.name for step in keyed)
        raise DataflowError(
            f"unit {unit!r} with parallelism {wanted} holds several keyed operators ({names}); "
            "give each a unit of its own"
        )
    inside = [source.name for step in keyed for source in step.inputs if source.unit == unit]
    if wanted > 1 and inside:
        raise DataflowError(
            f"unit {unit!r} with parallelism {wanted} cannot split what {keyed[0].name} reads by "
            f"key, as {', '.join(inside)} comes before it there; give that another unit(...)"
        )
    return wanted


def refuse_cycles(units: dict[str, list[Step]]) -> None:
    """Raise `DataflowError` for units that would wait for each other's boundaries for ever."""
    reads = {
        unit: {s.unit for step in members for s in read_by(step) if s.unit != unit}
        for unit, members in units.items()
    }
    while reads:
        ready = [unit for unit, others in reads.items() if not others & reads.keys()]
        if not ready:
            raise DataflowError(
                f"units {', '.join(reads)} read from each other in a circle; "
                "give the operators between them another unit(...)"
            )
        for unit in ready:
            del reads[unit]
