"""Ingest logs under one seeded scheduler: who records, in lives that overlap, and who reads.

Recorders and readers run core/queues/recording and the bytes of core/wire/ingest_commits; around
them are simulated: a store whose puts are lost, doubled by a client that tries again, or done after
the death of who asked for them, and which lists what there was a while ago; the driver, killed or
paused between any two steps, whose next life begins while the one before goes on; Spark's offset
log, which is exclusive, and after which a streaming query repeats the batch it had not finished.

A run draws what is recorded: a bounded DataFrame, in every life once more; a streaming one, whose
later lives read what has come since; batch writes side by side, one of which ends the log; users'
files that appear and vanish (`file_lives.py`). Things
are removed that nobody may remove: the query's own checkpoints, or a commit. In one run of four,
drivers whose lives overlap trim the log behind all readers (core/queues/beginning), and die between
a mark and what it lets go. In one of four, two of them pack it (`packed_log.py`). Then the faults
end, and a last life has its time.

The invariants, by name:

    R-ONCE  no row comes twice, and none that was not given
    R-ALL   in the end every row has come: of a bounded DataFrame, of what a streaming query has
            finished, of every batch write that was told it counts; unless somebody was told by name
            that it cannot be
    R-SAME  all readers take the same commits in the same order
    R-END   readers see the end of what has ended, and of nothing else
    R-NAME  nobody is refused without a reason
    R-ORDER users' files come in order of modification and path, and none before it was there
    R-KEPT  a beginning says what the commits before it held, and no commit behind it is gone
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from holdfast.core.machine import Effect, Stimulus
from holdfast.core.queues import recording as r
from holdfast.core.queues.beginning import KEPT_COMMITS, Account, Beginning, nothing_removed
from holdfast.core.queues.recording import Commit, Following, IngestFile, Recording, Refusal
from holdfast.core.wire.beginnings import beginning_from, encode_beginning
from holdfast.core.wire.ingest_commits import decode_commit, encode_commit
from holdfast.core.wire.log_records import CorruptRecord
from holdfast.core.wire.sealed_json import decode_sealed
from holdfast.sim.file_lives import UserFolder, files_life
from holdfast.sim.packed_log import PackedLog
from holdfast.sim.scheduler import Scheduler, Trace
from holdfast.sim.store_operations import Delete, List, Operation, Put, Read, Wait

KINDS: Final = ("bounded", "stream", "appends", "files")
_FAULTS_END_US: Final = 3_000_000
_LIMIT_US: Final = 9_000_000
_STALE_US: Final = 500_000
_UNDER_WAY_US: Final = 50_000
_READERS: Final = 3


@dataclass(frozen=True, slots=True)
class RecordingOutcome:
    """How a run ended.

    Attributes:
        seed: Its seed.
        kind: What was recorded.
        invariant: The one violated; None: all held.
        violation: In words.
        digest: Equal for equal runs.
        rows: Rows that readers took.
        events: How often what happened: `killed`, `repeated`, `refused` and so on.
    """

    seed: int
    kind: str
    invariant: str | None
    violation: str
    digest: str
    rows: int
    events: dict[str, int]


class Violated(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, what: str) -> None:
        """Name it."""
        super().__init__(f"{invariant}: {what}")
        self.invariant = invariant


class Unavailable(Exception):
    """The store did not answer; it may have done what was asked."""


class Refused(Exception):
    """A recorder or reader was told by name that it cannot go on."""

    def __init__(self, refuse: r.Refuse) -> None:
        """Keep why."""
        super().__init__(refuse.text)
        self.refusal = refuse.refusal


_T = TypeVar("_T")
_Part: TypeAlias = Generator[Operation, object, _T]
_Life: TypeAlias = Generator[Operation, object, None]


@dataclass(slots=True)
class _Process:
    """Whoever does one thing after the other: a life of the driver, a reader."""

    name: str
    life: _Life
    is_dead: bool = False
    paused_until_us: int = 0


@dataclass(slots=True)
class _Reading:
    """What one reader has taken."""

    commits: list[Commit] = field(default_factory=list)
    first: int = 0
    following: Following = field(default_factory=Following)
    refusal: Refusal | None = None


class _Simulation:
    """One run."""

    def __init__(self, seed: int, trace: Trace | None) -> None:
        self.scheduler = Scheduler(seed, trace)
        self.kind = KINDS[self.draw("kind", 0, 2)]
        self.folder = UserFolder(self)
        self.packs = PackedLog(self, is_packed=self.draw("packed", 0, 3) == 0)
        if self.draw("users' files", 0, 3) == 0:
            self.kind = "files"
        self._files_max = (1, 2, 1_000)[self.draw("files at once", 0, 2)]
        self.events: Counter[str] = Counter()
        self.objects: dict[str, tuple[int, bytes]] = {}  # name: since when, content
        self.files: dict[str, tuple[int, ...]] = {}  # rows of each file
        self.given: list[int] = []  # rows of the source, in their order
        self.due: set[int] = set()  # rows that must have come in the end
        self.refusals: list[Refusal] = []
        self.readings: list[_Reading] = []
        self.recorders: list[_Process] = []
        self.trimmers: list[_Process] = []
        self.has_removed = False
        self.begins = 0  # the newest mark
        self.let_go: list[int] = []  # rows of the commits before it
        self.is_removing = False  # All is dead, and what was under way is yet to arrive.
        self.is_calm = False
        self.has_end = False  # Somebody was told that the log has ended, or that his end counts.

    def draw(self, concern: str, low: int, high: int) -> int:
        return self.scheduler.uniform(concern, low, high)

    def percent(self, concern: str, probability: int) -> bool:
        return not self.is_calm and self.scheduler.percent(concern, probability)

    # -- the store ------------------------------------------------------------------------------

    def start(self, name: str, life: _Life) -> _Process:
        process = _Process(name, life)
        self.scheduler.after(0, lambda: self._resume(process, None))
        return process

    def _resume(self, process: _Process, answer: object) -> None:
        if process.is_dead:
            return
        if process.paused_until_us > self.scheduler.now_us:
            wait_us = process.paused_until_us - self.scheduler.now_us
            self.scheduler.after(wait_us, lambda: self._resume(process, answer))
            return
        try:
            if isinstance(answer, Exception):
                operation = process.life.throw(answer)
            else:
                operation = process.life.send(answer)
        except (StopIteration, Unavailable):
            process.is_dead = True
            return
        self.scheduler.note(f"{process.name}: {operation}")
        self._begin(process, operation)

    def _begin(self, process: _Process, operation: Operation) -> None:
        """It is done after a while, whether who asked lives or not, and answered after another."""
        if isinstance(operation, Wait):
            self.scheduler.after(operation.us, lambda: self._resume(process, None))
            return

        def perform() -> None:
            if process.is_dead and self.draw("sent", 0, 1):
                return
            answer = self._perform(operation)
            delay_us = self.draw("answer", 100, 20_000)
            self.scheduler.after(delay_us, lambda: self._resume(process, answer))

        self.scheduler.after(self.draw("request", 100, 20_000), perform)

    def _perform(self, operation: Operation) -> object:
        now_us = self.scheduler.now_us
        match operation:
            case Put(name, content):
                if self.percent("unavailable", 3):
                    self.events["unavailable"] += 1
                    return Unavailable()
                is_new = name not in self.objects
                if is_new:
                    self.objects[name] = (now_us, content)
                if self.percent("unanswered", 3):
                    self.events["unanswered"] += 1
                    return Unavailable()
                if is_new and self.percent("asked twice", 5):
                    self.events["asked twice"] += 1
                    return False
                return is_new
            case Read(name):
                found = self.objects.get(name)
                return None if found is None else found[1]
            case Delete(name):
                self.objects.pop(name, None)
                return None
            case List("begin" | "packs" as folder):
                return sorted(name for name in self.objects if name.startswith(f"{folder}/"))
            case List(folder):
                since_us = now_us - (self.draw("stale", 0, _STALE_US) if not self.is_calm else 0)
                found_in = (n for n, (at_us, _) in self.objects.items() if at_us <= since_us)
                return sorted(name for name in found_in if name.startswith(f"{folder}/"))
        raise AssertionError(operation)

    def wait(self, us: int) -> _Part[None]:
        """Let time pass."""
        yield Wait(us)

    def listed(self, folder: str) -> _Part[list[str]]:
        """What lies in a folder."""
        names = yield List(folder)
        assert isinstance(names, list)
        return names

    # -- the machines ---------------------------------------------------------------------------

    def run_machine(self, machine: Recording | Following) -> _Part[Effect | None]:
        """Perform what a machine asks for, up to its result."""
        effects = machine.step(r.CommitWanted())
        while effects:
            (effect,) = effects
            if isinstance(effect, (r.Counted, r.TakeCommit)):
                return effect
            if isinstance(effect, r.Refuse):
                raise Refused(effect)
            stimulus = yield from self._stimulus(effect)
            effects = machine.step(stimulus)
        return None

    def _stimulus(self, effect: Effect) -> _Part[Stimulus]:
        match effect:
            case r.ReadCommit(number):
                return r.CommitRead(number, (yield from self.commit_at(number)))
            case r.WithdrawCommit(number):
                yield Delete(_commit_name(number))
                return r.CommitTaken(number)
            case r.PutCommit(number, commit):
                is_new = yield Put(_commit_name(number), encode_commit(commit))
                return r.CommitPut(number) if is_new else r.CommitTaken(number)
            case r.FindBeginning(number):
                marks = yield from self.listed("begin")
                is_packed = (yield from self.packs.commit(number)) is not None
                return r.BeginningFound(max(map(_number, marks), default=0), is_packed)
            case r.ListCommits():
                listed = yield from self.listed("commits")
                return r.CommitsListed(max((_number(n) for n in listed), default=r.NO_COMMIT))
        raise AssertionError(effect)

    def commit_at(self, number: int) -> _Part[Commit | None]:
        """Where it lies, in the order of looking of core/queues/packing.py."""
        found = yield Read(_commit_name(number))
        packed = yield from self.packs.commit(number)
        return _decoded(found) if packed is None else packed

    # -- recorders ------------------------------------------------------------------------------

    def write_files(self, rows: list[int]) -> tuple[IngestFile, ...]:
        """What Spark's tasks have written, under names of their own."""
        half = len(rows) // 2
        files = []
        for part in (rows[:half], rows[half:]):
            if part:
                name = f"f{len(self.files)}"
                self.files[name] = tuple(part)
                files.append(IngestFile(name, len(part), min(part), max(part), 0))
        return tuple(files)

    def record(self, commit: Commit, number: int | None) -> _Part[bool]:
        """Whether it counts now; refused or unanswered it does not, as far as anybody knows."""
        try:
            done = yield from self.run_machine(Recording(commit, number))
        except Refused as refused:
            self.events[f"refused: {refused.refusal.value}"] += 1
            self.refusals.append(refused.refusal)
            self.has_end |= refused.refusal is Refusal.ENDED
            return False
        except Unavailable:
            return False
        assert isinstance(done, r.Counted)
        self.events["recorded" if done.is_ours else "repeated"] += 1
        self.has_end |= commit.ends
        return True

    def commit_of(
        self, by: str, rows: list[int], origin: str = "", *, ends: bool = False
    ) -> Commit:
        files = self.write_files(rows)
        return Commit(by, files, self.scheduler.now_us, None, None, origin, ends)

    def bounded_life(self) -> _Life:
        """Record the whole DataFrame, unless it has been."""
        listed = yield from self.listed("commits")
        if listed:
            newest = _decoded((yield Read(listed[-1])))
            if newest is not None and newest.ends:
                return
        yield Wait(self.draw("job", 0, 400_000))
        counts = yield from self.record(self.commit_of("batch", self.given, ends=True), 0)
        if counts:
            self.due.update(self.given)

    def stream_life(self, life: int) -> _Life:
        """A streaming query: what the offset log says, then what is new, batch by batch."""
        while True:
            done = yield from self._numbers("spark/commits")
            begun = yield from self._numbers("spark/offsets")
            batch = max(begun, default=-1)
            if batch in done or batch < 0:
                start = yield from self._offset(batch)
                if start == len(self.given):
                    if self.is_calm:
                        return
                    yield Wait(self.draw("trigger", 10_000, 200_000))
                    continue
                batch += 1
                offsets = f"{life}:{self.scheduler.now_us} {len(self.given)}".encode()
                if not (yield Put(f"spark/offsets/{batch:09d}", offsets)):
                    return  # Another query runs there: Spark ends this one.
            start = yield from self._offset(batch - 1)
            end = yield from self._offset(batch)
            yield Wait(self.draw("job", 0, 200_000))
            origin = yield Read(f"spark/offsets/{batch:09d}")
            if not isinstance(origin, bytes):
                return
            made = self.commit_of("query", self.given[start:end], origin.decode())
            if not (yield from self.record(made, batch)):
                return
            self.due.update(self.given[start:end])
            yield Put(f"spark/commits/{batch:09d}", b"")

    def _numbers(self, folder: str) -> _Part[list[int]]:
        """Spark's own logs are read as they are."""
        yield Read(folder)
        return sorted(_number(name) for name in self.objects if name.startswith(f"{folder}/"))

    def _offset(self, batch: int) -> _Part[int]:
        found = yield Read(f"spark/offsets/{batch:09d}")
        return int(found.split()[1]) if isinstance(found, bytes) else 0

    def append_life(self, first: int, *, ends: bool) -> _Life:
        """One batch write; whoever ends the log may write rows with it, or none."""
        yield Wait(self.draw("job", 0, 2_000_000))
        rows = list(range(first, first + self.draw("rows", 0 if ends else 1, 3)))
        self.given += rows
        if (yield from self.record(self.commit_of("batch", rows, ends=ends), None)):
            self.due.update(rows)

    def _files_life(self) -> _Life:
        """Users' files; a life that stood still for long may find its place removed."""
        try:
            yield from files_life(self, self._files_max)
        except Refused as refused:
            self.events[f"refused: {refused.refusal.value}"] += 1
            self.refusals.append(refused.refusal)

    # -- trimming -------------------------------------------------------------------------------

    def trimming_life(self) -> _Life:
        """Let go of what all readers have taken, as shell/storage/ingest_trimming.py does."""
        while not self.is_calm:
            yield Wait(self.draw("trim", 10_000, 400_000))
            beginning = yield from self.beginning()
            listed = yield from self.listed("commits")
            newest = max((_number(name) for name in listed), default=r.NO_COMMIT)
            account, before = Account(0, None, beginning), beginning.first_commit
            while account.beginning.first_commit < min(self._taken(), newest + 1 - KEPT_COMMITS):
                commit = yield from self.commit_at(account.beginning.first_commit)
                if commit is None:
                    break  # Another one has deleted it.
                account.beginning = account.next_after(commit, {})
            first = account.beginning.first_commit
            if first > before:
                self.events["trimmed"] += 1
                yield Put(f"begin/{first:020d}.json", encode_beginning(account.beginning))
                for name in [n for n in listed if _number(n) < first]:
                    yield Delete(name)
                yield from self.packs.delete_before(first)

    def _taken(self) -> int:
        """What all readers have behind them; a removed commit keeps them where they are."""
        return min(reading.first + len(reading.commits) for reading in self.readings)

    def beginning(self) -> _Part[Beginning]:
        marks = yield from self.listed("begin")
        if not marks:
            return nothing_removed([1])
        found = yield Read(marks[-1])
        assert isinstance(found, bytes)
        value = decode_sealed(found)
        assert not isinstance(value, CorruptRecord), value
        beginning = beginning_from(value)
        if beginning.first_commit > self.begins:
            self.begins = beginning.first_commit
            known = self.readings[0]
            before = known.commits[: self.begins - known.first]
            self.let_go = [row for c in before for f in c.files for row in self._rows_in(f)]
        if beginning.first_commit == self.begins and (
            beginning.shares[1][0].next_id != len(self.let_go)
        ):
            raise Violated("R-KEPT", f"{beginning} is of {self.let_go}")
        return beginning

    # -- readers --------------------------------------------------------------------------------

    def reader_life(self, reading: _Reading) -> _Life:
        yield Wait(self.draw("reader", 0, 1_000_000))
        if self.is_calm:
            reading.first = (yield from self.beginning()).first_commit
            reading.following = Following(reading.first)
        while not reading.following.ended:
            try:
                taken = yield from self.run_machine(reading.following)
            except Refused as refused:
                self.events[f"reader refused: {refused.refusal.value}"] += 1
                reading.refusal = refused.refusal
                return
            if taken is None:
                yield Wait(self.draw("look", 100, 20_000))
            else:
                assert isinstance(taken, r.TakeCommit)
                reading.commits.append(taken.commit)
                self.check(reading)

    def check(self, reading: _Reading) -> None:
        """R-ONCE and R-SAME, after every commit that is taken."""
        self._check_order(reading.commits[-1])
        rows = self.rows_of(reading)
        doubled = sorted(row for row, count in Counter(rows).items() if count > 1)
        if doubled or not set(rows) <= set(self.given):
            raise Violated("R-ONCE", f"rows {doubled} came twice, or were never given")
        for other in self.readings:
            mine_from, theirs_from = reading.first, other.first
            begin = max(mine_from, theirs_from)
            for mine, theirs in zip(
                reading.commits[begin - mine_from :],
                other.commits[begin - theirs_from :],
                strict=False,
            ):
                if mine != theirs:
                    raise Violated("R-SAME", f"{mine} and {theirs}")

    def _check_order(self, commit: Commit) -> None:
        """R-ORDER, of users' files."""
        said = [f.user.version.split(":") for f in commit.files if f.user is not None]
        keys = [(int(v[0]), file.name) for v, file in zip(said, commit.files, strict=False)]
        if keys != sorted(keys) or len(keys) > self._files_max:
            raise Violated("R-ORDER", f"{keys}, at most {self._files_max}")

    def rows_of(self, reading: _Reading) -> list[int]:
        return [row for c in reading.commits for f in c.files for row in self._rows_in(f)]

    def _rows_in(self, file: IngestFile) -> tuple[int, ...]:
        return self.files[file.name] if file.user is None else self.folder.rows[file.name]

    # -- the run --------------------------------------------------------------------------------

    def run(self) -> None:
        self._begin_recording()
        for _ in range(_READERS):
            self.readings.append(_Reading())
            self.start("reader", self.reader_life(self.readings[-1]))
        if self.draw("trims", 0, 3) == 0:
            for _ in range(2):
                self.trimmers.append(self.start("trimmer", self.trimming_life()))
        for _ in range(2 * self.packs.is_packed):
            self.start("packer", self.packs.life())
        for _ in range(self.draw("strikes", 0, 6)):
            self.scheduler.after(self.draw("when", 0, _FAULTS_END_US), self._strike)
        self.scheduler.after(_FAULTS_END_US, self._calm)
        self.scheduler.run(lambda: False, lambda: _LIMIT_US)
        last = _Reading()
        self.start("last reader", self.reader_life(last))
        self.scheduler.run(lambda: False, lambda: 2 * _LIMIT_US)
        self._judge([*self.readings, last])

    def _begin_recording(self) -> None:
        match self.kind:
            case "bounded":
                self.given = list(range(self.draw("rows", 0, 8)))
                self._live_again()
            case "stream":
                for at_us in range(0, _FAULTS_END_US, self.draw("pace", 50_000, 600_000)):
                    self.scheduler.after(at_us, lambda: self.given.append(len(self.given)))
                self._live_again()
            case "files":
                for at_us in range(0, _FAULTS_END_US, self.draw("pace", 50_000, 600_000)):
                    self.scheduler.after(at_us, self.folder.appear)
                self._live_again()
            case _:
                for number in range(self.draw("writers", 2, 6)):
                    ends = self.percent("ends", 25)
                    life = self.append_life(10 * number, ends=ends)
                    self.recorders.append(self.start("writer", life))

    def _live_again(self) -> None:
        """Another life of the driver, whatever the one before does."""
        if self.is_removing:
            self.scheduler.after(_UNDER_WAY_US, self._live_again)
            return
        number = len(self.recorders)
        self.recorders.append(self.start(f"life {number}", self._life(number)))

    def _life(self, number: int) -> _Life:
        """What a life of the driver does."""
        if self.kind == "files":
            return self._files_life()
        return self.stream_life(number) if self.kind == "stream" else self.bounded_life()

    def _strike(self) -> None:
        """The newest life is killed or paused, and another begins; or something is removed."""
        newest = self.recorders[-1]
        if self.trimmers and self.draw("whose", 0, 1):
            self.events["trimmer killed"] += 1
            self.trimmers.pop(0).is_dead = True
            self.trimmers.append(self.start("trimmer", self.trimming_life()))
            return
        chance = self.draw("strike", 0, 99)
        if chance < 10 and self.kind == "stream" and not self.has_removed:
            self.has_removed = self.is_removing = True
            for process in self.recorders:
                process.is_dead = True
            self.scheduler.after(_UNDER_WAY_US, self._remove)
        elif chance < 55:
            self.events["killed"] += 1
            newest.is_dead = True
        else:
            self.events["paused"] += 1
            until_us = self.scheduler.now_us + self.draw("pause", 10_000, 1_500_000)
            newest.paused_until_us = until_us
        if self.kind != "appends":
            self.scheduler.after(self.draw("again", 0, 300_000), self._live_again)

    def _remove(self) -> None:
        """Spark's checkpoints, or a commit that is not the last one."""
        self.events["removed"] += 1
        self.is_removing = False
        commits = sorted(name for name in self.objects if name.startswith("commits/"))
        if len(commits) > 1 and self.draw("what", 0, 1):
            del self.objects[commits[self.draw("which", 0, len(commits) - 2)]]
        else:
            for name in [n for n in self.objects if n.startswith("spark/")]:
                del self.objects[name]

    def _calm(self) -> None:
        """Nothing goes wrong any more; whoever was paused goes on, and a last life begins."""
        self.is_calm = True
        if self.kind != "appends":
            self.scheduler.after(1_600_000, self._live_again)
            self.scheduler.after(3_000_000, self._live_again)

    def _judge(self, readings: list[_Reading]) -> None:
        if self.kind == "files":
            self.due |= self.folder.staying()
        if not self._has_reason():
            raise Violated("R-NAME", f"refused: {self.refusals}")
        for reading in readings:
            self._judge_reading(reading)

    def _has_reason(self) -> bool:
        reasons = {Refusal.ENDED} if self.kind == "appends" else set()
        if self.begins:  # Of a life that stood still, before the batch that it would write again.
            reasons |= {Refusal.MISSING, Refusal.FOREIGN}
        if self.has_removed:
            reasons |= {Refusal.MISSING, Refusal.FOREIGN}
        return set(self.refusals) <= reasons

    def _judge_reading(self, reading: _Reading) -> None:
        let_go = self.let_go if reading.first else ()
        missing = sorted(self.due - set(self.rows_of(reading)) - set(let_go))
        is_excused = self.has_removed and (reading.refusal is not None or bool(self.refusals))
        if missing and not is_excused:
            raise Violated("R-ALL", f"rows {missing} never came, and nobody was told")
        if reading.refusal is not None and not self.has_removed:
            raise Violated("R-NAME", f"a reader was refused: {reading.refusal}")
        commits = [c for name, (_, c) in self.objects.items() if name.startswith("commits/")]
        ends = any(c is not None and c.ends for c in map(_decoded, commits))
        is_over = self.kind == "bounded" or self.has_end or ends
        if reading.following.ended != is_over and not is_excused:
            raise Violated("R-END", f"a reader says {reading.following.ended}, and it is {is_over}")


def _commit_name(number: int) -> str:
    return f"commits/{number:020d}.json"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(".json"))


def _decoded(found: object) -> Commit | None:
    if not isinstance(found, bytes):
        return None
    commit = decode_commit(found)
    assert not isinstance(commit, CorruptRecord), commit
    return commit


def simulate_recording(seed: int, trace: Trace | None = None) -> RecordingOutcome:
    """Run one seed; `trace` is called with the time and text of every step."""
    simulation = _Simulation(seed, trace)
    invariant, violation = None, ""
    try:
        simulation.run()
    except Violated as violated:
        invariant, violation = violated.invariant, str(violated)
    except AssertionError as error:
        invariant, violation = type(error).__name__, str(error)
    rows = sum(len(simulation.rows_of(reading)) for reading in simulation.readings)
    digest, events = simulation.scheduler.digest(), dict(simulation.events)
    return RecordingOutcome(seed, simulation.kind, invariant, violation, digest, rows, events)
