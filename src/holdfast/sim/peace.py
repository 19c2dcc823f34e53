"""Many checkpoints written at once, with Peace and without: the paper's Figure 10, simulated.

The set-up is the paper's [SGuard §6.2]: 17 data nodes in racks of 9 and 8, gigabit switches, one
gigabit link between the racks; 8 to 16 writers (one machine, the coordinator's, never writes) with
128 to 512 MB each, in chunks of 64 MB with three copies: the first in the writer's rack, the second
in the other one, the third beside the second, none on the writer. Nothing is fitted to the paper's
Figure 10; every number of the model comes from its Table 8 and its text.

The model is fluid. A chunk is a flow: as it is passed on while it arrives, it runs at one rate
along its whole chain. Flows share what they use max-min fairly, much as TCP streams do: a flow
could get more only if another one that is no faster got less. What a flow uses:

- the writer, which computes checksums: by streams, Table 8, client, write;
- every network port and direction on its way: 105 MB/s, the most that a client got in Table 8;
- the link between the racks, per direction: the same;
- the disk of every server of its chain: by streams, Table 8, data node, write per client, times
  their number (1: 30, 2: 45, 4: 40, 8: 48, 16: 41 MB/s); between the table's rows by straight line.

So many streams do not slow a disk down as a whole, which is what the table says of writes (of reads
it says otherwise), but each of them gets little.

Without Peace all writers begin at once. Each writes with up to four threads, as many as fill its
network in Table 8, and every chunk goes to random servers within the constraints. With Peace a
writer writes what is granted when it is granted; capacities are the paper's, two chunks out of and
into a server, and four over the link, which the paper does not give: what 105 MB/s carry of streams
that two share a disk, 22.5 MB/s each. Messages and the file system's master take no time in either
case.

What the model leaves out: seeks beyond what Table 8 holds, the memory of data nodes, retries, the
time to cancel and to prepare a checkpoint, and the load of the stream processing itself.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.errors import InvariantViolation
from holdfast.core.peace.messages import (
    ChunkWritten,
    CopyConstraint,
    FailWrite,
    GrantWrite,
    PeaceSettings,
    WriteRequested,
    WriteRequestId,
)
from holdfast.core.peace.network_model import NetworkModel, ServerName
from holdfast.core.peace.peace import Peace
from holdfast.sim.draw import Draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from holdfast.core.machine import Effect

CHUNK_MB: Final = 64
COPIES: Final = 3
WRITERS: Final = (8, 10, 12, 14, 16)
SIZES_MB: Final = (128, 256, 512)
WORKER_THREADS: Final = 4
PORT_MB_PER_S: Final = 105.0
CLIENT_WRITE_MB_PER_S: Final = ((1, 63.7), (2, 91.3), (4, 102.0), (8, 104.0), (16, 105.0))
DISK_WRITE_MB_PER_S_EACH: Final = ((1, 30.0), (2, 22.5), (4, 9.90), (8, 6.03), (16, 2.57))
SETTINGS: Final = PeaceSettings(
    constraints=(
        CopyConstraint.SAME_RACK_AS_WRITER,
        CopyConstraint.OTHER_RACK_THAN_PREVIOUS,
        CopyConstraint.SAME_RACK_AS_PREVIOUS,
    )
)

_RACK_OF_COORDINATOR: Final = tuple(f"a{number}" for number in range(9))
_OTHER_RACK: Final = tuple(f"b{number}" for number in range(8))
_SERVERS: Final = _RACK_OF_COORDINATOR + _OTHER_RACK
_COORDINATOR: Final = "a0"
_WRITTEN_MB: Final = 1e-6  # less than this is rounding


@dataclass(frozen=True, slots=True)
class WriteTimes:
    """When one writer's checkpoint was written; all asked at 0 s.

    Attributes:
        begun_s: It could begin.
        written_s: Its last chunk was stored in all copies.
    """

    begun_s: float
    written_s: float


@dataclass(frozen=True, slots=True)
class Figure10Row:
    """One group of bars of Figure 10; means over the writers and the seeds.

    Attributes:
        writers: How many write at once.
        size_mb: Size of each checkpoint.
        runs: Over how many seeds.
        io_without_s: From a checkpoint's begin until it is written, without Peace.
        io_with_s: The same with Peace, from its first grant on: what waits is cancelled, and costs
            the writer nothing.
        waited_with_s: From the request until it is written, with Peace.
        completion_without_s: Until all checkpoints are written, without Peace.
        completion_with_s: The same with Peace.
    """

    writers: int
    size_mb: int
    runs: int
    io_without_s: float
    io_with_s: float
    waited_with_s: float
    completion_without_s: float
    completion_with_s: float

    @property
    def speedup(self) -> float:
        """How many times faster a single checkpoint is written with Peace."""
        return self.io_without_s / self.io_with_s

    @property
    def delay_percent(self) -> float:
        """How much later all are written with Peace."""
        return 100 * (self.completion_with_s / self.completion_without_s - 1)


def figure10(
    seeds: Sequence[int],
    *,
    writers: Sequence[int] = WRITERS,
    sizes_mb: Sequence[int] = SIZES_MB,
    settings: PeaceSettings = SETTINGS,
) -> list[Figure10Row]:
    """Simulate every number of writers with every size, by seed, in this order.

    Cost: 20 to 200 ms per run.
    """
    return [_row(seeds, count, size_mb, settings) for size_mb in sizes_mb for count in writers]


def _row(seeds: Sequence[int], writers: int, size_mb: int, settings: PeaceSettings) -> Figure10Row:
    chunks = size_mb // CHUNK_MB
    without = [write_without_peace(seed, writers, chunks) for seed in seeds]
    with_peace = [write_with_peace(seed, writers, chunks, settings) for seed in seeds]
    return Figure10Row(
        writers,
        size_mb,
        len(seeds),
        _mean([times.written_s - times.begun_s for run in without for times in run]),
        _mean([times.written_s - times.begun_s for run in with_peace for times in run]),
        _mean([times.written_s for run in with_peace for times in run]),
        _mean([max(times.written_s for times in run) for run in without]),
        _mean([max(times.written_s for times in run) for run in with_peace]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def paper_network() -> NetworkModel:
    """The paper's cluster with its capacities: two chunks out of and into a server."""
    return NetworkModel.of_racks({"a": _RACK_OF_COORDINATOR, "b": _OTHER_RACK})


def chosen_writers(seed: int, count: int) -> list[ServerName]:
    """Which machines write, in the order in which their requests arrive."""
    draw = Draw(f"writers {seed}")
    left = [server for server in _SERVERS if server != _COORDINATOR]
    return [ServerName(left.pop(draw.number(0, len(left) - 1))) for _ in range(count)]


# -- the two ways to write ------------------------------------------------------------------


def write_without_peace(
    seed: int, writers: int, chunks: int, *, worker_threads: int = WORKER_THREADS
) -> list[WriteTimes]:
    """All writers write at once, to random servers."""
    draw = Draw(f"placement {seed}")
    names = chosen_writers(seed, writers)
    cluster = _Cluster()
    waiting = {writer: deque(range(chunks)) for writer in names}
    written_s = dict.fromkeys(names, 0.0)

    def begin_next(writer: ServerName) -> None:
        if waiting[writer]:
            chunk = waiting[writer].popleft()
            cluster.begin(_Flow(writer, chunk, _random_chain(draw, writer)))

    for _ in range(worker_threads):
        for writer in names:
            begin_next(writer)
    while cluster.is_busy():
        for flow in cluster.run_until_written():
            written_s[flow.writer] = cluster.now_s
            begin_next(flow.writer)
    return [WriteTimes(0.0, written_s[writer]) for writer in names]


def _random_chain(draw: Draw, writer: ServerName) -> tuple[ServerName, ...]:
    """The constraints of `SETTINGS`, met without looking at any load."""
    own, other = _RACK_OF_COORDINATOR, _OTHER_RACK
    if writer in other:
        own, other = other, own
    first = draw.one_of([server for server in own if server != writer])
    second = draw.one_of(other)
    third = draw.one_of([server for server in other if server != second])
    return ServerName(first), ServerName(second), ServerName(third)


def write_with_peace(
    seed: int, writers: int, chunks: int, settings: PeaceSettings = SETTINGS
) -> list[WriteTimes]:
    """Writers ask Peace, and write what is granted when it is granted."""
    chance = random.Random(f"peace {seed}")
    peace = Peace(paper_network(), settings=settings, random=chance)
    names = chosen_writers(seed, writers)
    cluster = _Cluster()
    begun_s: dict[ServerName, float] = {}
    written_s = dict.fromkeys(names, 0.0)

    def perform(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, FailWrite):
                raise InvariantViolation(f"{effect.request_id} failed: {effect.reason}")
            if isinstance(effect, GrantWrite):
                writer = ServerName(effect.request_id)
                begun_s.setdefault(writer, cluster.now_s)
                for placement in effect.placements:
                    cluster.begin(_Flow(writer, placement.chunk, placement.servers))

    for writer in names:
        request_id = WriteRequestId(writer)
        perform(peace.step(WriteRequested(request_id, writer, COPIES, chunks), 0))
    while cluster.is_busy():
        for flow in cluster.run_until_written():
            written_s[flow.writer] = cluster.now_s
            written = ChunkWritten(WriteRequestId(flow.writer), flow.chunk)
            perform(peace.step(written, int(cluster.now_s * 1000)))
            peace.check_invariants()
    return [WriteTimes(begun_s[writer], written_s[writer]) for writer in names]


# -- the cluster ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Flow:
    """One chunk on its way along a chain."""

    writer: ServerName
    chunk: int
    chain: tuple[ServerName, ...]
    left_mb: float = CHUNK_MB


# Resources are numbered: per server the writing client, the port out, the port in and the disk;
# then the link in both directions.
_OF_SERVER: Final = {ServerName(server): 4 * index for index, server in enumerate(_SERVERS)}
_CLIENT, _OUT, _IN, _DISK = range(4)
_LINK: Final = 4 * len(_SERVERS)
_RESOURCES: Final = _LINK + 2
_STREAMS_MAX: Final = 1_024


def _by_streams(table: Sequence[tuple[int, float]]) -> NDArray[np.float64]:
    """MB/s in all, by number of streams; beyond the table as in its last row."""
    streams, rates = zip(*table, strict=True)
    totals: NDArray[np.float64] = np.interp(np.arange(_STREAMS_MAX), streams, rates)
    return totals


_CLIENT_TOTAL: Final = _by_streams(CLIENT_WRITE_MB_PER_S)
_DISK_TOTAL: Final = _by_streams([(n, n * each) for n, each in DISK_WRITE_MB_PER_S_EACH])


class _Cluster:
    """Flows in progress, and the time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._flows: list[_Flow] = []
        self._uses: list[NDArray[np.int64]] = []  # by flow: 1 for every resource it uses

    def is_busy(self) -> bool:
        return bool(self._flows)

    def begin(self, flow: _Flow) -> None:
        self._flows.append(flow)
        self._uses.append(_resources_of(flow))

    def run_until_written(self) -> list[_Flow]:
        """Let time pass until some flows end; these, in the order they began."""
        rates = fair_rates(np.array(self._uses))
        waits = [flow.left_mb / rate for flow, rate in zip(self._flows, rates, strict=True)]
        passed_s = min(waits)
        self.now_s += passed_s
        for flow, rate in zip(self._flows, rates, strict=True):
            flow.left_mb -= rate * passed_s
        written = [flow for flow in self._flows if flow.left_mb <= _WRITTEN_MB]
        kept = [flow.left_mb > _WRITTEN_MB for flow in self._flows]
        self._uses = [uses for uses, is_kept in zip(self._uses, kept, strict=True) if is_kept]
        self._flows = [flow for flow, is_kept in zip(self._flows, kept, strict=True) if is_kept]
        return written


def _resources_of(flow: _Flow) -> NDArray[np.int64]:
    uses = np.zeros(_RESOURCES, dtype=np.int64)
    uses[_OF_SERVER[flow.writer] + _CLIENT] = 1
    sender = flow.writer
    for server in flow.chain:
        uses[_OF_SERVER[sender] + _OUT] = 1
        uses[_OF_SERVER[server] + _IN] = 1
        uses[_OF_SERVER[server] + _DISK] = 1
        if sender[0] != server[0]:
            uses[_LINK + (sender in _OTHER_RACK)] += 1
        sender = server
    return uses


def fair_rates(uses: NDArray[np.int64]) -> list[float]:
    """Share resources max-min fairly: the tightest one fixes its flows' rates, again and again.

    Args:
        uses: By flow and resource, how often the flow passes it.

    Returns:
        MB/s by flow.
    """
    streams = uses.sum(axis=0)
    left = np.full(_RESOURCES, PORT_MB_PER_S)
    left[_CLIENT:_LINK:4] = _CLIENT_TOTAL[streams[_CLIENT:_LINK:4]]
    left[_DISK:_LINK:4] = _DISK_TOTAL[streams[_DISK:_LINK:4]]
    rates = np.zeros(len(uses))
    open_flows = np.ones(len(uses), dtype=bool)
    while open_flows.any():
        counts = uses[open_flows].sum(axis=0)
        shares = np.where(counts > 0, left / np.maximum(counts, 1), np.inf)
        tightest = int(shares.argmin())
        fixed = open_flows & (uses[:, tightest] > 0)
        rates[fixed] = shares[tightest]
        left = np.maximum(left - shares[tightest] * uses[fixed].sum(axis=0), 0.0)
        open_flows &= ~fixed
    return [float(rate) for rate in rates]
