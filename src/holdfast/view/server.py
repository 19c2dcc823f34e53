"""Serves the view of one query to browsers: a page, and its changes as server-sent events.

Theory of operation. One task looks at the query while somebody watches, makes the page of what it
finds, and sends each watcher what has changed. Nobody watching costs nothing.

Who may look. At a loopback address whoever is on this machine; requests must name that address,
so that a page from elsewhere cannot reach it by a name of its own (DNS rebinding). Elsewhere a
token is needed, and TLS. Actions need `--allow-actions`, and an `Origin` that is the page's own: a
page from elsewhere cannot ask for them. Nothing is loaded from elsewhere (Content-Security-Policy).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from holdfast.errors import HoldfastError
from holdfast.shell.storage.errors import StorageError
from holdfast.view.changes import calmed, difference
from holdfast.view.model import page_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holdfast.view.watching import Watched

ACTIONS: Final = ("kill", "promote", "stop")
_COOKIE: Final = "holdfast_view"
_ASSETS: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "view.css": ("view.css", "text/css; charset=utf-8"),
    "view.js": ("view.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_INTERVAL_S: Final = 0.25
_WHOLE_INTERVAL_S: Final = 2.0
_SHARE: Final = 10
"""Looking computes for at most a tenth of the time, however large the dataflow is."""
_BODY_BYTES_MAX: Final = 4_096
_KEEP_ALIVE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Access:
    """Who may look and act.

    Attributes:
        hosts: The values of `Host` that are answered, with the port.
        token: Needed by everybody; empty: nobody needs one.
        is_tls: Whether it is served by TLS.
        actions: Those that are allowed.
    """

    hosts: tuple[str, ...]
    token: str = ""
    is_tls: bool = False
    actions: tuple[str, ...] = ()

    def refusal(self, request: Request) -> tuple[int, str] | None:
        """Why a request is not answered: its status, and a sentence; None: it is."""
        host = request.headers.get("host", "")
        if host not in self.hosts:
            return 421, f"This view is not {host[:100]}; it is {self.hosts[0]}."
        if self.token and not self._is_known(request):
            return 401, "Open the address that was printed; it holds the token."
        if request.method == "POST":
            own = f"{'https' if self.is_tls else 'http'}://{host}"
            if request.headers.get("origin") != own:
                return 403, "Another site may not ask for anything."
        return None

    def _is_known(self, request: Request) -> bool:
        given = (
            request.cookies.get(_COOKIE, ""),
            request.headers.get("authorization", "").removeprefix("Bearer "),
            request.query_params.get("token", ""),
        )
        return any(hmac.compare_digest(one.encode(), self.token.encode()) for one in given)


@dataclass(slots=True, eq=False)
class Board:
    """The page as it is now, and who watches it."""

    watched: Watched
    actions: tuple[str, ...]
    page: dict[str, Any] = field(default_factory=dict)
    watchers: set[asyncio.Queue[str | None]] = field(default_factory=set)
    made_s: float = -1e9
    whole_s: float = -1e9
    interval_s: float = _INTERVAL_S
    is_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def refresh(self) -> None:
        """Look at the query, and tell all watchers what has changed."""
        async with self.lock:
            if time.monotonic() < self.made_s + self.interval_s:
                return
            page, event, computed_s = await run_in_threadpool(self._look)
            self.page, self.made_s = page, time.monotonic()
            self.interval_s = max(_INTERVAL_S, _SHARE * computed_s)
            for queue in self.watchers if event else ():
                queue.put_nowait(event)

    def _look(self) -> tuple[dict[str, Any], str, float]:
        """The page; its change, written once for all watchers; and for how long that computed.

        Waiting for a driver is free.
        """
        began_s = time.thread_time()
        page = page_of(replace(self.watched.look(), actions=self.actions))
        if time.monotonic() < self.whole_s + _WHOLE_INTERVAL_S:
            page = calmed(self.page, page)
        else:
            self.whole_s = time.monotonic()
        change = difference(self.page, page)
        return page, _event(change) if change else "", time.thread_time() - began_s

    def end(self) -> None:
        """Nobody is told anything more."""
        for queue in self.watchers:
            queue.put_nowait(None)

    async def run(self) -> None:
        """Refresh while somebody watches."""
        while True:
            await self.is_wanted.wait()
            await self.refresh()
            await asyncio.sleep(_INTERVAL_S)

    async def changes(self) -> AsyncIterator[str]:
        """The page, and then its changes, as server-sent events."""
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        await self.refresh()
        yield _event(self.page)
        self.watchers.add(queue)
        self.is_wanted.set()
        try:
            while True:
                try:
                    change = await asyncio.wait_for(queue.get(), _KEEP_ALIVE_S)
                except TimeoutError:
                    yield ": nothing new\n\n"
                    continue
                if change is None:
                    return
                yield change
        finally:
            self.watchers.discard(queue)
            if not self.watchers:
                self.is_wanted.clear()


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


class _Guard:
    """Refuses whoever may not look, and gives every answer the headers that browsers heed."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from starlette.requests import Request

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [(k.encode(), v.encode()) for k, v in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *given]}
            await send(message)

        request = Request(scope, receive)
        refusal = self._access.refusal(request)
        app = self._app
        if refusal is not None:
            app = JSONResponse({"error": refusal[1]}, refusal[0])
        elif self._access.token and "token" in request.query_params:
            app = _with_cookie(self._access)
        await app(scope, receive, send_guarded)


def _with_cookie(access: Access) -> Response:
    """To the page without the token in its address, where it could be seen."""
    answer = RedirectResponse("/", 303)
    answer.set_cookie(
        _COOKIE, access.token, httponly=True, samesite="strict", secure=access.is_tls, path="/"
    )
    return answer


def make_app(watched: Watched, access: Access) -> Starlette:
    """The application that shows one query; `state.end()` ends what it sends, from any thread."""
    board: list[Board] = []

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        board.append(Board(watched, access.actions))
        app.state.end = partial(asyncio.get_running_loop().call_soon_threadsafe, board[0].end)
        task = asyncio.create_task(board[0].run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def events(_: Request) -> Response:
        return StreamingResponse(board[0].changes(), media_type="text/event-stream")

    async def page(_: Request) -> Response:
        await board[0].refresh()
        return JSONResponse(board[0].page)

    async def rows(request: Request) -> Response:
        try:
            stream = request.query_params.get("stream", "")
            found = await run_in_threadpool(watched.rows, stream)
        except (HoldfastError, StorageError) as error:
            return JSONResponse({"error": str(error)}, 404)
        return JSONResponse(found)

    async def act(request: Request) -> Response:
        action = request.path_params["action"]
        if action not in access.actions:
            said = f"{action} is not allowed here; start the view with --allow-actions"
            return JSONResponse({"error": said}, 403)
        body = await _json(request)
        if body is None or not isinstance(body.get("target"), str):
            return JSONResponse({"error": 'send {"target": UNIT} as application/json'}, 400)
        try:
            return JSONResponse(await run_in_threadpool(watched.act, action, body["target"]))
        except (HoldfastError, StorageError) as error:
            return JSONResponse({"error": str(error)}, 409)

    routes = [
        *asset_routes(),
        Route("/events", events),
        Route("/page.json", page),
        Route("/rows", rows),
        Route("/actions/{action}", act, methods=["POST"]),
    ]
    guard = Middleware(_Guard, access=access)
    app = Starlette(routes=routes, lifespan=life, middleware=[guard])
    return app


def make_server(app: Starlette, certificate: str | None, key: str | None) -> uvicorn.Server:
    """What serves an application. Raises `OSError` if certificate or key are none."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=1,
    )
    config.load()
    return uvicorn.Server(config)


def asset_routes() -> list[Route]:
    """The page itself, its style, its script and its icon."""
    return [Route(f"/{name}", _asset(*of)) for name, of in _ASSETS.items()]


def _asset(name: str, kind: str) -> Callable[[Request], Any]:
    content = resources.files("holdfast.view").joinpath("assets", name).read_bytes()

    async def serve(_: Request) -> Response:
        return Response(content, media_type=kind)

    return serve


async def _json(request: Request) -> dict[str, Any] | None:
    """The body, if it is a small JSON object and says so."""
    if request.headers.get("content-type") != "application/json":
        return None
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _BODY_BYTES_MAX:
            return None
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def new_token() -> str:
    """One that nobody guesses."""
    return secrets.token_urlsafe(24)


def hosts_of(addresses: Sequence[str], port: int) -> tuple[str, ...]:
    """The values of `Host` by which a view at these addresses is asked for."""
    bracketed = (f"[{one}]" if ":" in one else one for one in addresses)
    return tuple(f"{one}:{port}" for one in bracketed)
