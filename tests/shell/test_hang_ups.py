"""PySpark's server of accumulators: a connection that ends is passed over, an error is not."""

import socketserver
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.shell.spark.hang_ups import pass_over_hang_ups


class Failing(socketserver.BaseRequestHandler):
    error: type[Exception] = EOFError

    def handle(self) -> None:
        raise self.error


@pytest.mark.parametrize(("error", "is_printed"), [(EOFError, False), (ValueError, True)])
def test_only_the_end_of_a_connection_is_passed_over(
    error: type[Exception], is_printed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = type("Handler", (Failing,), {"error": error})
    with socketserver.TCPServer(("127.0.0.1", 0), handler) as server:
        context: Any = SimpleNamespace(_accumulatorServer=server)
        pass_over_hang_ups(context)
        pass_over_hang_ups(context)  # As every query of a session does.
        try:
            handler(None, ("127.0.0.1", 1), server)
        except Exception:
            server.handle_error(None, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) is is_printed
