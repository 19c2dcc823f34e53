"""HDFS as checkpoint store and log, through WebHDFS: the name node's HTTP interface.

fsspec's client for it overwrites what exists, has no timeouts, and takes a data node's error page
for the file; none of that will do where two drivers must not both believe that they were first.
So this store speaks WebHDFS itself:

- An object is written under a name of its own (`.<name>.<unique>`) and then renamed. The name node
  renames atomically, and not onto a file that exists: so an object is there whole or not at all,
  and of two that make one of the same name only one succeeds.
- What has content takes two steps: the name node names a data node, the data node takes or gives
  the bytes. One that does not answer is left out when the name node is asked again: it may take
  minutes until the name node itself knows that it is gone.
- When the answer to a rename is lost, the object may be there: whoever asks again finds the name
  taken, as with every store.

Who asks is told to fsspec in its own way (`fsspec.config.conf["webhdfs"]`, or `FSSPEC_WEBHDFS_USER`
and so on): `user`, or `token`, a delegation token. Kerberos by SPNEGO is not spoken; get a token.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

import fsspec.config

from holdfast.shell.storage.errors import BadName
from holdfast.shell.storage.paths import check_url, object_parts
from holdfast.shell.stores.base import (
    CheckpointStore,
    NameTaken,
    ObjectMissing,
    ObjectWriter,
    StoredObject,
    StoreUnavailable,
)

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMES: Final = ("webhdfs", "swebhdfs")
_PORTS: Final = {"webhdfs": 9870, "swebhdfs": 9871}
_TIMEOUT_S: Final = 20.0
_ATTEMPTS: Final = 4
_RETRY_S: Final = 0.2
_DATA_NODES_ASKED: Final = 10
_PAUSE_S: Final = 0.05
_GONE: Final = (OSError, http.client.HTTPException)
"""What a connection raises when nobody, or nobody sound, is at its other end."""
_RETRIED: Final = ("RetriableException", "StandbyException", "SafeModeException")


class _Refused(Exception):
    """The name node or a data node says no: `kind` is the name of its exception."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message.splitlines()[0] if message else ''}")
        self.kind = kind


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the name node is, and who asks it."""

    scheme: str
    host: str
    port: int
    root: str
    query: dict[str, str] = field(repr=False)

    @staticmethod
    def of(url: str, options: dict[str, Any]) -> _Place:
        check_url(url)
        parts = urlsplit(url)
        known = {**fsspec.config.conf.get("webhdfs", {}), **options}
        foreign = sorted(set(known) - {"user", "token"})
        if foreign:
            raise BadName(f"{parts.scheme} takes user or token, not {', '.join(foreign)}")
        query: dict[str, str] = {}
        if known.get("token"):
            query["delegation"] = str(known["token"])
        elif parts.username or known.get("user"):
            query["user.name"] = parts.username or str(known["user"])
        if not parts.hostname or not parts.path.strip("/"):
            raise BadName(f"{url}: a WebHDFS location is {parts.scheme}://name-node:port/path")
        root = "/" + "/".join(object_parts(parts.path.strip("/")))
        return _Place(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme], root, query)

    def target(self, path: str, op: str, more: dict[str, str]) -> str:
        query = {"op": op, **more, **self.query}
        return f"/webhdfs/v1{quote(path)}?{urlencode(query)}"


def _connection(scheme: str, host: str, port: int) -> http.client.HTTPConnection:
    is_secure = scheme in ("swebhdfs", "https")
    kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
    return kind(host, port, timeout=_TIMEOUT_S)


def _check(status: int, body: bytes) -> bytes:
    """A body, unless the answer is an error. Raises `_Refused`."""
    if status < 400:
        return body
    try:
        said = json.loads(body)["RemoteException"]
        raise _Refused(str(said["exception"]), str(said.get("message", "")))
    except (ValueError, KeyError, TypeError):
        raise _Refused(f"HTTP {status}", body[:200].decode(errors="replace")) from None


class WebHdfsStore(CheckpointStore):
    """One file per object. Every request has a connection of its own, so threads share nothing."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        """Prepare; the first operation finds out whether anybody is there.

        Raises:
            BadName: The URL, or an option, is none that WebHDFS takes.
        """
        self._url = url.rstrip("/")
        self._place = _Place.of(self._url, options)

    # -- the name node ----------------------------------------------------------------------

    def _ask(self, method: str, path: str, op: str, **more: str) -> Any:
        """Its answer as JSON; asked again as long as it is starting up. Raises as `_errors`."""
        for attempt in range(_ATTEMPTS):
            try:
                body = self._asked(method, path, op, more)
                return json.loads(body) if body else {}
            except _Refused as error:
                if error.kind not in _RETRIED or attempt == _ATTEMPTS - 1:
                    raise
            except _GONE:
                if attempt == _ATTEMPTS - 1:
                    raise
            time.sleep(_RETRY_S * 2**attempt)
        raise AssertionError("not reached")

    def _asked(self, method: str, path: str, op: str, more: dict[str, str]) -> bytes:
        place = self._place
        connection = _connection(place.scheme, place.host, place.port)
        try:
            connection.request(method, place.target(path, op, more))
            answer = connection.getresponse()
            return _check(answer.status, answer.read())
        finally:
            connection.close()

    def _readable(self, path: str, **more: str) -> Iterator[str]:
        """Where data nodes give a file's bytes; another one each time, as far as there are."""
        yield from (location for _, location in self._data_nodes("GET", lambda: path, "OPEN", more))

    def _writable(self, path: str) -> Iterator[tuple[str, str]]:
        """Drafts of a file, and where data nodes take their bytes. Each draft has a new name."""
        yield from self._data_nodes("PUT", lambda: _draft(path), "CREATE", {"overwrite": "false"})

    def _data_nodes(
        self, method: str, path_of: Callable[[], str], op: str, more: dict[str, str]
    ) -> Iterator[tuple[str, str]]:
        left_out: dict[str, None] = {}  # by address, as the name node knows them
        for _ in range(_DATA_NODES_ASKED):
            excluded = {"excludedatanodes": ",".join(left_out)} if left_out else {}
            path = path_of()
            try:
                answer = self._ask(method, path, op, noredirect="true", **more, **excluded)
            except _Refused as error:
                if not left_out or error.kind == "FileNotFoundException":
                    raise
                left_out.clear()  # None is left: perhaps one is back.
                time.sleep(_PAUSE_S)
                continue
            location = str(answer.get("Location", ""))
            host = urlsplit(location).hostname
            if host is None:
                raise _Refused("no data node", location)
            yield path, location
            with contextlib.suppress(OSError):
                left_out[socket.gethostbyname(host)] = None
            time.sleep(_PAUSE_S)

    # -- objects ----------------------------------------------------------------------------

    def create(self, name: str) -> ObjectWriter:
        """See the base."""
        path = self._path(name)
        with _errors(f"{self._url}/{name}"):
            self._refuse_taken(path)
            return _Writer(self, path, f"{self._url}/{name}")

    def put(self, name: str, parts: Sequence[bytes | pa.Buffer]) -> None:
        """See the base. Readers see the object whole or not at all."""
        path, data = self._path(name), b"".join(bytes(memoryview(part)) for part in parts)
        with _errors(f"{self._url}/{name}"):
            last: Exception | None = None
            for draft, location in self._writable(path):
                try:
                    with contextlib.closing(_Upload(location)) as upload:
                        upload.send(data)
                        upload.finish()
                except _GONE as error:  # Another data node may be sound.
                    last = error
                    self._forget(draft)
                    continue
                self._publish(draft, path)
                return
            raise StoreUnavailable(f"no data node takes it: {last}")

    def _refuse_taken(self, path: str) -> None:
        with contextlib.suppress(_Refused):
            self._ask("GET", path, "GETFILESTATUS")
            raise FileExistsError(path)

    def _publish(self, draft: str, path: str) -> None:
        """Give a whole object its name, unless that is taken. Raises `FileExistsError`."""
        if self._ask("PUT", draft, "RENAME", destination=path).get("boolean"):
            return
        self._forget(draft)
        self._refuse_taken(path)
        raise _Refused("RENAME", "the name node does not rename, and the name is free")

    def _forget(self, path: str) -> None:
        with contextlib.suppress(_Refused, *_GONE):
            self._ask("DELETE", path, "DELETE")

    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        """See the base."""
        view = buffer.cast("B")
        data = self._read(name, offset, len(view)) if len(view) else b""
        if len(data) < len(view):
            raise ObjectMissing(f"{self._url}/{name} is cut short at byte {offset + len(data)}")
        view[:] = data

    def read(self, name: str) -> memoryview:
        """See the base."""
        return memoryview(self._read(name, 0, None))

    def _read(self, name: str, offset: int, length: int | None) -> bytes:
        path = self._path(name)
        with _errors(f"{self._url}/{name}"):
            size = self._size(path)
            wanted = max(0, size - offset if length is None else min(length, size - offset))
            if not wanted:
                return b""
            last: Exception | None = None
            more = {"offset": str(offset), "length": str(wanted)}
            for location in self._readable(path, **more):
                try:
                    data = _download(location)
                except (_Refused, *_GONE) as error:
                    last = error
                    continue
                if len(data) == wanted:
                    return data
                last = StoreUnavailable(f"{len(data)} bytes instead of {wanted}")
            raise StoreUnavailable(f"no data node gives it: {last}")

    def size(self, name: str) -> int:
        """See the base."""
        path = self._path(name)
        with _errors(f"{self._url}/{name}"):
            return self._size(path)

    def _size(self, path: str) -> int:
        return int(self._ask("GET", path, "GETFILESTATUS")["FileStatus"]["length"])

    def names(self, folder_prefix: str = "") -> list[str]:
        """See the base."""
        with _errors(self._url):
            folders = [name for name in self.children() if name.startswith(folder_prefix)]
            return sorted(name for folder in folders for name in self._files(folder))

    def _files(self, folder: str) -> Iterator[str]:
        """All files below a folder, whose name is relative to the root."""
        for name, is_folder in self._list(f"{self._place.root}/{folder}"):
            if not name:
                continue  # It is a file itself, and has no folder.
            if is_folder:
                yield from self._files(f"{folder}/{name}")
            else:
                yield f"{folder}/{name}"

    def listing(self) -> list[StoredObject]:
        """See the base."""
        with _errors(self._url):
            return [stored for folder in self.children() for stored in self._stored(folder)]

    def _stored(self, folder: str) -> Iterator[StoredObject]:
        """What lies below a folder, with what the name node says of it."""
        for each in self._statuses(f"{self._place.root}/{folder}"):
            name = str(each["pathSuffix"])
            if not name or name.startswith("."):
                continue
            if each["type"] == "DIRECTORY":
                yield from self._stored(f"{folder}/{name}")
            else:
                modified_us = int(each["modificationTime"]) * 1000
                yield StoredObject(f"{folder}/{name}", int(each["length"]), modified_us)

    def children(self) -> list[str]:
        """See the base."""
        with _errors(self._url):
            return sorted(name for name, _ in self._list(self._place.root) if name)

    def drafts(self, folder: str) -> list[str]:
        """What is being written below a folder, for people and tests."""
        place, found = f"{self._place.root}/{folder}", []
        for each in self._statuses(place):
            if each["type"] == "DIRECTORY":
                found += self.drafts(f"{folder}/{each['pathSuffix']}")
            elif str(each["pathSuffix"]).startswith("."):
                found.append(str(each["pathSuffix"]))
        return found

    def _list(self, path: str) -> list[tuple[str, bool]]:
        """Names in a folder, without drafts, and whether each is a folder; of a file: itself."""
        found = self._statuses(path)
        named = [(str(each["pathSuffix"]), each["type"] == "DIRECTORY") for each in found]
        return [(name, is_folder) for name, is_folder in named if not name.startswith(".")]

    def _statuses(self, path: str) -> list[dict[str, Any]]:
        """Of everything in a folder; of nothing, if there is no folder."""
        try:
            answer = self._ask("GET", path, "LISTSTATUS")
        except _Refused as error:
            if error.kind == "FileNotFoundException":
                return []
            raise
        return list(answer["FileStatuses"]["FileStatus"])

    def delete(self, name: str) -> None:
        """See the base; an empty folder goes too."""
        path = self._path(name)
        with _errors(f"{self._url}/{name}"):
            self._ask("DELETE", path, "DELETE")
        folder = path.rpartition("/")[0]
        if folder != self._place.root:
            self._forget(folder)  # Without `recursive` a folder goes only when it is empty.

    def _path(self, name: str) -> str:
        return f"{self._place.root}/{'/'.join(object_parts(name))}"


def _draft(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.{uuid.uuid4().hex}"


class _Upload:
    """Bytes on their way to a data node, which writes them on to others."""

    def __init__(self, location: str) -> None:
        parts = urlsplit(location)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._connection = _connection(parts.scheme, parts.hostname or "", port)
        self._connection.putrequest("PUT", f"{parts.path}?{parts.query}")
        self._connection.putheader("Content-Type", "application/octet-stream")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()
        self._connection.auto_open = 0  # Once closed, it stays so.

    def send(self, data: bytes | memoryview) -> None:
        """Raises what connections do."""
        view = memoryview(data).cast("B")
        if len(view):
            self._connection.send(b"%x\r\n" % len(view))
            self._connection.send(view)
            self._connection.send(b"\r\n")

    def finish(self) -> None:
        """Wait until the file is closed. Raises `_Refused` and what connections do."""
        self._connection.send(b"0\r\n\r\n")
        answer = self._connection.getresponse()
        try:
            _check(answer.status, answer.read())
        except _Refused as error:  # A data node's trouble, not the object's.
            raise ConnectionError(str(error)) from error

    def close(self) -> None:
        self._connection.close()


def _download(location: str) -> bytes:
    parts = urlsplit(location)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    connection = _connection(parts.scheme, parts.hostname or "", port)
    try:
        connection.request("GET", f"{parts.path}?{parts.query}")
        answer = connection.getresponse()
        return _check(answer.status, answer.read())
    finally:
        connection.close()


class _Writer:
    """Writes one object as it comes. When its data node dies, the object has failed."""

    def __init__(self, store: WebHdfsStore, path: str, shown: str) -> None:
        self._store, self._path, self._shown = store, path, shown
        last: Exception | None = None
        for self._draft, location in store._writable(path):
            try:
                self._upload = _Upload(location)
            except _GONE as error:
                last = error
                continue
            return
        raise StoreUnavailable(f"no data node takes it: {last}")

    def write(self, data: bytes | memoryview) -> None:
        with _errors(self._shown):
            self._upload.send(data)

    def close(self) -> None:
        with _errors(self._shown):
            try:
                self._upload.finish()
            finally:
                self._upload.close()
            self._store._publish(self._draft, self._path)

    def abort(self) -> None:
        with contextlib.suppress(Exception):
            try:
                self._upload.finish()  # Else a slow data node could make the draft once it is gone.
            finally:
                self._upload.close()
        with contextlib.suppress(Exception):
            self._store._forget(self._draft)


@contextlib.contextmanager
def _errors(shown: str) -> Iterator[None]:
    """What WebHDFS says, as our own errors."""
    try:
        yield
    except (StoreUnavailable, ObjectMissing):
        raise
    except FileExistsError as error:
        raise NameTaken(f"{shown} exists already") from error
    except _Refused as error:
        if error.kind == "FileNotFoundException":
            raise ObjectMissing(f"{shown} is missing") from error
        if error.kind == "FileAlreadyExistsException":
            raise NameTaken(f"{shown} exists already") from error
        raise StoreUnavailable(f"{shown}: {error}") from error
    except (*_GONE, KeyError, ValueError) as error:
        raise StoreUnavailable(f"{shown}: {type(error).__name__}: {error}") from error
