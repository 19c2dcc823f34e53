"""Files that are made under a name of their own, and get the one that counts when they are whole.

A process that is killed meanwhile leaves its draft behind. Whoever writes one holds a lock on it,
of which the kernel lets go when the process dies; so whoever uses the folder next can tell drafts
that nobody will finish, and deletes them. Where a file system has no such locks they stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.shell.storage.paths import sync_path
from holdfast.shell.storage.rights import create_file, make_folder

FOLDER: Final = ".drafts"


class Drafts:
    """The drafts of one store, in a folder of their own beneath its root."""

    def __init__(self, root: Path) -> None:
        """Nothing is looked at before the first draft is made."""
        self._folder = root / FOLDER
        self._is_swept = False

    @contextlib.contextmanager
    def new(self) -> Iterator[Draft]:
        """A new one, empty; gone afterwards unless it was published. Raises `OSError`."""
        self._sweep()
        while True:
            draft = Draft(self._folder / uuid.uuid4().hex)
            with contextlib.closing(draft):
                try:
                    draft.file = create_file(draft.path, os.O_WRONLY)
                except FileNotFoundError:
                    make_folder(self._folder)
                    continue
                if draft.is_ours():
                    yield draft
                    return

    @contextlib.contextmanager
    def of(self, path: Path) -> Iterator[Draft | None]:
        """One of a file that is there, which loses its name; None: somebody else has taken it."""
        self._sweep()
        with contextlib.closing(Draft(self._folder / uuid.uuid4().hex)) as draft:
            try:
                path.rename(draft.path)  # Of many who try, one succeeds.
                flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                draft.file = os.open(draft.path, flags)
            except OSError:  # There is none, or it is a link, or no draft was ever made here.
                yield None
                return
            yield draft if draft.is_ours() else None

    def _sweep(self) -> None:
        """Delete those of processes that are no more, once in a store's life."""
        if self._is_swept:
            return
        self._is_swept = True
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                _delete_if_dead(self._folder / name)


class Draft:
    """A file on its way to its name."""

    def __init__(self, path: Path) -> None:
        """Nothing is open yet."""
        self.path = path
        self.file = -1

    def is_ours(self) -> bool:
        """Lock it; False: whoever sweeps has taken it for a dead process's, and deletes it."""
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # There are no locks here, and so nobody who sweeps.
            return True
        return os.fstat(self.file).st_nlink > 0

    def publish(self, path: Path) -> None:
        """Give it its name, durably. Raises `FileExistsError`, or another `OSError`."""
        os.link(self.path, path)
        self.path.unlink()
        sync_path(path.parent)

    def close(self) -> None:
        """Delete it, unless it has another name."""
        self.path.unlink(missing_ok=True)
        if self.file >= 0:
            os.close(self.file)


def _delete_if_dead(path: Path) -> None:
    with contextlib.suppress(OSError):  # Somebody works on it, or it is gone.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(file)
