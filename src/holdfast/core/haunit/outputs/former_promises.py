"""What earlier incarnations of a node have promised, as receivers say. [HA §5.2.2]

Theory of operation. A replacement may know less of the future than its predecessor did: what it
reads comes again, but the promises among it need not. Sources promise as time goes by, and who
feeds the node may have failed as well. Then a receiver that has lived on is ahead of the others:
1. It puts out what the predecessor's promise let go of. 2. Whoever merges that with what the others
put out waits for these, and takes no more of it. 3. So the receiver takes no more of the node.
4. The node stops, and does not come to the promise that the others wait for.

A receiver says up to which time it has everything: so much it was promised before a tuple that it
names. Once that tuple has been put out, the promise holds for all that follows on any stream of the
same output. A receiver that has lived on stops the node only behind that tuple. So the node
tells the others of the promise, and they come as far.

This holds where replacements put out the same tuples in the same order. Outputs without state
between them go *together*: the rows of one tell how far the others are.

Invariant: what is promised holds, whichever incarnation says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.model.ids import BEGINNING_US, NO_ID

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.core.haunit.events import SubscribeReceived
    from holdfast.core.haunit.outputs.edge import OutputEdge
    from holdfast.core.haunit.plan import NodePlan
    from holdfast.core.machine import Effect
    from holdfast.core.model.ids import StreamId

Source = tuple[str, int]
"""Where rows come from, as in `OperatorSpec.inputs`."""


class _Told(NamedTuple):
    """On this stream a boundary was promised before this tuple."""

    stream: StreamId
    before: int
    boundary_us: int


class FormerPromises:
    """Of all streams to other nodes. Volatile: all fields."""

    def __init__(
        self,
        plan: NodePlan,
        edges: Mapping[StreamId, OutputEdge],
        roots: Mapping[Source, Source] | None = None,
    ) -> None:
        """Nothing has been said.

        Args:
            plan: The node's.
            edges: Its streams to other nodes.
            roots: Per source of an output where its rows come from, but for operators without
                state; None: from itself.
        """
        self._edges = edges
        self._is_repeated = _puts_out_the_same(plan)
        self._roots: dict[StreamId, Source] = {}  # of streams to other nodes
        for spec in plan.outputs:
            root = spec.source if roots is None else roots[spec.source]
            self._roots |= {stream: root for stream in spec.streams if stream in edges}
        self._told: list[_Told] = []  # what it was promised before has not been put out yet
        self._holds_us: dict[Source, int] = {}  # by root: what holds by now

    def subscribed(self, got: SubscribeReceived) -> list[Effect]:
        """A receiver's primary says what it has: tell the others what that was promised."""
        edge = self._edges[got.stream]
        if not self._is_repeated or edge.numbering.is_rebased or got.from_id == NO_ID:
            return []
        if got.boundary_us <= edge.queue.boundary_us:
            return []
        before = max(got.from_id, got.had_before)  # What it has rests on all of these.
        self._told.append(_Told(got.stream, before, got.boundary_us))
        effects: list[Effect] = []
        for stream, root in self._roots.items():
            if root == self._roots[got.stream]:
                self._edges[stream].queue.promise(self.promised_us(stream))
                if stream != got.stream:  # The node serves that one next.
                    effects += self._edges[stream].flush()
        return effects

    def promised_us(self, stream: StreamId) -> int:
        """What holds on a stream to another node by now. Cost: O(what was told and waits)."""
        if self._told:
            self._look()
        return self._holds_us.get(self._roots[stream], BEGINNING_US)

    def _look(self) -> None:
        """What has been put out since may be behind promises that were told."""
        waiting: list[_Told] = []
        for told in self._told:
            edge, root = self._edges[told.stream], self._roots[told.stream]
            if edge.numbering.is_rebased or told.boundary_us <= edge.queue.boundary_us:
                continue
            if edge.queue.next_id > told.before:
                self._holds_us[root] = max(self._holds_us.get(root, BEGINNING_US), told.boundary_us)
            elif told not in waiting:
                waiting.append(told)
        self._told = waiting


def _puts_out_the_same(plan: NodePlan) -> bool:
    """Whether a replacement puts out the same in the same order, whoever else fails.

    Not nodes that recover together, or drop what they cannot correct. Recorded passes bring the
    promises with them that they made.
    """
    by_time_or_id = not (plan.keeps_passes or plan.merges_by_arrival or plan.is_in_loop)
    is_repeated = plan.is_replayed and not (plan.may_be_rebased or plan.rebases)
    return by_time_or_id and is_repeated and not plan.region and plan.delays is None
