"""An S3 server of its own for a test: moto's, in another process, on the loopback interface."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import fsspec
import pytest

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run the server; what the environment must say so that fsspec finds it."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(
        command,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, server)
        yield {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    finally:
        server.terminate()
        server.wait(20)
        _forget()


@contextmanager
def s3_place(bucket: str) -> Iterator[str]:
    """A bucket of a server of its own, for this process; a test without moto or s3fs is skipped."""
    for needed in ("moto", "s3fs"):
        pytest.importorskip(needed)
    with pytest.MonkeyPatch.context() as patch, s3_server() as environment:
        for name, value in environment.items():
            patch.setenv(name, value)
        fsspec.filesystem("s3").mkdir(bucket)
        yield f"s3://{bucket}"


def _forget() -> None:
    """fsspec keeps file systems: the next server of this process would never be asked."""
    with contextlib.suppress(ImportError):
        from s3fs import S3FileSystem

        S3FileSystem.clear_instance_cache()


def _wait_for(port: int, server: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the S3 server did not come up")
