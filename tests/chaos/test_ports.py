"""Servers on free ports; what ends while it comes up is noticed, and launched again."""

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast_chaos import ports
from holdfast_chaos.hdfs_cluster import VERSION, HdfsCluster
from holdfast_chaos.kafka_broker import KafkaBroker
from holdfast_chaos.ports import Server, ServerFailed, accepts, candidates, free_port, wait_until

_LISTENS = """
import socket, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listens", flush=True)
time.sleep(600)
"""


def test_no_outgoing_connection_takes_a_port_that_was_found_free() -> None:
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    found = [free_port() for _ in range(50)]
    assert len({*found}) == 50, "several are asked for before the first is bound"
    assert not [port for port in found if first <= port <= last]
    assert candidates("10100 60999") == range(61_000, 65_536), "the wider side"
    assert candidates("1024 65535") == range(10_000, 65_536), "there is no other"


def test_a_port_at_which_somebody_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_port()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        monkeypatch.setattr(ports, "_NEXT", iter([taken, taken, free]))
        assert free_port() == free


def launcher(places: list[int], log: Path) -> Callable[[], subprocess.Popen[bytes]]:
    """Launches a server at the first of these ports, then the next, and at the last for ever."""

    def launch() -> subprocess.Popen[bytes]:
        port = places.pop(0) if len(places) > 1 else places[0]
        with log.open("ab") as out:
            command = [sys.executable, "-c", _LISTENS, str(port)]
            return subprocess.Popen(command, stdout=out, stderr=out)

    return launch


def test_a_server_whose_port_was_taken_comes_up_at_another(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", free_port())) as other:
        taken, free = other.getsockname()[1], free_port()
        server = Server("server", log, launcher([taken, taken, free], log))
        try:
            wait_until(lambda: accepts(free), [server], "it", 300)
            assert log.read_text().count("Address already in use") == 2
        finally:
            server.kill()
    with pytest.raises(ServerFailed, match=r"(?s)the server has ended with -9.*listens"):
        wait_until(lambda: True, [server], "it", 300)


def test_a_server_that_never_comes_up_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", free_port())) as other:
        taken = other.getsockname()[1]
        server = Server("server", log, launcher([taken], log))
        with pytest.raises(ServerFailed, match=r"(?s)the server has ended.*already in use"):
            wait_until(lambda: server.process.wait() == 0, [server], "it", 300)
    assert log.read_text().count("Address already in use") == 4
    server = Server("server", log, launcher([free_port()], log))
    try:
        with pytest.raises(ServerFailed, match=r"(?s)it did not come up.*log ends:"):
            wait_until(lambda: accepts(1), [server], "it", 0.1)
    finally:
        server.kill()


def java(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """On the path stands this instead of Java."""
    folder.mkdir()
    (folder / "java").write_text(f"#!/bin/sh\n{textwrap.dedent(script)}")
    (folder / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


FAILS = """
    echo "$@" >> "$0.calls"
    case "$*" in *format*) exit 0;; esac
    echo "Address already in use"; exit 1
"""


def test_the_end_of_a_name_node_or_broker_is_noticed_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java(tmp_path / "bin", monkeypatch, FAILS)
    jars = tmp_path / "cache/holdfast" / f"hdfs-{VERSION}"
    jars.mkdir(parents=True)
    (jars / "complete").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "hdfs").mkdir()
    with pytest.raises(ServerFailed, match=r"(?s)name node has ended with 1.*already in use"):
        HdfsCluster(tmp_path / "hdfs")
    broker = KafkaBroker(tmp_path / "jars", tmp_path / "kafka")
    places = [broker.servers]
    with pytest.raises(ServerFailed, match=r"(?s)broker has ended with 1.*already in use"):
        broker.start()
    assert broker.servers not in places, "other ports"
    calls = (tmp_path / "bin/java.calls").read_text().splitlines()
    assert len(calls) == 2 * (1 + 4), "formatted once, launched four times"
