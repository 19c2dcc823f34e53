"""The view over HTTP: who may look, who may act, and what is sent."""

import http.client
import json
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast.errors import NotRunningError, OptionError
from holdfast.shell.storage.shown_box import ShownBox
from holdfast.view.metrics import serve_metrics
from holdfast.view.model import Facts
from holdfast.view.rows import unit_of
from holdfast.view.serving import View, serve
from holdfast.view.watching import Location
from holdfast_bench.shown_query import plan, report


class FakeQuery:
    """A query that says something new whenever it is looked at."""

    location = "/nowhere"

    def __init__(self) -> None:
        self.looks = 0
        self.done: list[tuple[str, str]] = []

    def look(self) -> Facts:
        self.looks += 1
        made = report(3, tick=self.looks)
        return Facts(self.location, plan(3), made, made["madeUnixS"], is_running=True)

    def rows(self, stream: str) -> dict[str, Any]:
        if unit_of(stream) is None:
            raise OptionError(f"sink {stream} has no rows yet")
        return {"columns": ["", "to", "n"], "rows": [["tentative", "sums[0]", "5"]]}

    def act(self, action: str, target: str) -> dict[str, Any]:
        if target == "gone":
            raise NotRunningError("no query runs here")
        self.done.append((action, target))
        return {"done": target}


@pytest.fixture
def query() -> FakeQuery:
    return FakeQuery()


@pytest.fixture
def view(query: FakeQuery) -> Iterator[View]:
    served = serve(query, port=0)
    yield served
    served.stop()


@pytest.fixture
def acting(query: FakeQuery) -> Iterator[View]:
    served = serve(query, port=0, allow_actions=True)
    yield served
    served.stop()


def asked(
    view: View, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    port = int(view.url.rpartition(":")[2].partition("/")[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


def own(view: View) -> dict[str, str]:
    return {"origin": view.url.rstrip("/"), "content_type": "application/json"}


@pytest.mark.parametrize("path", ["/", "/view.js", "/view.css", "/icon.svg", "/page.json"])
def test_all_comes_from_here_and_says_so_to_the_browser(view: View, path: str) -> None:
    status, headers, body = asked(view, path)
    assert status == 200
    assert body
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers
    assert b"https://" not in body


def test_a_name_of_somebody_else_is_refused(view: View) -> None:
    status, _, body = asked(view, "/page.json", host="rebound.example:80")
    assert status == 421
    assert b"rebound.example" in body
    assert b"tiles" not in body


def test_nobody_watching_costs_nothing(view: View, query: FakeQuery) -> None:
    asked(view, "/")
    assert query.looks == 0


def test_changes_follow_the_page(view: View) -> None:
    port = int(view.url.rpartition(":")[2].partition("/")[0])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    events: list[dict[str, Any]] = []
    while len(events) < 2:
        line = answer.readline().decode()
        if line.startswith("data: "):
            events.append(json.loads(line.removeprefix("data: ")))
    connection.close()
    assert events[0]["title"] == "bids"
    assert "graph" not in events[1]
    assert events[1]["madeUnixS"] > events[0]["madeUnixS"]


def test_nothing_is_done_unless_it_was_allowed(view: View, query: FakeQuery) -> None:
    status, _, body = asked(view, "/actions/kill", "POST", '{"target": "unit1"}', **own(view))
    assert status == 403
    assert b"--allow-actions" in body
    assert not query.done


def test_what_was_allowed_is_done(acting: View, query: FakeQuery) -> None:
    page = json.loads(asked(acting, "/page.json")[2])
    assert page["actions"]["promote"] == ["unit1"]
    status, _, body = asked(acting, "/actions/kill", "POST", '{"target": "unit1"}', **own(acting))
    assert (status, json.loads(body)) == (200, {"done": "unit1"})
    assert query.done == [("kill", "unit1")]
    status, _, body = asked(acting, "/actions/stop", "POST", '{"target": "gone"}', **own(acting))
    assert (status, json.loads(body)) == (409, {"error": "no query runs here"})


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"origin": "https://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": None}, 403),
        ({"content_type": "text/plain"}, 400),
    ],
)
def test_a_page_from_elsewhere_cannot_act(
    acting: View, query: FakeQuery, change: dict[str, str | None], status: int
) -> None:
    headers = {k: v for k, v in {**own(acting), **change}.items() if v is not None}
    found, _, _ = asked(acting, "/actions/kill", "POST", '{"target": "unit1"}', **headers)
    assert found == status
    assert not query.done


@pytest.mark.parametrize("body", ["", "[]", '{"target": 7}', "{" + " " * 5_000])
def test_a_body_that_makes_no_sense_is_refused(acting: View, query: FakeQuery, body: str) -> None:
    assert asked(acting, "/actions/kill", "POST", body, **own(acting))[0] == 400
    assert asked(acting, "/actions/kill", "GET", **own(acting))[0] == 405
    assert not query.done


def test_rows_come_from_the_query_or_say_why_there_are_none(view: View) -> None:
    status, _, body = asked(view, "/rows?stream=unit%20bids")
    assert (status, json.loads(body)["rows"]) == (200, [["tentative", "sums[0]", "5"]])
    status, _, body = asked(view, "/rows?stream=out")
    assert (status, json.loads(body)) == (404, {"error": "sink out has no rows yet"})


def test_elsewhere_tls_is_needed(query: FakeQuery) -> None:
    with pytest.raises(OptionError, match="certificate"):
        serve(query, port=0, address="0.0.0.0")


def test_a_port_that_is_taken_is_named(view: View, query: FakeQuery) -> None:
    port = int(view.url.rpartition(":")[2].partition("/")[0])
    with pytest.raises(OptionError, match=f"{port}: another program has that port; .*or 0 for any"):
        serve(query, port=port)
    with pytest.raises(OptionError, match=f"{port}: another program has that port"):
        serve_metrics(port=port)


def test_a_location_is_enough_when_the_driver_has_died(tmp_path: Path) -> None:
    location = str(tmp_path)
    ShownBox(location, 1, plan(3)).report(report(3))
    facts = Location(location).look()
    assert facts.is_running is False
    assert facts.plan == plan(3)
    assert facts.report == report(3)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.2")])
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin.replace(year=2120))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.2"))]), True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(folder / "certificate.pem"), str(folder / "key.pem")


def test_elsewhere_nobody_looks_without_the_token(
    query: FakeQuery, certificate: tuple[str, str]
) -> None:
    file, key = certificate
    view = serve(query, port=0, address="127.0.0.2", certificate=file, key=key, allow_actions=True)
    try:
        place, _, token = view.url.partition("/?token=")
        port = int(place.rpartition(":")[2])

        def found(path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
            context = ssl.create_default_context(cafile=file)
            connection = http.client.HTTPSConnection("127.0.0.2", port, timeout=60, context=context)
            connection.request(
                method, path, '{"target": "unit1"}' if method == "POST" else None, headers
            )
            return connection.getresponse()

        assert place.startswith("https://")
        assert found("/").status == 401
        assert found("/page.json?token=wrong").status == 401
        assert found("/page.json", authorization="Bearer wrong").status == 401
        entered = found(f"/?token={token}")
        assert (entered.status, entered.getheader("location")) == (303, "/")
        cookie = entered.getheader("set-cookie", "")
        assert {"HttpOnly", "Secure", "SameSite=strict"} <= set(cookie.split("; "))
        known = cookie.partition(";")[0]
        assert found("/page.json", cookie=known).status == 200
        assert found("/page.json", authorization=f"Bearer {token}").status == 200
        json_type = {"content-type": "application/json", "cookie": known}
        assert found("/actions/kill", "POST", **json_type).status == 403
        assert found("/actions/kill", "POST", origin=place, **json_type).status == 200
        assert query.done == [("kill", "unit1")]
    finally:
        view.stop()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_that_is_none_is_named(query: FakeQuery, port: int) -> None:
    with pytest.raises(OptionError, match=f"served at 127.0.0.1:{port}: .*0-65535"):
        serve(query, port=port)
    with pytest.raises(OptionError, match=f"served at 127.0.0.1:{port}: "):
        serve_metrics(port=port)


def test_a_key_without_a_certificate_is_refused(query: FakeQuery) -> None:
    with pytest.raises(OptionError, match="of no use without its certificate"):
        serve(query, port=0, key="view.key")


def test_a_file_that_is_no_certificate_is_named(query: FakeQuery, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no")
    file = str(tmp_path / "no.pem")
    with pytest.raises(OptionError, match=r"no\.pem"):
        serve(query, port=0, address="127.0.0.2", certificate=file, key=file)
    with pytest.raises(OptionError, match=r"there is no file .*other\.key"):
        serve(query, port=0, certificate=file, key=str(tmp_path / "other.key"))


def test_an_address_of_another_machine_is_named(query: FakeQuery, tmp_path: Path) -> None:
    (tmp_path / "view.pem").write_text("")
    with pytest.raises(OptionError, match=r"192\.0\.2\.77:4711: this machine does not have"):
        serve(query, address="192.0.2.77", certificate=str(tmp_path / "view.pem"), port=4711)
