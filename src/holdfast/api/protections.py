"""Protections: what a failure may cost. [HA §3.1, §4]

Each approach is a class here, chosen for the dataflow or for every unit of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.core.haunit.plan import (
    CheckpointPlan,
    Cuts,
    DelayPlan,
    FootprintPlan,
    Standby,
    UnitProtection,
)
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.core.replication.input_delay import DuringFailure
from holdfast.errors import OptionError, UnsupportedError
from holdfast.shell.storage.places import is_remote, local_path, location_id
from holdfast.shell.stores.base import StoreSpec
from holdfast.shell.stores.file_system import FileSystemStoreSpec
from holdfast.shell.stores.folder import FolderStoreSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.api.graph import Graph


CHECKPOINT_FOLDER = "checkpoint"
"""Below the checkpoint location. [SGuard §5]"""


@dataclass(frozen=True, slots=True)
class Protection:
    """The base of all protections."""

    guarantee: str = Guarantee.PRECISE.value

    def check(self, flow: Graph) -> None:
        """Refuse what this protection cannot give. Raises `UnsupportedError`."""

    def describe(self) -> str:
        """What of it must be the same when a query goes on at a location."""
        return type(self).__name__

    def of_unit(self) -> UnitProtection:
        """What nodes are told."""
        return UnitProtection()


@dataclass(frozen=True, slots=True)
class UpstreamBackup(Protection):
    """Nothing is copied: producers keep tuples, a replacement replays them. [HA §4.3]

    Survives any number of simultaneous failures, the driver's included. An incremental join never
    lets go of its input; what its producers keep for it then goes to the spill log for ever.

    Attributes:
        guarantee: `precise`; or `rollback`: nothing is lost, but after a failure results may come
            twice, or, of windows that were being put together, in parts. The replacement then
            puts out from the first tuple on that it replays, and arbitrary units need no log.
    """

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `UnsupportedError`."""
        _require_guarantee(self, Guarantee.PRECISE, Guarantee.ROLLBACK)

    def of_unit(self) -> UnitProtection:
        """Replayed, precisely or not."""
        return UnitProtection(guarantee=Guarantee(self.guarantee))


@dataclass(frozen=True, slots=True)
class Amnesia(Protection):
    """Nothing is kept: a replacement starts empty, on the newest input. [HA §4]

    Costs nothing as long as nothing fails. What a failed node had received and not put out is lost,
    with its state; `query.lastProgress["gaps"]` says which input tuples were missed. Results come
    twice only if a unit that it reads from, or one behind it, or the driver fails at the same time;
    that is not counted.
    """

    guarantee: str = Guarantee.GAP.value

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `UnsupportedError`."""
        _require_guarantee(self, Guarantee.GAP)

    def of_unit(self) -> UnitProtection:
        """Restarted empty."""
        return UnitProtection(guarantee=Guarantee.GAP)


@dataclass(frozen=True, slots=True)
class ActiveStandby(Protection):
    """A second replica of every instance processes the same input at the same time. [HA §4.2]

    It keeps its output until it is known that nobody needs it, and takes over within milliseconds
    once the first replica is found to have failed; that one comes back as the second. Costs a task
    slot and the network's load for every instance once more. Beneath it lies upstream backup: if
    both replicas fail at the same time, or the driver does, the instance is rebuilt by replay.

    Attributes:
        strict: Both replicas never share a machine: with a single one, `start` refuses, and while
            there is only one left, the second replica waits. Otherwise they share it for so long,
            and `status` says so.
        guarantee: `precise`; or `rollback`: arbitrary units need no log, each replica decides for
            itself, and what was put out shortly before a takeover may come again otherwise; all
            others are given precise recovery, for ids tell what comes twice; the query's `status`
            says so. [HA Table 2, §6]
    """

    strict: bool = False

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `UnsupportedError`."""
        _require_guarantee(self, Guarantee.PRECISE, Guarantee.ROLLBACK)

    def describe(self) -> str:
        """What is on disk is upstream backup's."""
        return UpstreamBackup.__name__

    def of_unit(self) -> UnitProtection:
        """Two replicas."""
        return UnitProtection(
            standby=Standby.ACTIVE,
            is_strict=self.strict,
            guarantee=Guarantee(self.guarantee),
        )


@dataclass(frozen=True, slots=True)
class PassiveStandby(Protection):
    """A second replica of every instance keeps a copy of its state. [HA §4.1]

    The first one sends what has changed; when it is found to have failed, the second one goes on
    from the last cut, and the failed one comes back as the second. Costs a task slot and the
    memory of the state for every instance once more, and the differences on the network. Beneath
    it lies upstream backup: if both replicas fail at the same time, or the driver does, or as long
    as output waits in a spill log, the instance is rebuilt by replay.

    Attributes:
        interval: Period of the differences, as `tumbling` takes it; what a takeover may have to
            replay.
        strict: As for `ActiveStandby`.
        guarantee: `precise`; or `rollback`: arbitrary units need no log, and what they do after a
            failure may differ from what they had done since the last cut; all others are given
            precise recovery, for ids tell what comes twice; the query's `status` says so. [HA
            Table 2, §6]
    """

    interval: str = "50 milliseconds"
    strict: bool = False

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `UnsupportedError`, or `OptionError`."""
        _require_guarantee(self, Guarantee.PRECISE, Guarantee.ROLLBACK)
        self.of_unit()

    def describe(self) -> str:
        """What is on disk is upstream backup's."""
        return UpstreamBackup.__name__

    def of_unit(self) -> UnitProtection:
        """Two replicas, of which one waits."""
        interval_ms = _interval_ms(self, self.interval)
        return UnitProtection(
            standby=Standby.PASSIVE,
            delta_interval_ms=interval_ms,
            is_strict=self.strict,
            guarantee=Guarantee(self.guarantee),
        )


@dataclass(frozen=True, slots=True)
class StoredCheckpoints(Protection):
    """What all protections have in common whose checkpoints go to a store.

    Attributes:
        interval: Period of checkpoints, as `tumbling` takes it.
        store: Where they are kept; see `Checkpointed`.
    """

    interval: str = "10 seconds"
    store: str | os.PathLike[str] | StoreSpec | EmbeddedStore | None = None

    def describe(self) -> str:
        """Which they are, and where, for the description of a location; no secrets."""
        return f"{type(self).__name__}{self.where()}"

    def where(self) -> str:
        """Where checkpoints are, in words; empty: below the checkpoint location."""
        if isinstance(self.store, str | os.PathLike):
            return f" in {os.fspath(self.store)}"
        return "" if self.store is None else f" in {type(self.store).__name__}"

    def store_spec(self, location: str) -> StoreSpec:
        """The store that checkpoints go to, unless it is an embedded one."""
        if isinstance(self.store, EmbeddedStore):
            raise OptionError("an embedded store is reached while its query runs, by the query")
        if self.store is None:
            return _spec_of(os.path.join(location, CHECKPOINT_FOLDER))
        if not isinstance(self.store, str | os.PathLike):
            return self.store
        return _spec_of(os.path.join(os.fspath(self.store), location_id(location)))

    def _require_within(self, name: str, low: int, high: int) -> None:
        """Raise `OptionError` unless a setting lies between these, both included."""
        value = getattr(self, name)
        if not low <= value <= high:
            kind = type(self).__name__
            raise OptionError(f"{kind}({name}={value}); it lies between {low} and {high}")


@dataclass(frozen=True, slots=True)
class Checkpointed(StoredCheckpoints):
    """Operators' state is checkpointed while they go on; a replacement loads it. [SGuard §3]

    Every unit checkpoints on its own, incrementally, and is recovered precisely: it loads its
    newest checkpoint and replays what came after. Should that be damaged, the one before is used.
    Units without state need no checkpoint. Survives any number of simultaneous failures, the
    driver's included, as long as the store does.

    Attributes:
        interval: Period of checkpoints, as `tumbling` takes it; what a failure may have to replay.
        store: Where checkpoints are kept: a path or URL as fsspec takes it (`s3://…`,
            `webhdfs://…`), a `StoreSpec`, or `EmbeddedStore(...)`: data nodes of Holdfast's own; by
            default a folder below the checkpoint location. In a given path or URL every checkpoint
            location has a folder of its own, so that queries may share it.
        kept: How many checkpoints of a unit are kept, 2 to 10.
        workers: Files per checkpoint, written and read side by side, 1 to 32.
        writers: How many units may write a checkpoint at once, 1 to 1,000, so that a slow store
            serves each soon instead of all late [SGuard §5]; None: as many as want to.
    """

    kept: int = 2
    workers: int = 2
    writers: int | None = None

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        _require_guarantee(self, Guarantee.PRECISE)
        self._require_within("kept", 2, 10)
        self._require_within("workers", 1, 32)
        if self.writers is not None and not 1 <= self.writers <= 1_000:
            raise OptionError(f"Checkpointed(writers={self.writers}); it lies in 1 to 1,000")
        self.plan()

    def written(self) -> str:
        """What was set beside the interval, as one would write it; of a store object its class."""
        default = Checkpointed()
        settings = [
            f"{name}={getattr(self, name)}"
            for name in ("kept", "workers", "writers")
            if getattr(self, name) != getattr(default, name)
        ]
        if isinstance(self.store, str | os.PathLike):
            settings.insert(0, f"store={json.dumps(os.fspath(self.store))}")
        elif self.store is not None:
            settings.insert(0, f"store={type(self.store).__name__}(...)")
        return ", ".join(settings)

    def of_unit(self) -> UnitProtection:
        """The state of units that have one is checkpointed."""
        return UnitProtection(checkpoints=self.plan())

    def plan(self) -> CheckpointPlan:
        """What nodes are told. Raises `DataflowError` when the interval is no duration."""
        interval_ms = _interval_ms(self, self.interval)
        asks_first = self.writers is not None
        return CheckpointPlan(interval_ms, self.kept, self.workers, asks_first)


@dataclass(frozen=True, slots=True)
class RegionCheckpoints(StoredCheckpoints):
    """Checkpoints of units that recover together; each kind has `workers`. [CheckMate §III]"""

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        _require_guarantee(self, Guarantee.PRECISE)
        self._require_within("workers", 1, 32)
        self.of_unit()


@dataclass(frozen=True, slots=True)
class Uncoordinated(RegionCheckpoints):
    """Units that take their input as it comes are checkpointed, and log nothing. [CheckMate §III-B]

    Every instance takes checkpoints when it wants to. After a failure all instances that depend on
    each other halt, and the newest checkpoints that go together are looked for; who has processed
    what would come otherwise goes back, the others go on. Results of such units wait until no
    recovery can go back behind them, for an interval or more, so that each comes exactly once.

    Units whose output depends on their input alone wait for nothing: they are protected as by
    `Checkpointed()`. Survives any number of simultaneous failures, the driver's included, as long
    as the store does. If a checkpoint of units that recover together is damaged and needed, the
    query ends and says so.

    Attributes:
        interval: Period of checkpoints, as `tumbling` takes it: about how long results wait.
        store: As for `Checkpointed`.
        jitter: By up to so much longer each period is, so that not all write at once.
        workers: Files per checkpoint, written and read side by side, 1 to 32.
    """

    interval: str = "5 seconds"
    jitter: str = "1 second"
    workers: int = 2

    def of_unit(self) -> UnitProtection:
        """Checkpointed, and recovered with others where it does not repeat."""
        plan = _jittered(self, self.interval, self.jitter, self.workers)
        return UnitProtection(checkpoints=plan, cuts=Cuts.UNCOORDINATED)


@dataclass(frozen=True, slots=True)
class Coordinated(RegionCheckpoints):
    """Units that take their input as it comes are checkpointed in rounds. [CheckMate §III-A]

    As `Uncoordinated`, but instances that depend on each other take checkpoints for the same round,
    which go together: none is useless, and results wait for no more than their round.

    Attributes:
        interval: From the beginning of one round to that of the next, as `tumbling` takes it.
        store: As for `Checkpointed`, like `workers`.
        aligned: Whether an instance takes nothing behind the round's marker on one input before it
            has come on all. Else it cuts as soon as it hears of the round.
    """

    interval: str = "5 seconds"
    aligned: bool = True
    workers: int = 2

    def of_unit(self) -> UnitProtection:
        """Checkpointed in rounds, and recovered with others where it does not repeat."""
        plan = CheckpointPlan(_interval_ms(self, self.interval), workers=self.workers)
        return UnitProtection(
            checkpoints=plan, cuts=Cuts.ALIGNED if self.aligned else Cuts.UNALIGNED
        )


@dataclass(frozen=True, slots=True)
class CommunicationInduced(RegionCheckpoints):
    """As `Uncoordinated`, but no checkpoint is useless: others force some. [CheckMate §III-C]

    Only where streams go in a circle could one be; with `scope="component"` nothing is said, and
    nothing forced, elsewhere.

    Attributes:
        interval: As for `Uncoordinated`, like `store`, `jitter` and `workers`.
        algorithm: `hmnr`, `lazy-fi` with clocks that rise less often, or `bcs`, which forces more.
        scope: `component`: of those on a circle together; `all`: of all that recover together.
    """

    interval: str = "5 seconds"
    jitter: str = "1 second"
    algorithm: str = "hmnr"
    scope: str = "component"
    workers: int = 2

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        for name, known in (("algorithm", _ALGORITHMS), ("scope", _SCOPES)):
            if (given := getattr(self, name)) not in known:
                raise OptionError(
                    f"CommunicationInduced({name}={given!r}); there are {', '.join(known)}"
                )
        RegionCheckpoints.check(self, flow)

    def of_unit(self) -> UnitProtection:
        """Checkpointed, and recovered with others where it does not repeat."""
        plan = _jittered(self, self.interval, self.jitter, self.workers)
        is_whole = self.scope == "all"
        return UnitProtection(checkpoints=plan, cuts=Cuts(self.algorithm), is_scope_whole=is_whole)


_ALGORITHMS: Final = tuple(cuts.value for cuts in Cuts if cuts.is_induced)
_SCOPES: Final = ("component", "all")


def _jittered(protection: Protection, interval: str, jitter: str, workers: int) -> CheckpointPlan:
    """The plan of nodes that cut by timers of their own."""
    from holdfast.api.windows import duration_us

    jitter_ms = duration_us(jitter) // 1000
    return CheckpointPlan(_interval_ms(protection, interval), workers=workers, jitter_ms=jitter_ms)


def _spec_of(place: str) -> StoreSpec:
    if is_remote(place):
        return FileSystemStoreSpec(place)
    return FolderStoreSpec(os.path.abspath(local_path(place)))


@dataclass(frozen=True, slots=True)
class EventualCheckpoints(Protection):
    """Each window is checkpointed on its own, all the time; nothing stands still for it. [CEC]

    A unit with windows writes the state of each into a log when it opens, says there when it has
    closed, and between tuples writes the windows whose newest state is the oldest. A replacement
    reads the log's end, the *extent*, and replays what the windows lack. How long that takes is
    what the user names, instead of an interval. Units without state are replayed.

    Windows are `tumbling` and `sliding` ones, and `counting` ones of a key. Other state is refused
    when the query starts, with the operator's name. Survives any number of simultaneous failures,
    the driver's included.

    Attributes:
        share: Most of a node's time for windows that are written between tuples, above 0, up to 1.
            What is written when windows open and close does not count.
        extent: Most that a replacement should have to read, as `"64 MiB"` or a number of bytes.
        recovery: Most time that reading and replaying should take, as `tumbling` takes it; None:
            no matter. `query.lastProgress` says how long it would take now, and why the objective
            cannot be met, if it cannot.
    """

    share: float = 0.05
    extent: str | int = "64 MiB"
    recovery: str | None = None

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        _require_guarantee(self, Guarantee.PRECISE)
        self.of_unit()

    def of_unit(self) -> UnitProtection:
        """Windows leave footprints."""
        if isinstance(self.share, bool) or not 0 < self.share <= 1:
            raise OptionError(
                f"EventualCheckpoints(share={self.share}); it lies above 0 and up to 1"
            )
        extent_bytes = _bytes_of(self, "extent", self.extent)
        recovery_us = None
        if self.recovery is not None:
            recovery_us = 1000 * _interval_ms(self, self.recovery, "recovery")
        return UnitProtection(footprints=FootprintPlan(self.share, extent_bytes, recovery_us))


@dataclass(frozen=True, slots=True)
class Replicated(Protection):
    """No result waits for missing input for longer than a bound; later it is corrected. [DPC]

    A unit that merges several streams goes on without those that are missing, once something has
    waited for `alpha` times `delay`. What it puts out from there on is *tentative*: it goes to the
    sink's feed (`option("types", "all")`), not to the sink. When the input is there after all, the
    unit goes back to where it was and puts out the right results. Sinks, `verify` and units that
    are not `Replicated` see these alone. Beneath it lies upstream backup.

    Attributes:
        replicas: How many of each instance there are: 1.
        delay: The bound X, as `tumbling` takes it, from 1 millisecond on.
        alpha: Which part of it input waits, above 0 and up to 1; the rest is for processing.
        during_failure: `process`: new input is processed as it comes; `delay`: it waits for the
            bound, too, so that less has to be corrected.
        during_stabilization: `suspend`: new input waits while the unit corrects.
        reconcile: `checkpoint/redo`: back to a copy of the state, and from there again.
        buffer: `block`: when what must be kept for the correction has reached the bound of the
            input queue, no more is read of the streams that are there.
    """

    replicas: int = 1
    delay: str = "3 seconds"
    alpha: float = 0.9
    during_failure: str = DuringFailure.PROCESS.value
    during_stabilization: str | None = None
    reconcile: str = "checkpoint/redo"
    buffer: str = "block"

    def check(self, flow: Graph) -> None:
        """Refuse what it cannot give. Raises `OptionError` and `UnsupportedError`."""
        _require_guarantee(self, Guarantee.PRECISE)
        if not 1 <= self.replicas <= 3:
            raise OptionError(f"Replicated(replicas={self.replicas}); there are 1 to 3")
        if not 0 < self.alpha <= 1:
            raise OptionError(f"Replicated(alpha={self.alpha}); it lies above 0 and up to 1")
        modes = [mode.value for mode in DuringFailure]
        if self.during_failure not in modes:
            raise OptionError(
                f"Replicated(during_failure={self.during_failure!r}); one of {', '.join(modes)}"
            )
        for name, value, possible, cure in (
            ("replicas", self.replicas, 1, "more than one replica is not there yet"),
            (
                "during_stabilization",
                self.during_stabilization or "suspend",
                "suspend",
                "a single replica cannot process new input while it corrects",
            ),
            ("reconcile", self.reconcile, "checkpoint/redo", "there is no other way yet"),
            ("buffer", self.buffer, "block", "there is no other way yet"),
        ):
            if value != possible:
                raise UnsupportedError(f"Replicated({name}={value!r}); {possible!r} works: {cure}")
        self.of_unit()

    def describe(self) -> str:
        """What is on disk is upstream backup's, and feeds."""
        return type(self).__name__

    def of_unit(self) -> UnitProtection:
        """Replayed; and it does not wait for longer than that."""
        from holdfast.api.windows import duration_us

        delay_ms = duration_us(self.delay) // 1000
        bound_ms = int(duration_us(self.delay) * self.alpha) // 1000
        if bound_ms < 1:
            raise OptionError(
                f"Replicated(delay={self.delay!r}, alpha={self.alpha}); alpha times delay is at "
                "least 1 millisecond"
            )
        during = DuringFailure(self.during_failure)
        return UnitProtection(delays=DelayPlan(bound_ms, during, delay_ms - bound_ms))


@dataclass(frozen=True, slots=True)
class Unprotected(Protection):
    """Nothing is kept; a failed node fails the query. Only to measure what protection costs."""

    guarantee: str = Guarantee.GAP.value

    def of_unit(self) -> UnitProtection:
        """Nothing is kept."""
        return UnitProtection(is_protected=False)


def _require_guarantee(protection: Protection, *possible: Guarantee) -> None:
    """Raise `UnsupportedError`, with what would work, unless the guarantee is one of these."""
    if protection.guarantee in [guarantee.value for guarantee in possible]:
        return
    name = type(protection).__name__
    names = " or ".join(repr(guarantee.value) for guarantee in possible)
    instead = {
        Guarantee.PRECISE.value: "UpstreamBackup(), ActiveStandby(), PassiveStandby(), "
        "Checkpointed() and EventualCheckpoints() recover precisely",
        Guarantee.ROLLBACK.value: "UpstreamBackup, PassiveStandby and ActiveStandby with "
        "guarantee='rollback' recover so",
        Guarantee.GAP.value: "Amnesia() recovers so",
    }.get(protection.guarantee, "there are 'precise', 'rollback' and 'gap'")
    raise UnsupportedError(
        f"{name}(guarantee={protection.guarantee!r}); it gives {names}. {instead}"
    )


_SIZE_MAX: Final = 1 << 40
_UNIT_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def _bytes_of(protection: Protection, name: str, size: str | int) -> int:
    """A size. Raises `OptionError` when it is none."""
    words = str(size).split() if not isinstance(size, bool) else []
    number, unit = words if len(words) == 2 else (*words, "B") if len(words) == 1 else ("", "")
    if unit not in _UNIT_BYTES or not (number.isascii() and number.isdecimal()):
        raise OptionError(
            f"{type(protection).__name__}({name}={size!r}); write a number of bytes, or a number "
            f"and one of {', '.join(_UNIT_BYTES)}, e.g. '64 MiB'"
        )
    found = int(number) * _UNIT_BYTES[unit]
    if not 1 <= found <= _SIZE_MAX:
        raise OptionError(f"{type(protection).__name__}({name}={size!r}); it lies in 1 B to 1 TiB")
    return found


def _interval_ms(protection: Protection, interval: str, setting: str = "interval") -> int:
    """A period. Raises `DataflowError` when it is no duration, `OptionError` when it is none."""
    from holdfast.api.windows import duration_us

    interval_ms = duration_us(interval) // 1000
    if interval_ms < 1:
        name = type(protection).__name__
        raise OptionError(f"{name}({setting}={interval!r}); at least 1 millisecond")
    return interval_ms


class Protections:
    """The protection of every unit of a dataflow."""

    def __init__(self, given: Protection | Mapping[str, Protection] | None) -> None:
        """One for all units; or by unit, the others having upstream backup."""
        self._default: Protection = UpstreamBackup()
        self._of: dict[str, Protection] = {}
        if isinstance(given, Protection):
            self._default = given
        elif given is not None:
            self._of = dict(given)

    def of(self, unit: str) -> Protection:
        """A unit's."""
        return self._of.get(unit, self._default)

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        units = dict.fromkeys(step.unit for step in flow.steps)
        for name, protection in self._of.items():
            if not isinstance(protection, Protection):
                raise OptionError(f"protection[{name!r}] is {protection!r}, no protection")
            if name not in units:
                raise OptionError(f"protection names {name!r}; units are {', '.join(units)}")
        for unit in units:
            self.of(unit).check(flow)
        own = [p for p in map(self.of, units) if isinstance(p, StoredCheckpoints)]
        writers = {p.writers for p in own if isinstance(p, Checkpointed)}
        if len({p.where() for p in own}) > 1 or len(writers) > 1:
            raise OptionError(
                "units are checkpointed to different stores, or with different `writers`: "
                "one store serves all units of a query"
            )

    @property
    def stored(self) -> StoredCheckpoints | None:
        """Where the units that are checkpointed are checkpointed to; None: there are none."""
        all_of_them = (self._default, *self._of.values())
        return next((p for p in all_of_them if isinstance(p, StoredCheckpoints)), None)

    @property
    def checkpointed(self) -> Checkpointed | None:
        """The protection of the units that are checkpointed on their own; None: there are none."""
        all_of_them = (self._default, *self._of.values())
        return next((p for p in all_of_them if isinstance(p, Checkpointed)), None)

    def describe(self) -> str:
        """What of it must be the same when a query goes on at a location."""
        others = {
            unit: text
            for unit, protection in self._of.items()
            if (text := protection.describe()) != self._default.describe()
        }
        return ", ".join(
            [self._default.describe(), *(f"{unit}: {text}" for unit, text in others.items())]
        )


_BY_NAME: dict[str, type[Protection]] = {
    "amnesia": Amnesia,
    "upstream-backup": UpstreamBackup,
    "active-standby": ActiveStandby,
    "passive-standby": PassiveStandby,
    "checkpointed": Checkpointed,
    "uncoordinated": Uncoordinated,
    "coordinated": Coordinated,
    "communication-induced": CommunicationInduced,
    "eventual-checkpoints": EventualCheckpoints,
    "replicated": Replicated,
    "none": Unprotected,
}


def parse_protection(name: str, guarantee: str | None, interval: str | None) -> Protection:
    """A protection by its command-line name; None stands for its own default.

    Raises:
        UnsupportedError: There is none of that name.
        OptionError: It has no interval.
    """
    chosen = _BY_NAME.get(name)
    if chosen is None:
        raise UnsupportedError(f"protection {name!r}; there are {', '.join(_BY_NAME)}")
    given = {"guarantee": guarantee, "interval": interval}
    settings = {key: value for key, value in given.items() if value is not None}
    if "interval" in settings and "interval" not in [field.name for field in fields(chosen)]:
        raise OptionError(f"protection {name!r} has no interval")
    return chosen(**settings)
