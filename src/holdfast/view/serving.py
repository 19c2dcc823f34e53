"""Starts and stops the server of a view, in a thread of its own."""

from __future__ import annotations

import errno
import os
import socket
import threading
from typing import TYPE_CHECKING, Final

from holdfast.errors import OptionError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import uvicorn
    from starlette.applications import Starlette

    from holdfast.view.watching import Watched

PORT: Final = 4711
LOOPBACK: Final = "127.0.0.1"
_NAMES_OF_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_JOIN_S: Final = 0.1


class View:
    """A view that is being served.

    Attributes:
        url: Where to look at it. Elsewhere than on this machine it holds the token.
        at_stop: Called, and forgotten, when it is stopped.
    """

    def __init__(self, server: uvicorn.Server, app: Starlette, listening: socket.socket, url: str):
        """Use `serve`."""
        self.url = url
        self.at_stop: list[Callable[[], None]] = []
        self._app = app
        self._server = server
        self._thread = threading.Thread(
            target=lambda: server.run(sockets=[listening]), name="holdfast-view", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Serve no more; the port is free when this returns."""
        while self.at_stop:
            self.at_stop.pop()()
        self._server.should_exit = True
        while self._thread.is_alive():
            if self._server.started:
                self._app.state.end()  # Whoever comes meanwhile, too.
            self._thread.join(_JOIN_S)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it is stopped, at most so long; whether it is."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _repr_html_(self) -> str:
        """A link, in a notebook."""
        return f'<a href="{self.url}">{self.url}</a>'


def serve(
    watched: Watched,
    *,
    port: int = PORT,
    address: str = LOOPBACK,
    certificate: str | None = None,
    key: str | None = None,
    allow_actions: bool = False,
) -> View:
    """Serve the view of a query.

    Args:
        watched: The query.
        port: 0 takes any free one; `url` of the answer has it.
        address: Where to listen. Elsewhere than at loopback TLS is needed; the view then makes up a
            token, which `url` holds.
        certificate: For TLS, a file in PEM format.
        key: Its key, likewise.
        allow_actions: Whether the page may kill, promote and stop.

    Raises:
        UnsupportedError: starlette or uvicorn is not installed.
        OptionError: The port is taken or none, the address is not this machine's, TLS is needed,
            or the files do not fit.
    """
    try:
        from holdfast.view.server import ACTIONS, Access, hosts_of, make_app, make_server, new_token
    except ImportError as error:
        raise UnsupportedError(
            "the view needs starlette and uvicorn: pip install 'holdfast-streaming[view]'"
        ) from error
    is_loopback, is_tls = address in _NAMES_OF_LOOPBACK, certificate is not None
    if not is_loopback and not is_tls:
        raise OptionError(
            f"a view at {address} can be reached from elsewhere: give it a certificate and its key "
            f"for TLS, or serve it at {LOOPBACK} and reach it through ssh -L"
        )
    if key is not None and certificate is None:
        raise OptionError(f"the key {key} is of no use without its certificate")
    for file in (certificate, key):
        if file is not None and not os.path.isfile(file):
            raise OptionError(f"there is no file {file}; TLS needs a certificate and its key")
    listening = _listen(address, port)
    port = listening.getsockname()[1]
    names = _NAMES_OF_LOOPBACK if is_loopback else (address, socket.getfqdn(), socket.gethostname())
    token = "" if is_loopback else new_token()
    actions = ACTIONS if allow_actions else ()
    access = Access(hosts_of(names, port), token, is_tls, actions)
    app = make_app(watched, access)
    try:
        server = make_server(app, certificate, key)
    except OSError as error:
        listening.close()
        files = " and ".join(file for file in (certificate, key) if file)
        raise OptionError(f"{files}: no certificate with its key: {error}") from error
    named = f"[{address}]" if ":" in address else address
    query = f"?token={token}" if token else ""
    url = f"{'https' if is_tls else 'http'}://{named}:{port}/{query}"
    return View(server, app, listening, url)


def why_not_there(error: OSError | OverflowError) -> str:
    """Why nothing can listen at an address and a port, and what to do."""
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return "another program has that port; name another one, or 0 for any that is free"
    if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    return str(error)


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family)
    except (OSError, OverflowError) as error:
        why = why_not_there(error)
        raise OptionError(f"the view cannot be served at {address}:{port}: {why}") from error
