"""Addresses of processes: by the way to the driver, as Spark was told, within a range of ports."""

import socket

import pytest
import zmq

from holdfast.shell.transport.addresses import (
    HOST_VARIABLE,
    Ports,
    driver_addresses,
    machine_of,
    own_address,
)


class Conf(dict[str, str]):
    """As a `SparkConf` is asked."""

    def get(self, key: str, default: str) -> str:  # type: ignore[override]
        return super().get(key, default)


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.delenv(HOST_VARIABLE, raising=False)


def test_an_address_is_where_the_way_to_the_driver_begins() -> None:
    assert own_address("tcp://127.0.0.1:9") == "127.0.0.1"


def test_what_spark_was_told_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.9")
    assert own_address("tcp://127.0.0.1:9") == "127.0.0.9"


def test_a_machine_is_called_by_its_address_or_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert machine_of("10.0.0.7") == "10.0.0.7"
    monkeypatch.setenv(HOST_VARIABLE, "rack4-17")
    assert machine_of("10.0.0.7") == "rack4-17"


def test_the_driver_listens_and_is_reached_as_spark_s_own_sockets() -> None:
    assert driver_addresses(Conf({"spark.driver.host": "127.0.0.3"})) == ("127.0.0.3", "127.0.0.3")
    behind = {"spark.driver.host": "127.0.0.3", "spark.driver.bindAddress": "127.0.0.4"}
    assert driver_addresses(Conf(behind)) == ("127.0.0.4", "127.0.0.3")


def test_ports_stay_in_their_range_and_run_out_with_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        context = zmq.Context()
        try:
            with pytest.raises(zmq.ZMQBindError, match=str(port)):
                Ports(port, port + 1).bind(context.socket(zmq.ROUTER), "127.0.0.1")
            found = Ports(port, port + 50).bind(context.socket(zmq.ROUTER), "127.0.0.1")
            assert port < found < port + 50
        finally:
            context.destroy(linger=0)
