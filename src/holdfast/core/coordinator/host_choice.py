"""On which executor a task is to run: replicas of an instance on different machines. [HA §4]

Spark chooses; this gives it a wish. The wish goes to an executor with a free slot, by preference on
a machine that the task has been on before (a data node's chunks are there), and else to the one
with the fewest tasks, of those that are warm if any is: a new executor has no tasks, and takes
seconds to begin its first. Never wished for are the machines to keep apart from, and those that
have fallen silent: Spark takes a machine that is cut off for well for minutes, and would send the
replacement there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Executor:
    """What Spark says of one of its executors.

    Attributes:
        name: Its id.
        host: What Spark calls its host.
        machine: What fails as one; several executors, and with pods several hosts, may be on it.
        slots: Tasks that it can run at a time.
        running: Tasks that it runs.
        is_warm: Whether it has run a task before, so that another begins at once.
        is_leaving: Whether Spark has been told to end it soon, and gives it no more tasks.
    """

    name: str
    host: str
    machine: str
    slots: int
    running: int
    is_warm: bool = True
    is_leaving: bool = False


@dataclass(slots=True)
class HostChoice:
    """What is known of executors and of tasks on their way to them.

    Attributes:
        executors: Those of now.
        silent: Machines of which a task was taken for dead because it was silent, and that have not
            been heard of since.
    """

    executors: tuple[Executor, ...] = ()
    silent: dict[str, None] = field(default_factory=dict)
    _wished: dict[str, str] = field(default_factory=dict)  # task: executor, until Spark counts it

    def choose(
        self, task: str, *, apart_from: Iterable[str] = (), before: str = ""
    ) -> Executor | None:
        """An executor for a task; None: whichever Spark likes.

        Args:
            task: Its name, for `settled`.
            apart_from: Machines that it must not share if there is another one.
            before: The machine where it was before, if that matters.
        """
        self._wished.pop(task, None)
        avoided = {*apart_from, *self.silent}
        free = [e for e in self.executors if e.machine not in avoided and self._has_room(e)]
        if not free:
            return None
        order = lambda e: (e.machine != before, not e.is_warm, self._load(e), e.name)  # noqa: E731
        chosen = min(free, key=order)
        self._wished[task] = chosen.name
        return chosen

    def _has_room(self, executor: Executor) -> bool:
        return self._load(executor) < executor.slots and not executor.is_leaving

    def _load(self, executor: Executor) -> int:
        return executor.running + sum(name == executor.name for name in self._wished.values())

    def settled(self, task: str) -> None:
        """From now on Spark's own count has this task, wherever it runs."""
        self._wished.pop(task, None)

    def machines_with_room(self) -> tuple[str, ...]:
        """Machines with a free slot that are not silent, by name."""
        found = {
            e.machine for e in self.executors if self._has_room(e) and e.machine not in self.silent
        }
        return tuple(sorted(found))

    def machines(self) -> tuple[str, ...]:
        """All machines, by name."""
        return tuple(sorted({e.machine for e in self.executors}))
