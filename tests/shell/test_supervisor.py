"""A process beneath another one: started again when it is killed, never left alone."""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.shell.processes import is_alive
from holdfast.shell.spark.supervisor import ProcessError, RunAgain, supervise


def test_a_process_that_is_killed_is_run_again_and_told_why(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    def body(former: str, came_up: Callable[[], None]) -> None:
        with lives.open("a") as file:
            file.write(f"{os.getpid()} {former}\n")
        came_up()
        if len(lives.read_text().splitlines()) < 4:
            os.kill(os.getpid(), signal.SIGKILL)

    supervise(body)
    pids, formers = zip(
        *(line.split(" ", 1) for line in lives.read_text().splitlines()), strict=True
    )
    assert len({*pids, str(os.getpid())}) == 5
    assert formers == ("", *["its process was ended by SIGKILL"] * 3)


def test_a_process_that_asks_for_it_is_run_again_and_told_why(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    def body(former: str, came_up: Callable[[], None]) -> None:
        with lives.open("a") as file:
            file.write(f"{former}\n")
        came_up()
        if len(lives.read_text().splitlines()) < 3:
            raise RunAgain("it goes back")

    supervise(body)
    assert lives.read_text().splitlines() == ["", "it goes back", "it goes back"]


def test_a_process_that_never_comes_up_is_given_up(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    def body(former: str, came_up: Callable[[], None]) -> None:
        with lives.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ProcessError, match="ended by SIGKILL"):
        supervise(body)
    assert lives.read_text() == "xxx"


def test_an_error_is_raised_with_its_traceback() -> None:
    def body(former: str, came_up: Callable[[], None]) -> None:
        came_up()
        raise ValueError("no such page")

    with pytest.raises(ProcessError, match=r"(?s)in body.*ValueError: no such page"):
        supervise(body)


def test_an_exit_code_is_an_error() -> None:
    with pytest.raises(ProcessError, match="exit code 3"):
        supervise(lambda former, came_up: os._exit(3))


def test_the_connections_of_the_parent_are_its_own() -> None:
    here, there = socket.socketpair()

    def body(former: str, came_up: Callable[[], None]) -> None:
        os.fstat(here.fileno())

    with here, there, pytest.raises(ProcessError, match="Bad file descriptor"):
        supervise(body)


def test_it_dies_with_its_supervisor(tmp_path: Path) -> None:
    lives = tmp_path / "lives"

    def body(former: str, came_up: Callable[[], None]) -> None:
        lives.write_text(str(os.getpid()))
        came_up()
        time.sleep(60)

    supervisor = os.fork()
    if supervisor == 0:
        supervise(body)
        os._exit(0)
    while not (lives.exists() and lives.read_text()):
        time.sleep(0.01)
    os.kill(supervisor, signal.SIGKILL)
    os.waitpid(supervisor, 0)
    pid = int(lives.read_text())
    while is_alive(pid):
        time.sleep(0.01)
