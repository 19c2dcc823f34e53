"""Which outputs of a node missing input reaches. [DPC §4.2]

Theory of operation. An input stream reaches an output if there is a path of operators between them.
A stream that a node has gone on without is *touched* from there until the node goes back to its
cut, and so is one of which tentative tuples were taken. What untouched streams alone reach is what
it would be without any failure: it is put out as stable, while the rest is tentative.

The state of operators that untouched streams alone reach is what it would be, too. They need not go
back, unless one that they feed does: that one is given again what it was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from holdfast.core.haunit.plan import NodePlan, OutputSpec


class Reach:
    """The input streams of a node, and which outputs they reach. Volatile: what is touched."""

    def __init__(self, plan: NodePlan) -> None:
        """Nothing is touched."""
        self._touched: dict[int, None] = {}
        self._told = 0
        self._inputs = len(plan.inputs)
        of_port = [
            [number for number, spec in enumerate(plan.inputs) if spec.port == port]
            for port in range(plan.port_count)
        ]
        self._operators = plan.operators
        self._of_operator = of_operator = list[list[int]]()
        for operator in plan.operators:
            inputs = (
                (of_port if kind == "port" else of_operator)[n] for kind, n in operator.inputs
            )
            of_operator.append(sorted({stream for streams in inputs for stream in streams}))
        self._streams = {
            spec.source: (of_port if spec.source[0] == "port" else of_operator)[spec.source[1]]
            for spec in plan.outputs
        }

    @property
    def apart(self) -> list[tuple[int, ...]]:
        """The streams of each output that some of the node's reach, and not all."""
        found = dict.fromkeys(tuple(streams) for streams in self._streams.values())
        return [streams for streams in found if 0 < len(streams) < self._inputs]

    def touch(self, streams: Iterable[int]) -> None:
        """The node goes on without these, or with what is tentative of them."""
        self._touched |= dict.fromkeys(streams)

    def touching(self, spec: OutputSpec) -> list[int]:
        """The touched streams that reach an output; none: it is stable."""
        return [stream for stream in self._streams[spec.source] if stream in self._touched]

    def staying(self) -> list[bool]:
        """Per operator whether nothing touched reaches it, nor any that it feeds, be it through
        others. It is where it would be without any failure.
        """
        touched = self._touched
        stays = [all(one not in touched for one in streams) for streams in self._of_operator]
        for number in reversed(range(len(stays))):
            for kind, source in self._operators[number].inputs:
                if kind == "operator" and not stays[number]:
                    stays[source] = False
        return stays

    def take_news(self) -> bool:
        """Whether more is touched than the last time that somebody asked."""
        told, self._told = self._told, len(self._touched)
        return self._told > told

    def went_back(self) -> None:
        """Nothing is touched any more."""
        self._touched.clear()
        self._told = 0
