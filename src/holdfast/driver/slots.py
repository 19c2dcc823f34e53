"""Spark's task slots: what a query holds for as long as it runs, and whether there is room for it.

Every node, every secondary and every data node is a Spark task that does not end. What writes an
endless streaming DataFrame needs a slot again and again. A bounded one needs a slot too, but only
until it is recorded; where nodes leave none, it is recorded before they come up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.haunit.plan import Standby
from holdfast.driver.listeners import queries
from holdfast.errors import NotEnoughSlotsError
from holdfast.shell.spark.executors import wait_for_slots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark import SparkContext

    from holdfast.api.embedded_store import EmbeddedStore
    from holdfast.planning.plan import Plan
    from holdfast.shell.sources.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Slots:
    """How many task slots a query needs at the same time, by what for."""

    nodes: int
    secondaries: int = 0
    writers: int = 0
    data_nodes: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self.nodes + self.secondaries + self.writers + self.data_nodes

    def __str__(self) -> str:
        """For people: `3 nodes need 5 task slots at the same time (2 for secondaries)`."""
        others = [f"{self.secondaries} for secondaries"] if self.secondaries else []
        others += ["one for the streaming DataFrames"] if self.writers else []
        others += [f"{self.data_nodes} for data nodes"] if self.data_nodes else []
        also = f" ({', '.join(others)})" if others else ""
        return f"{self.nodes} nodes need {self.count} task slots at the same time{also}"


def slots_of(plan: Plan, ingests: Iterable[Recorder], embedded: EmbeddedStore | None) -> Slots:
    """What a query that is placed so needs."""
    return Slots(
        nodes=len(plan.nodes),
        secondaries=sum(node.standby is not Standby.NONE for node in plan.nodes),
        writers=int(any(ingest.is_unbounded for ingest in ingests)),
        data_nodes=0 if embedded is None else embedded.data_nodes,
    )


def require_slots(context: SparkContext, wanted: Slots, wait_s: float) -> int:
    """See that Spark has so many slots that nobody holds.

    Args:
        context: Spark's.
        wanted: What is needed.
        wait_s: How long executors of a cluster may take to come up.

    Returns:
        How many there are.

    Raises:
        NotEnoughSlotsError: There are fewer.
    """
    holding = [query for query in queries.active if query.isActive]
    held = sum(query.slots.count for query in holding)
    all_wanted = wanted.count + held
    is_local = context.master.startswith("local")
    there = wait_for_slots(context, all_wanted, 0.0 if is_local else wait_s)
    if all_wanted <= there:
        return there - held
    holders = ", ".join(f"{q.slots.count} of them held by query {q.name!r}" for q in holding)
    raise NotEnoughSlotsError(
        f"{wanted}, Spark has {there}{f', {holders}' if holders else ''}: "
        f"use a master with at least {all_wanted} slots, e.g. local[{all_wanted}], "
        f"or less parallelism{', or stop what is not needed' if holders else ''}"
    )
