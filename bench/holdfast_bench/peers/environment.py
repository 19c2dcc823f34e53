"""A virtual environment per peer, made once, so that no peer is a dependency of the package."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_TIMEOUT_S = 1800.0
_SAID_MAX = 600


class NoPeer(Exception):
    """A peer cannot be had here; the message says why."""


def environment(name: str, requirements: tuple[str, ...], cache: Path) -> Path:
    """The Python of an environment with exactly these requirements, installed on first use.

    Args:
        name: Of the peer.
        requirements: Pinned, as pip takes them; none means the Python that runs this.
        cache: Folder for all environments.

    Raises:
        NoPeer: pip could not install them; the message has its last words.
    """
    if not requirements:
        return Path(sys.executable)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = hashlib.sha256(" ".join((version, *requirements)).encode()).hexdigest()[:12]
    folder = cache.absolute() / f"{name}-{wanted}"
    python, is_whole = folder / "bin" / "python", folder / "installed"
    if is_whole.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _run([sys.executable, "-m", "venv", str(folder)], name)
    _run([str(python), "-m", "pip", "install", "--quiet", *requirements], name)
    is_whole.touch()
    return python


def _run(command: list[str], name: str) -> None:
    # What the caller's Python imports from elsewhere has no place in the new environment.
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=clean, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPeer(f"{name} cannot be installed: {error}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-_SAID_MAX:]
        raise NoPeer(f"{name} cannot be installed: {said}")
