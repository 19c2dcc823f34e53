"""What the driver answers to a process that says hello, and how often a process says it."""

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from holdfast.core.coordinator.events import HelloReceived
from holdfast.core.coordinator.instance import Instance
from holdfast.core.coordinator.limits import CoordinatorLimits
from holdfast.core.haunit.plan import NodePlan
from holdfast.core.haunit.told import Fenced, LeaseRenewed
from holdfast.core.machine import Stimulus
from holdfast.core.model.ids import NodeId
from holdfast.core.wire.node_words import FromNode, Task, ToNode
from holdfast.shell.spark.launch import Cluster
from holdfast.shell.spark.node_reports import NodeReports

NODE = NodeId("counts[0]")
TASK = Task(f"{NODE}|1|7|0", NODE, 1, 7)
HELLO = HelloReceived(NODE, 1, TASK.name, "ipc://x")


def answers(instance: Instance, expected: int | None) -> tuple[list[ToNode], list[Stimulus]]:
    """What a process hears that says hello, and the steps that the coordinator takes."""
    said: list[ToNode] = []
    steps: list[Stimulus] = []
    driver = SimpleNamespace(
        _machine=SimpleNamespace(instance=lambda _: instance),
        _executors=SimpleNamespace(heard=lambda _: None),
        _launches=SimpleNamespace(expected=lambda *_: expected, came_up=lambda *_: None),
        history=SimpleNamespace(came_up=lambda *_: None, show=lambda *_: None),
        _is_local=True,
        _answered_s={},
        _say=lambda _, word: said.append(word),
        _step=steps.append,
        route=lambda endpoint: endpoint,
    )
    driver._answer = partial(Cluster._answer, cast("Any", driver))
    Cluster._on_hello(cast("Any", driver), TASK, HELLO)
    return said, steps


def instance() -> Instance:
    return Instance(NodePlan(NODE, "counts", 0, (), 0, (), ()), CoordinatorLimits())


def test_a_process_that_has_to_wait_for_its_assignment_keeps_its_lease() -> None:
    assert answers(instance(), 1) == ([LeaseRenewed()], [HELLO])


def test_one_that_nobody_expects_is_told_to_end() -> None:
    assert answers(instance(), None) == ([Fenced()], [])


def test_one_that_was_ended_is_told_so_though_another_launch_is_awaited() -> None:
    of = instance()
    of.end(TASK.name)
    assert answers(of, 2) == ([Fenced()], [])


def test_a_process_says_hello_as_often_as_others_say_that_they_live() -> None:
    said: list[FromNode] = []
    plan = SimpleNamespace(node=NODE, limits=SimpleNamespace(keep_alive_ms=100))
    process = SimpleNamespace(
        _spec=SimpleNamespace(plan=plan, launch=1),
        _life=SimpleNamespace(machine=None, incarnation=0),
        _channels=SimpleNamespace(endpoint="ipc://x", host="", say=said.append),
        _task_id=TASK.name,
        _former="",
        due_ms=0,
    )
    for at_ms in range(1_000, 1_350, 50):
        NodeReports._say_hello_or_live(cast("Any", process), at_ms)
    assert said == [HELLO] * 4
