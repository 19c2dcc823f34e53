"""A schema registry for tests: the part of Confluent's REST interface that serializers use.

Schemas have ids from 1 on, the same one for the same text; a subject has versions. A new version
that drops a field without a default, or changes a field's type, is refused as incompatible, which
is as much of the rules as tests need.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

_JSON: Final = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """What it knows.

    Attributes:
        schemas: Texts; the id of the first one is 1.
        subjects: Per subject the ids of its versions.
        asked: How many requests have come.
    """

    def __init__(self) -> None:
        """It knows nothing."""
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked = 0
        self._more: dict[str, dict[str, Any]] = {}  # of each text
        self._lock = threading.Lock()

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: Any = ()
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer: the id of a schema of a subject, new or not."""
        with self._lock:
            versions = self.subjects.setdefault(subject, [])
            is_compatible = _is_compatible_message if kind == "PROTOBUF" else _is_compatible
            if versions and not is_compatible(self.schemas[versions[-1] - 1], text):
                return 409, {"error_code": 409, "message": "it is incompatible with the last one"}
            if text not in self.schemas:
                self.schemas.append(text)
                self._more[text] = {"schemaType": kind, "references": list(references)}
            number = self.schemas.index(text) + 1
            if number not in versions:
                versions.append(number)
            return 200, {"id": number}

    def answer(self, method: str, parts: list[str], body: Any) -> tuple[int, dict[str, Any]]:
        """Status and answer of a request."""
        self.asked += 1
        match method, parts:
            case "POST", ["subjects", subject, "versions"]:
                kind, references = body.get("schemaType", "AVRO"), body.get("references", ())
                return self.register(subject, body["schema"], kind, references)
            case "POST", ["subjects", subject]:
                for version, number in enumerate(self.subjects.get(subject, []), 1):
                    if self.schemas[number - 1] == body["schema"]:
                        return 200, self._version(subject, version)
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "GET", ["subjects", subject, "versions", "latest"]:
                versions = self.subjects.get(subject, [])
                if versions:
                    return 200, self._version(subject, len(versions))
                return 404, {"error_code": 40401, "message": "Subject not found"}
            case "GET", ["schemas", "ids", number] if 0 < int(number) <= len(self.schemas):
                text = self.schemas[int(number) - 1]
                return 200, {"schema": text, **self._more[text]}
            case "GET", ["subjects", subject, "versions", version]:
                return 200, self._version(subject, int(version))
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        number = self.subjects[subject][version - 1]
        text = self.schemas[number - 1]
        known = {"subject": subject, "version": version, "id": number, "schema": text}
        return known | self._more[text]


def _is_compatible_message(before: str, text: str) -> bool:
    """Whether the fields of each message that have a number still have their types."""
    old, new = (_fields(each) for each in (before, text))
    return all(new.get(number, kind) == kind for number, kind in old.items())


def _fields(text: str) -> dict[tuple[str, int], tuple[int, str]]:
    """By message and number."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    file.ParseFromString(base64.standard_b64decode(text))
    return {
        (message.name, field.number): (field.type, field.type_name)
        for message in file.message_type
        for field in message.field
    }


def _is_compatible(before: str, text: str) -> bool:
    old = {f["name"]: f["type"] for f in json.loads(before)["fields"]}
    new = {f["name"]: f for f in json.loads(text)["fields"]}
    is_kept = all(name not in new or new[name]["type"] == kind for name, kind in old.items())
    return is_kept and all(name in old or "default" in field for name, field in new.items())


@contextmanager
def schema_registry() -> Iterator[tuple[SchemaRegistry, str]]:
    """A registry, and its URL on this machine."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        """Answers by what the registry knows."""

        def do_GET(self) -> None:
            """Ask."""
            self._answer("GET")

        def do_POST(self) -> None:
            """Register, or look up."""
            self._answer("POST")

        def _answer(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = self.path.partition("?")[0].strip("/").split("/")
            status, answer = registry.answer(method, parts, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", _JSON)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, name="schema-registry", daemon=True)
    thread.start()
    try:
        yield registry, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
