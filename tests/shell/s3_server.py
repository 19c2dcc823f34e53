"""An S3 server of its own for a test: moto's, in another process, on the loopback interface."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest

from holdfast_chaos.ports import Server, accepts, free_port, wait_until

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run the server; what the environment must say so that fsspec finds it."""
    with tempfile.TemporaryDirectory() as folder:
        log, port = Path(folder, "log"), 0

        def launch() -> subprocess.Popen[bytes]:
            nonlocal port
            port = free_port()
            command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
            with log.open("ab") as out:
                environment = {**os.environ, **ENVIRONMENT}
                return subprocess.Popen(command, env=environment, stdout=out, stderr=out)

        server = Server("S3 server", log, launch)
        try:
            wait_until(lambda: accepts(port), [server], "the S3 server", 300)
            yield {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
        finally:
            server.kill()
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
