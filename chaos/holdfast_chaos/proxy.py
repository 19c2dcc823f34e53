"""A proxy between nodes, and between nodes and the coordinator, that breaks their connections.

It forwards bytes and understands none of them: channels stay encrypted from end to end. A link can
be torn in the middle of a frame, held back, or refused for a while, as networks do.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

_CHUNK_BYTES = 1 << 16
_T = TypeVar("_T")


@dataclass(slots=True)
class _Route:
    """The way to one endpoint.

    Attributes:
        target: The real endpoint.
        held_until_s: Bytes wait until then (monotonic).
        refused_until_s: Connections are refused until then.
        is_tearing: Whether the next chunk is cut in half, and its connection with it.
        transports: Both ends of all connections that are open.
    """

    target: str
    held_until_s: float = 0.0
    refused_until_s: float = 0.0
    is_tearing: bool = False
    transports: set[asyncio.WriteTransport] = field(default_factory=set)


class Proxy:
    """Routes to any number of endpoints, served by a thread of its own."""

    def __init__(self) -> None:
        """Start; `close` ends it."""
        self._folder = tempfile.mkdtemp(prefix="hf-")
        self._routes: list[_Route] = []
        self._numbers = itertools.count()
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.AbstractServer] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def route(self, endpoint: str) -> str:
        """A new endpoint that leads to this one; `ipc://` and `tcp://`, on this host only."""
        route = _Route(endpoint)
        self._routes.append(route)
        return self._call(self._serve(route))

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _serve(self, route: _Route) -> str:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._forward(route, reader, writer)

        if route.target.startswith("ipc://"):
            path = os.path.join(self._folder, str(next(self._numbers)))
            self._servers.append(await asyncio.start_unix_server(connected, path))
            return f"ipc://{path}"
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._servers.append(server)
        return f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _forward(
        self, route: _Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        ends = [writer]
        try:
            if time.monotonic() < route.refused_until_s:
                return
            there_reader, there_writer = await _connect(route.target)
            ends.append(there_writer)
            route.transports |= {end.transport for end in ends}
            pumps = [
                asyncio.ensure_future(_pump(route, reader, there_writer)),
                asyncio.ensure_future(_pump(route, there_reader, writer)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
        except OSError:
            return  # Nobody is there any more.
        finally:
            for end in ends:
                end.transport.abort()
                route.transports.discard(end.transport)

    # -- faults -------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """How many routes there are; the first leads to the coordinator."""
        return len(self._routes)

    def tear(self, number: int) -> None:
        """Break the connections of a route in the middle of the next bytes."""
        self._routes[number].is_tearing = True

    def hold(self, number: int, seconds: float) -> None:
        """Hold all bytes of a route back for a while; they arrive afterwards."""
        self._routes[number].held_until_s = time.monotonic() + seconds

    def cut(self, number: int, seconds: float) -> None:
        """Break the connections of a route, and refuse new ones for a while."""
        route = self._routes[number]
        route.refused_until_s = time.monotonic() + seconds
        self._loop.call_soon_threadsafe(_abort, route)

    def close(self) -> None:
        """End all connections and the thread."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()
        for route in self._routes:
            _abort(route)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _abort(route: _Route) -> None:
    for transport in list(route.transports):
        transport.abort()


async def _connect(endpoint: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    kind, _, address = endpoint.partition("://")
    if kind == "ipc":
        return await asyncio.open_unix_connection(address)
    host, _, port = address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _pump(route: _Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while chunk := await reader.read(_CHUNK_BYTES):
            while (held_s := route.held_until_s - time.monotonic()) > 0:
                await asyncio.sleep(held_s)
            if route.is_tearing:
                route.is_tearing = False
                writer.write(chunk[: len(chunk) // 2])
                await writer.drain()
                _abort(route)
                return
            writer.write(chunk)
            await writer.drain()
