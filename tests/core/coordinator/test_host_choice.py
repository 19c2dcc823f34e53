"""On which executor a task is wished: room, apart from the other replica, not a silent one."""

from dataclasses import replace

from holdfast.core.coordinator.host_choice import Executor, HostChoice


def choice(*loads: int, slots: int = 4) -> HostChoice:
    """Executors `0`, `1`, … on machines `m0`, `m1`, …, so loaded."""
    return HostChoice(
        tuple(Executor(str(n), f"h{n}", f"m{n}", slots, load) for n, load in enumerate(loads))
    )


def chosen(made: HostChoice, task: str, **more: object) -> str | None:
    found = made.choose(task, **more)  # type: ignore[arg-type]
    return None if found is None else found.machine


def test_the_executor_with_the_fewest_tasks_is_chosen() -> None:
    assert chosen(choice(2, 1, 3), "a") == "m1"


def test_tasks_on_their_way_count_until_spark_counts_them() -> None:
    made = choice(0, 0)
    assert [chosen(made, task) for task in "abc"] == ["m0", "m1", "m0"]
    made.settled("a")
    made.settled("c")
    assert chosen(made, "d") == "m0"


def test_the_other_replica_s_machine_is_never_chosen() -> None:
    made = choice(0, 9, slots=10)
    assert chosen(made, "a", apart_from=["m0"]) == "m1"
    assert chosen(made, "a", apart_from=["m0", "m1"]) is None


def test_executors_of_one_machine_are_one() -> None:
    pods = (Executor("0", "pod0", "m0", 4, 0), Executor("1", "pod1", "m0", 4, 0))
    assert HostChoice(pods).choose("a", apart_from=["m0"]) is None


def test_a_silent_machine_is_avoided_until_it_is_heard_of() -> None:
    made = choice(0, 2)
    made.silent["m0"] = None
    assert chosen(made, "a") == "m1"
    assert made.machines_with_room() == ("m1",)
    del made.silent["m0"]
    assert chosen(made, "a") == "m0"


def test_a_new_executor_is_chosen_only_if_no_warm_one_has_room() -> None:
    made = choice(0, 3)
    new = replace(made.executors[0], is_warm=False)
    made.executors = (new, made.executors[1])
    assert chosen(made, "a") == "m1"
    assert chosen(made, "b") == "m0"


def test_an_executor_that_leaves_gets_nothing_more() -> None:
    made = choice(0, 3)
    made.executors = (replace(made.executors[0], is_leaving=True), made.executors[1])
    assert chosen(made, "a") == "m1"
    assert made.machines_with_room() == ()


def test_full_executors_are_no_wish() -> None:
    made = choice(4, 4)
    assert chosen(made, "a") is None
    assert made.machines_with_room() == ()
    assert made.machines() == ("m0", "m1")


def test_a_task_goes_back_to_where_it_was_if_it_can() -> None:
    assert chosen(choice(3, 0), "a", before="m0") == "m0"
    assert chosen(choice(4, 0), "a", before="m0") == "m1"


def test_a_task_that_is_launched_again_counts_once() -> None:
    made = choice(0, 0, slots=1)
    assert chosen(made, "a") == "m0"
    assert chosen(made, "a") == "m0"
    assert chosen(made, "b") == "m1"
