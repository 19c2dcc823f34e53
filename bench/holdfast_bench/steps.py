"""What one tuple costs in each step on its way from log to log, beside what memory allows.

Every step runs the functions that nodes run, on the batches of a real recording, one step after the
other in this process. CPU time hardly depends on what else the machine does; of several runs the
least counts. The bound of a step is the time to copy its bytes once.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import zmq

from holdfast.api.dataflow import Dataflow
from holdfast.api.streams import Stream
from holdfast.core.haunit import events
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.plan import Assignment, NodeLimits, NodePlan
from holdfast.core.machine import Effect
from holdfast.core.model.ids import Incarnation
from holdfast.core.model.tuples import TupleBatch, with_time
from holdfast.core.wire import frames, log_records
from holdfast.core.wire.log_records import encode_narrow
from holdfast.nexmark.generator import NexmarkConfig
from holdfast.nexmark.queries import build
from holdfast.planning.plan import plan_dataflow
from holdfast.shell.sources.base import SourceRows
from holdfast.shell.sources.log_source import LogSourceSpec
from holdfast.shell.storage.stream_log import StreamLogWriter
from holdfast.shell.transport.channels import Channels, RunKeys
from holdfast_bench.inputs import LogInput, record
from holdfast_bench.reporter import machine_of, table, write_page
from holdfast_bench.spine import machine

QUERIES: Final = ("q1", "q12")

_ONE: Final = Incarnation(1)
_EPOCH: Final = 1
_EVER: Final = 1 << 62
_COPIED_BYTES: Final = 256 << 20

Say = Callable[[str], None]
_E = TypeVar("_E", bound=Effect)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured.

    Attributes:
        tuples: Of the recording.
        repeats: How often each step runs.
    """

    tuples: int
    repeats: int


FULL = Sizes(4_000_000, 7)
QUICK = Sizes(500_000, 3)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a step takes per input tuple of its query.

    Attributes:
        process: Who does it; two of them where a step has two ends.
        step: Its name.
        ns: CPU time.
        bytes: What it takes in, or for the last step what it writes.
        bound_ns: The time to copy so many bytes.
    """

    process: str
    step: str
    ns: float
    bytes: float
    bound_ns: float


def run(sizes: Sizes, say: Say) -> dict[str, Any]:
    """Measure.

    Returns:
        `machine`, `sizes`, `seconds`, `copy_bytes_per_s`, and in `steps` by query its `Cost`s, fit
        for JSON.
    """
    started_s = time.monotonic()
    speed = _copy_speed()
    steps: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        log = record("bid", sizes.tuples, NexmarkConfig(), Path(folder)).log
        for query in QUERIES:
            say(f"{query}: the steps of {sizes.tuples:,} tuples")
            steps[query] = [asdict(c) for c in _Steps(query, log, Path(folder), sizes, speed).run()]
    return {
        "machine": machine(),
        "sizes": asdict(sizes),
        "seconds": round(time.monotonic() - started_s, 1),
        "copy_bytes_per_s": round(speed),
        "steps": steps,
    }


class _Steps:
    """The steps of one query, in the order in which a tuple meets them."""

    def __init__(self, query: str, log: str, folder: Path, sizes: Sizes, speed: float) -> None:
        self._query = query
        self._log = log
        self._folder = folder
        self._sizes = sizes
        self._speed = speed

        self._plans = plans_of(query, log)

    def run(self) -> Iterator[Cost]:
        """Each step's output is the next one's input."""
        ingest = self._plans[0]
        yield from self._reading(ingest.unit)
        reads = list(reads_of(self._log, self._sizes.tuples, NodeLimits().pass_tuples))
        batches = [batch for rows in reads for batch in rows.batches]
        yield self._cost(ingest.unit, "passes", batches, lambda: _read(ingest, reads))
        effects = _read(ingest, reads)
        last = ingest
        if sent := _of_kind(effects, events.SendBatch):
            yield from self._sending(ingest, sent)
            last = self._plans[1]
            batches = [effect.batch for effect in sent]
            yield self._cost(last.unit, "passes", batches, lambda: _receive(last, batches))
            effects = _receive(last, batches)
        yield self._writing(last, _of_kind(effects, events.WriteSink))

    def _reading(self, unit: str) -> Iterator[Cost]:
        segments = sorted(Path(self._log).rglob("*.seg"))
        size = sum(path.stat().st_size for path in segments)
        whole = [memoryview(path.read_bytes()) for path in segments]
        yield self._of(unit, "read the log", size, self._read_log)
        yield self._of(unit, "thereof checksum, validation", size, lambda: _decode_log(whole))

    def _read_log(self) -> None:
        for _ in reads_of(self._log, self._sizes.tuples, NodeLimits().pass_tuples):
            pass

    def _sending(self, plan: NodePlan, sent: Sequence[events.SendBatch]) -> Iterator[Cost]:
        batches = [effect.batch for effect in sent]
        messages = [
            events.BatchReceived(effect.stream, _ONE, _ONE, effect.batch) for effect in sent
        ]
        receiver = self._plans[1]

        def encode() -> list[list[Any]]:
            return [list(frames.encode(message, _EPOCH)) for message in messages]

        yield self._cost(plan.unit, "serialize and checksum frames", batches, encode)
        encoded = encode()
        both = f"{plan.unit}, {receiver.unit}"
        for step, keys in (("channel", RunKeys.generate()), ("the same without encryption", None)):
            with (
                tempfile.TemporaryDirectory(prefix="holdfast-") as folder,
                _Pair(folder, keys) as pair,
            ):
                carry = partial(pair.carry, encoded)
                yield self._cost(both, step, batches, carry)
        schemas = {spec.stream: with_time(spec.schema) for spec in receiver.inputs}
        parts = [[memoryview(part) for part in frame] for frame in encoded]

        def decode() -> None:
            for frame in parts:
                assert isinstance(frames.decode(frame, schemas, _EPOCH), events.BatchReceived)

        yield self._cost(receiver.unit, "checksum and validate frames", batches, decode)

    def _writing(self, plan: NodePlan, written: Sequence[events.WriteSink]) -> Cost:
        def write() -> None:
            with tempfile.TemporaryDirectory(dir=self._folder) as folder:
                schema = written[0].batch.batch.schema
                stream = written[0].stream
                with StreamLogWriter(folder, schema, stream, 1, encode=encode_narrow) as log:
                    for effect in written:
                        batch = effect.batch
                        log.append(batch.tuple_type, batch.first_id, batch.batch, 0, 0)

        return self._cost(plan.unit, "write the sink's log", [e.batch for e in written], write)

    def _cost(
        self,
        process: str,
        step: str,
        batches: Sequence[TupleBatch],
        work: Callable[[], object],
    ) -> Cost:
        size = sum(batch.batch.nbytes for batch in batches)
        return self._of(process, step, size, work)

    def _of(self, process: str, step: str, size: int, work: Callable[[], object]) -> Cost:
        """The least CPU time of all threads of this process over some runs."""
        least = 1 << 62
        for _ in range(self._sizes.repeats):
            began_ns = time.process_time_ns()
            work()
            least = min(least, time.process_time_ns() - began_ns)
        each = size / self._sizes.tuples
        bound_ns = each / self._speed * 1e9
        return Cost(
            process, step, round(least / self._sizes.tuples, 2), round(each, 2), round(bound_ns, 2)
        )


class _Pair:
    """Two ends of a channel in this process, with a run's keys or in plain text."""

    def __init__(self, folder: str, keys: RunKeys | None) -> None:
        self._channels = Channels(keys or RunKeys.generate())
        context = self._channels.context
        self._server: zmq.Socket[bytes]
        self._client: zmq.Socket[bytes]
        if keys is None:
            self._server, self._client = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
            self._server.bind(f"ipc://{folder}/plain")
            self._client.connect(f"ipc://{folder}/plain")
        else:
            self._server = self._channels.server(frames.UP_BYTES_MAX)
            self._server.bind(f"ipc://{folder}/node")
            self._client = self._channels.client(b"receiver", f"ipc://{folder}/node")
        self._client.send(b"here")
        self._identity = self._server.recv_multipart()[0]

    def carry(self, encoded: list[list[Any]]) -> None:
        """Send every frame as nodes do, and receive it."""
        for frame in encoded:
            self._server.send_multipart([self._identity, *frame], copy=False)
            self._client.recv_multipart(copy=False)

    def __enter__(self) -> _Pair:
        return self

    def __exit__(self, *_: object) -> None:
        self._channels.close()


def _copy_speed() -> float:
    """Bytes per second of one core copying memory that no cache holds."""
    source = np.ones(_COPIED_BYTES // 8, dtype=np.int64)
    target = np.empty_like(source)
    least = 1 << 62
    for _ in range(5):
        began_ns = time.process_time_ns()
        np.copyto(target, source)
        least = min(least, time.process_time_ns() - began_ns)
    return _COPIED_BYTES / least * 1e9


def plans_of(query: str, log: str) -> tuple[NodePlan, ...]:
    """The nodes of a query over a recording, with one instance of each unit."""

    def source(flow: Dataflow, kind: str) -> Stream:
        return flow.source_generator(LogInput(log, ""), name=f"{kind}s", unit="ingest")

    return plan_dataflow(build(query, source), "", parallelism=1, limits=NodeLimits()).nodes


def _decode_log(segments: Sequence[memoryview]) -> None:
    for whole in segments:
        assert [end for _, end in log_records.records_of(whole)][-1] == len(whole)


def reads_of(log: str, tuples: int, most: int) -> Iterator[SourceRows]:
    """A recording, read by so many tuples at most."""
    reader = LogSourceSpec(log, "ingest").open()
    next_id = 0
    while next_id < tuples:
        rows = reader.read(next_id, most)
        next_id = rows.batches[-1].next_id
        yield rows
    reader.close()


def _begin(plan: NodePlan) -> Node:
    """A node whose neighbours are there, and whose receivers take whatever it sends."""
    node = Node(plan, Assignment(_EPOCH, _ONE, None, {}), 0)
    peers = [spec.producer for spec in plan.inputs if spec.producer is not None]
    for peer in (*peers, *(r for spec in plan.outputs for r in spec.receivers)):
        node.step(events.PeerIncarnationLearned(peer, _ONE), 0)
    for stream in plan.edge_streams():
        node.step(events.SubscribeReceived(stream, _ONE, _ONE, 0, 0, _EVER), 0)
    return node


def _read(plan: NodePlan, reads: Sequence[SourceRows]) -> list[Effect]:
    """All effects of a node's passes over what a source gives."""
    return [effect for run in passes_over(plan, reads) for effect in run()]


def passes_over(
    plan: NodePlan, reads: Sequence[SourceRows]
) -> Iterator[Callable[[], list[Effect]]]:
    """A node's passes over what a source gives, to be run; its receivers need nothing again."""
    node = _begin(plan)
    streams = plan.edge_streams()

    def run(rows: SourceRows) -> list[Effect]:
        got = events.SourceRead(plan.inputs[0].stream, rows.batches, rows.boundary_us, 0)
        node.step(got, 1)
        effects = node.step(events.Proceed(), 1)
        next_ids = node.positions()["next_ids"]
        for stream in streams:
            known = next_ids[stream]
            node.step(events.AckReceived(stream, _ONE, _ONE, known, known, _EVER), 1)
        return effects

    return (partial(run, rows) for rows in reads)


def _receive(plan: NodePlan, batches: Sequence[TupleBatch]) -> list[Effect]:
    """A node's passes over what another one sends."""
    node, effects = _begin(plan), []
    for batch in batches:
        node.step(events.BatchReceived(plan.inputs[0].stream, _ONE, _ONE, batch), 1)
        effects += node.step(events.Proceed(), 1)
    return effects


def _of_kind(effects: Sequence[Effect], kind: type[_E]) -> list[_E]:
    return [effect for effect in effects if isinstance(effect, kind)]


# -- the page -------------------------------------------------------------------------------------

_PAGE: Final = """# What a tuple costs, step by step

`holdfast bench steps` made this page. {introduction}
Machine: {machine}. {tuples:,} bids of {bid:.0f} bytes each, {repeats} runs,
{seconds:.0f} s in all. Memory is copied at {speed:.1f} GB/s.
"""


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    steps: dict[str, list[dict[str, Any]]] = results["steps"]
    first = next(iter(steps.values()))[0]
    page = _PAGE.format(
        introduction=" ".join((__doc__ or "").split()),
        machine=machine_of(results),
        tuples=results["sizes"]["tuples"],
        bid=first["bytes"],
        repeats=results["sizes"]["repeats"],
        seconds=results["seconds"],
        speed=results["copy_bytes_per_s"] / 1e9,
    )
    header = ("process", "step", "ns per tuple", "bytes per tuple", "bound, ns", "times the bound")
    for query, costs in steps.items():
        rows = [
            (c["process"], c["step"], c["ns"], c["bytes"], c["bound_ns"], _times(c)) for c in costs
        ]
        page += f"\n## {query}\n\n" + table(header, rows)
    return page


def _times(cost: dict[str, Any]) -> str:
    return f"{cost['ns'] / cost['bound_ns']:.1f}" if cost["bound_ns"] else ""


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write `steps.json` and `steps.md` into `folder`; the page's path."""
    return write_page("steps", results, render(results), folder)
