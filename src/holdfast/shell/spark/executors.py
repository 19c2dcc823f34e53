"""Spark's executors: which there are, a task sent to one of them, and each warmed up once.

The first Python task of an executor waits for a daemon that imports everything; a recovery must
not. So every executor gets an empty task as soon as it is seen. Those on machines that have fallen
silent get one again: when it comes back, they are in reach. Those that Spark will end soon are
named, so that their nodes go elsewhere before that.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.rdd import RDD

from holdfast.core.coordinator.host_choice import Executor, HostChoice
from holdfast.shell.spark.reasons import reason_of
from holdfast.shell.transport.addresses import driver_addresses, machine_of, own_address

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOG = logging.getLogger(__name__)
WARM: Final = "is warm"
"""What is logged of an executor once it is."""
_LOOK_INTERVAL_S: Final = 0.5
_SETTLED_S: Final = 2.0
_ANY_PORT: Final = 9
_DRIVER: Final = "driver"
_STOP_TIMEOUT_S: Final = 5.0


def slots_of(sc: SparkContext) -> int:
    """How many tasks Spark can run at a time, with the executors that it has now."""
    jsc: Any = sc._jsc
    profile = jsc.sc().resourceProfileManager().defaultResourceProfile()
    return int(jsc.sc().maxNumConcurrentTasks(profile))


def wait_for_slots(sc: SparkContext, needed: int, timeout_s: float) -> int:
    """Wait for so many slots: executors of a new application register one by one."""
    deadline_s = time.monotonic() + timeout_s
    while (slots := slots_of(sc)) < needed and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return slots


class Executors:
    """The executors of an application, as one query sees them. None in local mode."""

    def __init__(self, sc: SparkContext, name: str) -> None:
        """Look once, for a query of this name; `start` goes on looking."""
        self._sc = sc
        self._group = f"holdfast/{name}/warm"
        self._is_local = sc.master.startswith("local")
        self._choice = HostChoice()
        self._lock = threading.Lock()
        self._machine_at: dict[str, str] = {}  # by address
        self._address_of: dict[str, str] = {}  # by Spark's name of the host
        self._is_warm: dict[str, None] = {}
        self._probed: dict[str, None] = {}  # executors with an empty task on its way
        self._wished_s: dict[str, float] = {}  # when a task was sent on its way
        self._is_stopping = threading.Event()
        self._on_change: list[Callable[[tuple[str, ...]], None]] = []
        self._on_leaving: list[Callable[[frozenset[str]], None]] = []
        self._room: tuple[str, ...] = ()
        self._thread = threading.Thread(target=self._watch, name="holdfast-executors", daemon=True)
        if not self._is_local:
            self._look()

    @property
    def machines(self) -> tuple[str, ...]:
        """All machines with executors; empty in local mode."""
        with self._lock:
            return self._choice.machines()

    @property
    def room(self) -> tuple[str, ...]:
        """The machines that have a free slot, and are not silent."""
        with self._lock:
            return self._choice.machines_with_room()

    def wait_for_machines(self, count: int, timeout_s: float) -> None:
        """Wait for so many: executors of a new application register one by one.

        None may be known yet, even if there are slots. In local mode there is nothing to wait for.
        """
        deadline_s = time.monotonic() + (0.0 if self._is_local else timeout_s)
        while len(self.machines) < count and time.monotonic() < deadline_s:
            time.sleep(0.1)
            self._look()

    def on_change(self, say: Callable[[tuple[str, ...]], None]) -> None:
        """Call this with the machines that have a free slot, when those are others than before."""
        self._on_change.append(say)
        say(self._room)

    def on_leaving(self, say: Callable[[frozenset[str]], None]) -> None:
        """Call this with the executors that Spark will end soon, again and again until it has."""
        self._on_leaving.append(say)

    def start(self) -> None:
        """Watch and warm up, in a thread of its own; a second time does nothing."""
        if not self._is_local and self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)

    # -- tasks ------------------------------------------------------------------------------

    def choose(
        self, name: str, *, apart_from: Iterable[str] = (), before: str = ""
    ) -> Executor | None:
        """Where a task should run; see `HostChoice.choose`."""
        with self._lock:
            chosen = self._choice.choose(name, apart_from=apart_from, before=before)
            self._wished_s[name] = time.monotonic()
        return chosen

    def one_task(self, chosen: Executor | None) -> RDD[int]:
        """A dataset of one partition, for one task, that would rather run there."""
        if chosen is None:
            return self._sc.parallelize([0], 1)
        sc: Any = self._sc
        jvm = sc._jvm
        location = jvm.java.util.ArrayList()
        location.add(f"executor_{chosen.host}_{chosen.name}")
        element = sc._unbatched_serializer.dumps([0])
        rows = jvm.java.util.ArrayList()
        rows.add(jvm.scala.Tuple2(bytearray(element), jvm.PythonUtils.toSeq(location)))
        tags = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$")
        tag = tags.apply(jvm.java.lang.Class.forName("[B"))
        made = sc._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(rows), tag)
        return RDD(made.toJavaRDD(), self._sc, sc.serializer)

    def learned(self, address: str, machine: str) -> None:
        """What the machine of a process at this address calls itself."""
        self._machine_at[address] = machine

    def silent(self, machine: str) -> None:
        """A task there was silent for too long: its host may be cut off."""
        if machine and not self._is_local:
            with self._lock:
                self._choice.silent[machine] = None

    def heard(self, machine: str) -> None:
        """A task there has said something."""
        if machine in self._choice.silent:  # Without the lock: this is asked for every word.
            with self._lock:
                self._choice.silent.pop(machine, None)

    # -- looking ----------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._is_stopping.wait(_LOOK_INTERVAL_S):
            try:
                self._look()
            except Exception as error:  # Spark is going away, which others report.
                _LOG.debug("executors: %s", reason_of(error))

    def _look(self) -> None:
        found = tuple(self._ask_spark())
        with self._lock:
            self._choice.executors = found
            self._settle()
            room = self._choice.machines_with_room()
            silent = dict(self._choice.silent)
        for executor in found:
            is_wanted = executor.name not in self._is_warm or executor.machine in silent
            if is_wanted and not executor.is_leaving and executor.name not in self._probed:
                self._probed[executor.name] = None
                name = f"{self._group}#{executor.name}"
                threading.Thread(
                    target=self._probe, args=(executor,), name=name, daemon=True
                ).start()
        if room != self._room:
            self._room = room
            for say in self._on_change:
                say(room)
        leaving = frozenset(executor.name for executor in found if executor.is_leaving)
        if leaving:
            for say_leaving in self._on_leaving:
                say_leaving(leaving)

    def _settle(self) -> None:
        now_s = time.monotonic()
        for name in [n for n, at_s in self._wished_s.items() if now_s - at_s > _SETTLED_S]:
            del self._wished_s[name]
            self._choice.settled(name)

    def _ask_spark(self) -> Iterator[Executor]:
        jsc: Any = self._sc._jsc
        scheduler = jsc.sc().taskScheduler()
        summaries = jsc.sc().statusStore().executorList(True)
        for number in range(summaries.size()):
            summary = summaries.apply(number)
            name = summary.id()
            if name == _DRIVER:
                continue
            host = summary.hostPort().rpartition(":")[0]
            running, slots = summary.activeTasks(), summary.maxTasks()
            is_leaving = scheduler.getExecutorDecommissionState(name).isDefined()
            is_warm = name in self._is_warm
            yield Executor(name, host, self._machine(host), slots, running, is_warm, is_leaving)

    def _machine(self, host: str) -> str:
        address = self._address_of.get(host)
        if address is None:
            address = host
            with contextlib.suppress(OSError):
                address = socket.gethostbyname(host)
            self._address_of[host] = address
        return self._machine_at.get(address, address)

    def _probe(self, executor: Executor) -> None:
        """An empty task there; it says where it was, and what the machine calls itself."""
        towards = f"tcp://{driver_addresses(self._sc.getConf())[1]}:{_ANY_PORT}"
        group = f"{self._group}#{executor.name}"
        try:
            self._sc.setJobGroup(group, "Holdfast warms an executor up")
            placed = self.one_task(executor).mapPartitions(lambda _: _who_is_here(towards))
            for address, machine in placed.collect():
                self.learned(address, machine)
                self.heard(machine)
            self._is_warm[executor.name] = None
            _LOG.info("executor %s %s", executor.name, WARM)
        except Exception as error:  # Gone again, or Spark is.
            _LOG.debug("executor %s: %s", executor.name, reason_of(error))
        finally:
            del self._probed[executor.name]


def _who_is_here(towards: str) -> Iterator[tuple[str, str]]:
    """The body of the task that warms an executor up."""
    address = own_address(towards)
    yield address, machine_of(address)
