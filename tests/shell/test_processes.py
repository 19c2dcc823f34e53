"""What a process asks of the kernel, in children of the test."""

from __future__ import annotations

import os
import platform
import resource
import threading
from pathlib import Path

import pytest

from holdfast.shell.processes import begin_session, keep_freed_memory

_AUTOGROUP = Path("/proc/self/autogroup")


def said_in_a_session(niceness: int) -> tuple[bool, int, str]:
    """Whether the child has a session of its own, its niceness, and that of the session."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        begin_session(niceness)
        for thread in threading.enumerate():
            if thread.name == "niceness":
                thread.join()
        group = _AUTOGROUP.read_text().split()[-1] if _AUTOGROUP.exists() else ""
        has_own = os.getsid(0) == os.getpid()
        os.write(writer, f"{has_own:d} {os.getpriority(os.PRIO_PROCESS, 0)} {group}".encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        has_own, niceness, *group = pipe.read().decode().split()
    os.waitpid(child, 0)
    return bool(int(has_own)), int(niceness), "".join(group)


def test_a_session_of_its_own_is_as_nice_as_asked() -> None:
    has_own, niceness, group = said_in_a_session(7)
    assert has_own
    assert niceness == 7
    assert group in ("7", "")


def test_a_wish_that_comes_too_soon_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    write, refusals = Path.write_text, [BlockingIOError(), BlockingIOError()]

    def busy(path: Path, text: str) -> int:
        if refusals:
            raise refusals.pop()
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", busy)
    assert said_in_a_session(3)[2] in ("3", "")


def test_with_zero_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "setpriority", lambda *_: os._exit(1))
    before = os.getpriority(os.PRIO_PROCESS, 0)
    has_own, niceness, group = said_in_a_session(0)
    assert (has_own, niceness) == (True, before)
    assert group in ("0", "")


def test_a_privilege_that_is_not_had_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "setpriority", refused)
    monkeypatch.setattr(Path, "write_text", refused)
    assert said_in_a_session(-5)[0]


def faults_of_second_use(megabytes: int) -> int:
    """Pages that the kernel brings when a child of the test needs so much memory again."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        keep_freed_memory()
        faults = 0
        for _ in range(2):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            pieces = [bytearray(1 << 20) for _ in range(megabytes)]
            del pieces
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        os.write(writer, str(faults).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        faults = int(pipe.read())
    os.waitpid(child, 0)
    return faults


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's allocator")
def test_freed_memory_is_kept_up_to_a_bound() -> None:
    pages = (64 << 20) // resource.getpagesize()
    assert faults_of_second_use(64) < pages / 10
    assert faults_of_second_use(512) > pages
