"""The proxy forwards bytes, tears, holds back and refuses."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from holdfast_chaos.proxy import Proxy


def echo(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            try:
                while data := connection.recv(4096):
                    connection.sendall(data)
            except OSError:
                continue


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=echo, args=(server,), daemon=True)
    thread.start()
    yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(5)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


def connect(endpoint: str) -> socket.socket:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=240)


def answer(client: socket.socket, sent: bytes) -> bytes:
    """What comes back before the connection ends or rests."""
    try:
        client.sendall(sent)
        return client.recv(100)
    except ConnectionError:
        return b""


def test_bytes_go_through(proxy: Proxy, endpoint: str) -> None:
    with connect(proxy.route(endpoint)) as client:
        client.sendall(b"hello")
        assert client.recv(100) == b"hello"
    assert proxy.count == 1


def test_a_torn_frame_arrives_in_part_and_the_connection_is_gone(
    proxy: Proxy, endpoint: str
) -> None:
    with connect(proxy.route(endpoint)) as client:
        proxy.tear(0)
        client.sendall(b"0123456789")
        received = b""
        try:
            while data := client.recv(100):
                received += data
        except ConnectionError:
            pass
        assert received in (b"", b"01234")


def test_a_cut_refuses_and_then_heals(proxy: Proxy, endpoint: str) -> None:
    way = proxy.route(endpoint)
    proxy.cut(0, 3_600.0)
    with connect(way) as client:
        assert answer(client, b"x") == b""
    proxy.cut(0, 0.0)
    answered = b""
    while not answered:  # What was opened just then may be broken, too.
        with connect(way) as client:
            answered = answer(client, b"again")
    assert answered == b"again"


def test_held_bytes_arrive_later(proxy: Proxy, endpoint: str) -> None:
    with connect(proxy.route(endpoint)) as client:
        started_s = time.monotonic()
        proxy.hold(0, 0.2)
        client.sendall(b"later")
        assert client.recv(100) == b"later"
        assert time.monotonic() - started_s >= 0.19
