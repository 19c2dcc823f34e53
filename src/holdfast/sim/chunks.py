"""The chunk store under one seeded scheduler: master, data nodes, clients, disks, a bad network.

Everything below the protocol's machines is simulated: messages (as bytes: encoded and decoded) are
lost, late and doubled; processes are killed, at any time and at named steps, and paused; disks
refuse, rot and are wiped; the journal's last write may be lost with its writer. When the driver is
killed all data nodes end with it, and come up again on hosts that are there, as homes.py has it. In
between, clients write, read and delete objects. Then the faults end, and after a while everything
must have settled.

At most `copies - 1` data nodes lose something while the store has not settled since: that is what
it promises to survive. What counts as settled for this is the master's own word; a store that
wrongly believes itself safe is found out by what it loses.

The invariants, by name:

    C-READ   a read that succeeds gives exactly what was written
    C-ACK    a committed object has all its copies on disks, but for those lost since the last rest
    C-NAMES  committed objects exist until they are deleted; others never appear
    C-LOST   in the end every committed object reads back
    C-COPIES in the end every chunk has its copies, on disks, neither fewer nor more
    C-LEAK   in the end nothing else is on the disks
    C-ROT    in the end no copy has rotted unnoticed, though nobody may have read it
    C-LIVE   every operation ends; in the end the store settles, and takes what is written

In half of all runs Peace places and times the writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.chunk_master import ChunkMaster
from holdfast.core.chunks.data_node import DataNode, DataNodeIdentity
from holdfast.core.chunks.homes import destination
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.errors import InvariantViolation
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired
from holdfast.core.peace.messages import PeaceSettings
from holdfast.core.peace.network_model import NetworkModel
from holdfast.core.peace.peace import Peace
from holdfast.core.wire import chunk_words as words
from holdfast.core.wire.frames import CorruptFrame
from holdfast.sim.chunk_checks import Violated, check_end, explain
from holdfast.sim.chunk_clients import Client, Process
from holdfast.sim.chunk_disk import ChunkDisk
from holdfast.sim.scheduler import Scheduler, Trace

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkId, Message, StoredChunk

_FAULTS_END_US: Final = 12_000_000
_LIMIT_US: Final = 120_000_000
_CLIENTS: Final = 3
_REST_US: Final = 50_000
_REACH_TIMEOUT_MS: Final = 1_500
_ALL_KINDS: Final = (*words.TO_MASTER, *words.TO_DATA_NODE, *words.TO_CLIENT)
_PATH_KINDS: Final = (*words.UP_THE_CHAIN, *words.TO_READER, *words.DOWN_THE_CHAIN)

FAULTS: Final = (
    "kill a data node",
    "kill the master",
    "kill the driver",
    "kill a client",
    "pause a data node",
    "wipe a data node",
    "flip a bit",
    "fill a disk",
    "make a disk read-only",
    "cut off a data node",
)
STEPS: Final = {
    "piece received": 2,
    "chunk sealed": 8,
    "journal asked": 40,
    "commit journalled": 15,
    "copy begun": 30,
}
"""Where somebody is killed, and how often in a thousand times."""


@dataclass(frozen=True, slots=True)
class ChunkOutcome:
    """How a run ended.

    Attributes:
        seed: Its seed.
        invariant: The one violated, or the error's name; None: all held.
        violation: In words.
        digest: Equal for equal runs.
        committed: Objects committed.
        faults: How often each struck.
        copies: Copies that the masters asked for.
        refusals: Checkpoints that had to wait for their turn.
    """

    seed: int
    invariant: str | None
    violation: str
    digest: str
    committed: int
    faults: dict[str, int]
    copies: int
    refusals: int


def simulate_chunks(
    seed: int, trace: Trace | None = None, *, with_faults: bool = True
) -> ChunkOutcome:
    """One run of the store; the same seed gives the same run."""
    world = ChunkWorld(seed, trace, with_faults=with_faults)
    invariant, violation = None, ""
    try:
        world.run()
    except Violated as violated:
        invariant, violation = violated.invariant, str(violated)
    except (InvariantViolation, RuntimeError, LookupError, ValueError) as error:
        invariant, violation = type(error).__name__, f"{type(error).__name__}: {error}"
    return ChunkOutcome(
        seed,
        invariant,
        violation,
        world.scheduler.digest(),
        world.commits,
        world.struck,
        world.copies,
        world.refusals,
    )


class _Chance:
    """What Peace leaves to chance."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def shuffle(self, elements: list[int], /) -> None:
        for last in range(len(elements) - 1, 0, -1):
            other = self._scheduler.uniform("peace", 0, last)
            elements[last], elements[other] = elements[other], elements[last]


class ChunkWorld:
    """One run."""

    def __init__(self, seed: int, trace: Trace | None, *, with_faults: bool) -> None:
        """Prepare a store without objects."""
        self.scheduler = Scheduler(seed, trace)
        copies = self.scheduler.uniform("shape", 1, 3)
        self.has_peace = self.scheduler.percent("peace", 50)
        self.settings = ChunkSettings(
            copies=copies,
            chunk_bytes=64,
            piece_bytes=16,
            keep_alive_ms=100,
            misses=4,
            lease_ms=1_000_000,
            inventory_ms=300,
            write_idle_ms=2_000,
            upload_timeout_ms=4_000,
            scrub_ms=60,
            recopy_delay_ms=300,
            copy_timeout_ms=800,
            resend_ms=60,
            chain_timeout_ms=700,
            read_timeout_ms=250,
            read_window=3,
            operation_timeout_ms=6_000,
            reach_timeout_ms=_REACH_TIMEOUT_MS,
        )
        self.with_faults = with_faults
        self.processes: dict[str, Process] = {}
        self.journal: list[dict[str, object]] = []
        self._wanted: tuple[int, dict[ChunkId, StoredChunk]] = (0, {})  # by so many entries
        self._torn: Process | None = None  # the master whose journal ends before its end
        self._journal_us = 0  # when what was given to the journal will be written
        self.epoch = 0
        self.master: ChunkMaster | None = None
        nodes = [f"data-{n}" for n in range(copies + self.scheduler.uniform("shape", 1, 2))]
        self.hosts = [f"host-{n}" for n in range(len(nodes) + 1)]
        self.host_of = dict(zip(nodes, self.hosts, strict=False))
        self._folders = {
            (host, node): ChunkDisk(self.settings.piece_bytes)
            for host in self.hosts
            for node in nodes
        }
        self.disks: dict[str, ChunkDisk] = {}  # of each data node, where it is
        self._away_until_us: dict[str, int] = {}  # hosts
        self.lives: dict[str, int] = dict.fromkeys(nodes, 0)
        self.cut_until_us: dict[str, int] = {}
        self._last_us: dict[tuple[str, str], int] = {}  # newest arrival by link
        self.wounded: dict[str, int] = {}  # who lost something since the last rest, and its life
        self.expected: dict[str, bytes] = {}  # committed objects
        self.unsure: dict[str, bytes] = {}  # commit or deletion asked for, and not answered
        self.commits = 0
        self.copies = 0
        self.refusals = 0
        self.struck: dict[str, int] = {}
        self.clients = [Client(self, number) for number in range(_CLIENTS)]

    @property
    def is_quiet(self) -> bool:
        """Whether the time of faults is over."""
        return not self.with_faults or self.scheduler.now_us >= _FAULTS_END_US

    def now_ms(self) -> int:
        """The clock of all machines."""
        return self.scheduler.now_us // 1_000

    # -- the run ----------------------------------------------------------------------------

    def run(self) -> None:
        """Everything. Raises `Violated`."""
        self.start_master()
        for node in self.host_of:
            self.start_data_node(node)
        for client in self.clients:
            client.start()
        if self.with_faults:
            self.scheduler.after(300_000, self._strike)
            self._note_rest()
        end_us = _FAULTS_END_US // (1 if self.with_faults else 4)
        self.scheduler.run(lambda: self.scheduler.now_us >= end_us, lambda: _LIMIT_US)
        for client in self.clients:
            client.is_ending = True
        self._settle()
        for client in self.clients:
            client.write_at_last()
        self._settle()
        check_end(self)

    def _settle(self) -> None:
        if not self.scheduler.run(self._is_settled, lambda: _LIMIT_US):
            explain(self)

    def _is_settled(self) -> bool:
        if any(client.is_busy for client in self.clients) or self.master is None:
            return False
        live = self.master.statistics().data_nodes
        return live == len(self.disks) and self.master.is_settled() and self._is_clean()

    def _is_clean(self) -> bool:
        """Whether the disks hold just what they should."""
        return (
            all(not disk.parts and disk.is_idle for disk in self.disks.values())
            and sum(len(disk.chunks) for disk in self.disks.values())
            == self.settings.copies * len(self.wanted())
            and not any(disk.rotten() for disk in self.disks.values())
        )

    def wanted(self) -> dict[ChunkId, StoredChunk]:
        """All chunks of objects that the journal knows; it is read again once it has grown."""
        entries, wanted = self._wanted
        if entries != len(self.journal):
            fresh = ChunkMaster(epoch=0, settings=self.settings, journal=tuple(self.journal))
            records = fresh.directory.objects.values()
            wanted = {c.chunk: c for record in records for c in record.chunks}
            self._wanted = len(self.journal), wanted
        return wanted

    # -- processes --------------------------------------------------------------------------

    def step(self, process: Process, stimulus: Stimulus) -> None:
        """Give a process a stimulus, now, or when it wakes up."""
        if not process.is_alive:
            return
        wait_us = process.paused_until_us - self.scheduler.now_us
        if wait_us > 0:
            self.scheduler.after(wait_us, lambda: self.step(process, stimulus))
            return
        effects = process.machine.step(stimulus, self.now_ms())
        process.machine.check_invariants()
        for effect in effects:
            self._perform(process, effect)

    def _perform(self, process: Process, effect: Effect) -> None:
        """Unless it was killed between two effects."""
        if isinstance(effect, SetTimer):
            self._set_timer(process, effect)
        elif process.is_alive:
            process.perform(effect)

    def _set_timer(self, process: Process, timer: SetTimer) -> None:
        process.timers[timer.name] = timer.at_ms

        def fire() -> None:
            if process.timers.get(timer.name) == timer.at_ms:
                del process.timers[timer.name]
                self.step(process, TimerFired(timer.name))

        self.scheduler.after(max(1, timer.at_ms * 1_000 - self.scheduler.now_us), fire)

    def start_master(self) -> None:
        """A new life of the master over the journal."""
        self.epoch += 1
        self.master = ChunkMaster(
            epoch=self.epoch,
            settings=self.settings,
            placement=self._peace() if self.has_peace else None,
            journal=tuple(self.journal),
        )
        process = Process("master", self.master, lambda effect: self._perform_master(effect))
        self.processes["master"] = process
        self.step(process, e.Started())

    def _peace(self) -> Peace:
        """Who places and times what clients write, as an embedded store has it."""
        settings = PeaceSettings(can_writer_hold_copy=len(self.host_of) <= self.settings.copies)
        chance = _Chance(self.scheduler)
        return Peace(NetworkModel.of_racks({}), settings=settings, random=chance)

    def start_data_node(self, node: str) -> None:
        """A new life of a data node over its disk."""
        self.lives[node] += 1
        name = f"{node}#{self.lives[node]}"
        host = self.host_of[node]
        disk = self.disks[node] = self._folders[host, node]
        identity = DataNodeIdentity(node, name, self.lives[node], host, host, name)
        machine = DataNode(identity, self.settings, *disk.found())
        process = Process(name, machine, lambda _: None)
        process.perform = lambda effect: self._perform_data_node(process, node, effect)
        self.processes[name] = process
        self.step(process, e.Started())

    def _perform_master(self, effect: Effect) -> None:
        master = self.processes["master"]
        match effect:
            case e.SendToDataNode():
                if isinstance(effect.message, m.CopyWanted):
                    self.copies += 1
                self.send(master, effect.task, effect.message, None)
                if isinstance(effect.message, m.CopyWanted):
                    self.named_step("copy begun", effect.message.target.node)
            case e.SendToClient():
                self.send(master, effect.client, effect.message, None)
            case e.WriteJournal():
                if self.named_step("journal asked", "master"):
                    return
                self._journal_us = max(self._journal_us, self.scheduler.now_us)
                self._journal_us += self.scheduler.uniform("journal", 100, 10_000)
                delay_us = self._journal_us - self.scheduler.now_us
                self.scheduler.after(delay_us, lambda: self._journalled(master, effect))

    def _journalled(self, master: Process, effect: e.WriteJournal) -> None:
        """A master that died meanwhile has written it, or neither it nor anything behind it."""
        if not master.is_alive and (
            self._torn is master or self.scheduler.percent("journal torn", 50)
        ):
            self._torn = master
            return
        if self.processes["master"] is not master:
            return  # The next one has begun another file.
        self.journal += effect.entries
        if self.named_step("commit journalled", "master"):
            return
        self.step(master, e.JournalWritten(effect.request_id))

    def _perform_data_node(self, process: Process, node: str, effect: Effect) -> None:
        match effect:
            case e.SendToMaster():
                self.send(process, "master", effect.message, None)
            case e.SendToEndpoint():
                self.send(process, effect.endpoint, effect.message, process.name)
            case e.Reply():
                self.send(process, effect.sender.decode(), effect.message, None)
            case e.EndProcess():
                process.is_alive = False
            case _:
                self._use_disk(process, node, effect)
                if isinstance(effect, e.WritePiece):
                    self.named_step("piece received", node)

    def _use_disk(self, process: Process, node: str, effect: Effect) -> None:
        """Disks are slow and work in order; what is not done when the process dies, is not done."""
        disk = self.disks[node]
        disk.busy_until_us = max(disk.busy_until_us, self.scheduler.now_us)
        disk.busy_until_us += self.scheduler.uniform(f"disk/{node}", 10, 3_000)
        disk.waiting += 1

        def act() -> None:
            disk.waiting -= 1
            if not process.is_alive:
                return
            answer = disk.perform(effect)
            if isinstance(effect, e.SealChunk) and self.named_step("chunk sealed", node):
                return
            if answer is not None:
                self.step(process, answer)

        self.scheduler.after(disk.busy_until_us - self.scheduler.now_us, act)

    # -- the network ------------------------------------------------------------------------

    def send(self, sender: Process, to: str, message: Message, answer_to: str | None) -> None:
        """Send a message: as bytes, late, twice or not at all; `answer_to`: it wants an answer."""
        kinds = (*_ALL_KINDS, *_PATH_KINDS)
        copy = words.decode(words.encode(message), kinds)
        if isinstance(copy, CorruptFrame):
            raise Violated("C-WIRE", f"{message}: {copy.reason}")
        stimulus = copy if answer_to is None else e.Received(answer_to.encode(), copy)
        times = 1
        if not self.is_quiet:
            if self.scheduler.percent("loss", 1) or self._is_cut(sender.name, to):
                return
            times += self.scheduler.percent("duplicates", 2)
        for _ in range(times):
            delay_us = self._delay_us((sender.name, to))
            self.scheduler.after(delay_us, lambda: self._arrive(to, stimulus))

    def _delay_us(self, link: tuple[str, str]) -> int:
        """In order, as in a channel; but some messages come later than all that followed."""
        now_us = self.scheduler.now_us
        delay_us = self.scheduler.uniform("latency", 50, 2_000)
        if not self.is_quiet and self.scheduler.percent("late", 2):
            return delay_us + self.scheduler.uniform("latency", 0, 1_500_000)
        at_us = max(self._last_us.get(link, 0) + 1, now_us + delay_us)
        self._last_us[link] = at_us
        return at_us - now_us

    def _is_cut(self, sender: str, to: str) -> bool:
        now_us = self.scheduler.now_us
        names = (sender.partition("#")[0], to.partition("#")[0])
        return any(self.cut_until_us.get(name, 0) > now_us for name in names)

    def _arrive(self, to: str, stimulus: Stimulus) -> None:
        process = self.processes.get(to)
        if process is not None:
            self.step(process, stimulus)

    # -- faults -----------------------------------------------------------------------------

    def _strike(self) -> None:
        if self.is_quiet:
            return
        kind = FAULTS[self.scheduler.uniform("faults", 0, len(FAULTS) - 1)]
        node = f"data-{self.scheduler.uniform('faults', 0, len(self.host_of) - 1)}"
        self.scheduler.note(f"fault: {kind} {node}")
        self._FAULT[kind](self, kind, node)
        self.scheduler.after(self.scheduler.uniform("faults", 100_000, 2_500_000), self._strike)

    def _count(self, kind: str) -> None:
        self.struck[kind] = self.struck.get(kind, 0) + 1

    def named_step(self, step: str, victim: str) -> bool:
        """A step where it is tempting to kill somebody; whether that happened."""
        if self.is_quiet or self.scheduler.uniform(f"step/{step}", 1, 1_000) > STEPS[step]:
            return False
        self._count(step)
        self.scheduler.note(f"killed at: {step}, {victim}")
        if victim == "master":
            self._kill_master("kill the master", "")
        else:
            self._kill_node("kill a data node", victim)
        return True

    def _kill_node(self, kind: str, node: str) -> None:
        process = self.processes[f"{node}#{self.lives[node]}"]
        if not process.is_alive:
            return
        self._count(kind)
        process.is_alive = False
        self.disks[node].crash()
        self._send_home(node, self.lives[node])

    def _kill_master(self, kind: str, _: str) -> None:
        process = self.processes["master"]
        if not process.is_alive:
            return
        self._count(kind)
        process.is_alive = False
        self.master = None
        delay_us = self.scheduler.uniform("restart", 30_000, 800_000)
        self.scheduler.after(delay_us, self.start_master)

    def _kill_driver(self, kind: str, node: str) -> None:
        """All end with it; one host may be away for longer than it is waited for."""
        if not self.processes["master"].is_alive:
            return
        self._count(kind)
        host = self.host_of[node]
        away = [each for each in self.host_of if self.host_of[each] == host]
        if self._may_lose(*away) and self.scheduler.percent("faults", 50):
            self.wounded |= {each: self.lives[each] for each in away}
            pause_us = self.scheduler.uniform("faults", 100_000, 3 * _REACH_TIMEOUT_MS * 1_000)
            self._away_until_us[host] = self.scheduler.now_us + pause_us
        for each in self.host_of:
            process = self.processes[f"{each}#{self.lives[each]}"]
            if process.is_alive:
                process.is_alive = False
                self.disks[each].crash()
            self._send_home(each, self.lives[each])
        self._kill_master("kill the master", "")

    def _send_home(self, node: str, life: int) -> None:
        """Have a data node come up as ChunkCluster does."""
        since_us = self.scheduler.now_us

        def try_it() -> None:
            if self.lives[node] != life:
                return
            now_us = self.scheduler.now_us
            is_too_long = now_us - since_us > _REACH_TIMEOUT_MS * 1_000
            present = [h for h in self.hosts if self._away_until_us.get(h, 0) <= now_us]
            goal = None
            if self.master is not None:
                must_find_home = self.master.statistics().out_of_reach > 0 and not is_too_long
                homes = self.master.directory.homes.get(node, ())
                goal = destination(homes, present, must_find_home=must_find_home)
            if goal is None:
                self.scheduler.after(_REST_US, try_it)
                return
            anywhere = present[self.scheduler.uniform("hosts", 0, len(present) - 1)]
            self.host_of[node] = goal.machine or anywhere
            self.start_data_node(node)

        self.scheduler.after(self.scheduler.uniform("restart", 20_000, 1_500_000), try_it)

    def _kill_client(self, kind: str, _: str) -> None:
        self._count(kind)
        self.clients[self.scheduler.uniform("faults", 0, _CLIENTS - 1)].die()

    def _pause(self, kind: str, node: str) -> None:
        self._count(kind)
        until_us = self.scheduler.now_us + self.scheduler.uniform("faults", 50_000, 2_000_000)
        self.processes[f"{node}#{self.lives[node]}"].paused_until_us = until_us

    def _cut_off(self, kind: str, node: str) -> None:
        self._count(kind)
        pause_us = self.scheduler.uniform("faults", 50_000, 1_500_000)
        self.cut_until_us[node] = self.scheduler.now_us + pause_us

    def _note_rest(self) -> None:
        """Look from time to time whether the store has recovered from what was lost."""
        master = self.master
        if (
            master is not None
            and master.is_safe()
            and all(self._is_known(master, name) for name in self.disks)
            and not any(disk.flipped for disk in self.disks.values())
        ):
            self.wounded.clear()
        if not self.is_quiet:
            self.scheduler.after(_REST_US, self._note_rest)

    def _may_lose(self, *nodes: str) -> bool:
        """Whether data nodes may lose chunks now, by what the store promises."""
        return len({*self.wounded, *nodes}) < self.settings.copies

    def _is_known(self, master: ChunkMaster, node: str) -> bool:
        """Whether the master has noticed the last loss of a data node, and has it back."""
        process = self.processes[f"{node}#{self.lives[node]}"]
        if self.lives[node] <= self.wounded.get(node, 0) or not process.is_alive:
            return False
        machine = process.machine
        incarnation = master.incarnations().get(node, 0)
        return incarnation > 0 and (
            isinstance(machine, DataNode) and machine.statistics().incarnation == incarnation
        )

    def _wipe(self, kind: str, node: str) -> None:
        """A disk is lost with all that is on it, and its data node with it."""
        if not self._may_lose(node):
            return
        self._count(kind)
        self.wounded[node] = self.lives[node]
        self._kill_node("kill a data node", node)
        self.disks[node].wipe()

    def _flip(self, kind: str, node: str) -> None:
        if not self._may_lose(node):
            return
        if self.disks[node].flip(lambda low, high: self.scheduler.uniform("flips", low, high)):
            self._count(kind)
            self.wounded.setdefault(node, 0)  # It lives on; `flipped` tells when that is over.

    def _fill(self, kind: str, node: str) -> None:
        self._count(kind)
        disk = self.disks[node]
        disk.is_full = True

        def empty() -> None:
            disk.is_full = False

        self.scheduler.after(self.scheduler.uniform("faults", 50_000, 1_000_000), empty)

    def _protect(self, kind: str, node: str) -> None:
        """A file system met an error, and takes no changes until somebody has looked at it."""
        self._count(kind)
        disk = self.disks[node]
        disk.is_read_only = True

        def release() -> None:
            disk.is_read_only = False

        self.scheduler.after(self.scheduler.uniform("faults", 50_000, 1_000_000), release)

    _FAULT: Final = {
        "kill a data node": _kill_node,
        "kill the master": _kill_master,
        "kill the driver": _kill_driver,
        "kill a client": _kill_client,
        "pause a data node": _pause,
        "wipe a data node": _wipe,
        "flip a bit": _flip,
        "fill a disk": _fill,
        "make a disk read-only": _protect,
        "cut off a data node": _cut_off,
    }
