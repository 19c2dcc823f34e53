"""Requests of people to a running query, and its answers, as objects of its checkpoint location.

Whoever may write to the location may ask. A request has three objects in `requests/`:

1. The one who asks puts `<id>.json`.
2. The driver creates `<id>.taken`, and only then acts.
3. The driver puts `<id>.answer`; the one who asks reads it and deletes all three.

Who has waited too long creates `<id>.taken` itself. Objects are created exclusively, so that an
action is never carried out after somebody was told that it was not.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.storage.errors import FileDamaged
from holdfast.shell.storage.places import store_at
from holdfast.shell.storage.small_files import decode
from holdfast.shell.stores.base import NameTaken, ObjectMissing

FOLDER: Final = "requests"
_REQUEST: Final = ".json"
_TAKEN: Final = ".taken"
_ANSWER: Final = ".answer"
_BYTES_MAX: Final = 4_096
_TAKEN_MAX: Final = 16
"""Requests taken at a time."""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asks for.

    Attributes:
        id: Made up by the one who asks.
        action: Its name, e.g. `kill`.
        target: A unit or node; empty: the query.
    """

    id: str
    action: str
    target: str


class RequestBox:
    """The requests at one checkpoint location. Both sides have one."""

    def __init__(self, location: str) -> None:
        """Use a location, which has to be there. Raises `StoreUnavailable`."""
        self._location = location
        self._store = store_at(location)

    # -- who asks -----------------------------------------------------------------------------

    def ask(self, action: str, target: str = "") -> str:
        """Put a request; its id. Raises `StoreUnavailable` and `StorageError`."""
        request_id = secrets.token_hex(8)
        content = encode_sealed({"action": action, "target": target})
        self._store.put(_name(request_id, _REQUEST), [content])
        return request_id

    def answer_of(self, request_id: str) -> dict[str, Any] | None:
        """The answer; None: there is none yet. Raises `FileDamaged`."""
        name = _name(request_id, _ANSWER)
        try:
            content = bytes(self._store.read(name))
        except ObjectMissing:
            return None
        return decode(content, f"{self._location}/{name}", dict)

    def withdraw(self, request_id: str) -> bool:
        """Whether nobody has begun with it; then nobody will."""
        return self._claim(request_id)

    def forget(self, request_id: str) -> None:
        """Delete the request and its answer."""
        for end in (_REQUEST, _ANSWER, _TAKEN):  # Without a request nobody looks at a claim.
            self._store.delete(_name(request_id, end))

    # -- the driver ---------------------------------------------------------------------------

    def clear(self) -> None:
        """Delete what was asked of a driver before this one: nobody waits for it any more."""
        for name in sorted(self._names(), key=lambda name: not name.endswith(_REQUEST)):
            self._store.delete(name)

    def take(self) -> list[Request]:
        """The requests that have come, each once; those that make no sense are answered here."""
        names = self._names()
        asked = [name for name in names if name.endswith(_REQUEST)]
        taken: list[Request] = []
        for name in asked[:_TAKEN_MAX]:
            request_id = name.removeprefix(f"{FOLDER}/").removesuffix(_REQUEST)
            if _name(request_id, _TAKEN) in names or not self._claim(request_id):
                continue
            try:
                taken.append(self._read(request_id, name))
            except FileDamaged as error:
                self.answer(request_id, {"error": str(error)})
            except ObjectMissing:
                continue
        return taken

    def answer(self, request_id: str, answer: dict[str, Any]) -> None:
        """Say what came of a request. Raises `StoreUnavailable`."""
        plain = json.loads(json.dumps(answer, default=str))  # As whoever reads it has it.
        with contextlib.suppress(NameTaken):  # An attempt whose answer was lost.
            self._store.put(_name(request_id, _ANSWER), [encode_sealed(plain)])

    def _read(self, request_id: str, name: str) -> Request:
        place = f"{self._location}/{name}"
        if self._store.size(name) > _BYTES_MAX:
            raise FileDamaged(place, f"it has more than {_BYTES_MAX} bytes")
        content = bytes(self._store.read(name))
        return decode(content, place, lambda v: Request(request_id, v["action"], v["target"]))

    def _names(self) -> list[str]:
        return [name for name in self._store.names(FOLDER) if name.startswith(f"{FOLDER}/")]

    def _claim(self, request_id: str) -> bool:
        try:
            self._store.put(_name(request_id, _TAKEN), [b"{}"])
        except NameTaken:
            return False
        return True


def _name(request_id: str, end: str) -> str:
    return f"{FOLDER}/{request_id}{end}"
