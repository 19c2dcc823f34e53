"""Who may read and write what lies below a location: whoever may its folder.

What is made there has its parent's rights, whatever the umask says, so that the folder alone
decides: a location that is made is its user's alone, unless `spark.holdfast.locationMode` says
otherwise.
"""

from __future__ import annotations

import errno
import logging
import os
import pwd
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.errors import OptionError
from holdfast.shell.storage.errors import PlaceForbidden, StorageError

_LOG = logging.getLogger(__name__)
_RIGHTS: Final = 0o777
_OTHERS: Final = 0o077
_GROUP_WRITES: Final = 0o020
_OF_FILES: Final = 0o666
_FORBIDDEN: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_OWN_NAMES: Final = frozenset(
    (
        *(
            "coordinator",
            "ingest",
            "ingest-checkpoints",
            "streams",
            "feeds",
            "footprints",
            "kafka",
            "metrics",
            "requests",
            "passes",
            "rounds",
            "view",
        ),
        *("chunks", "spill", "checkpoint", "dataflow.txt", "location.id", "lock"),
        *("measurements.json", "operators.json", "sinks.json", ".spare", ".drafts"),
    )
)


def mode_of(digits: int) -> int:
    """The rights that a setting's three octal digits name, as `chmod` takes them.

    Raises:
        OptionError: They are none, or would keep the owner out.
    """
    text = str(digits)
    if len(text) != 3 or any(digit not in "01234567" for digit in text) or text[0] != "7":
        raise OptionError(
            f"spark.holdfast.locationMode={digits}; it is what chmod takes, e.g. 700: this user "
            "alone, 750: the group reads, 770: the group writes too"
        )
    return int(text, 8)


def open_location(path: str, mode: int) -> None:
    """Make a checkpoint location if need be, with these rights; it can be written then.

    A folder in which there is anything else is not this query's alone, and stays as it is.

    Raises:
        PlaceForbidden: This user may not write there.
        StorageError: There is a file, or it cannot be made.
    """
    rights = mode | stat.S_ISGID if mode & _GROUP_WRITES else mode
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, mode & ~_OTHERS)
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if found.st_mode & _RIGHTS != mode:
            _grant(path, found, rights)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    except (NotADirectoryError, FileExistsError) as error:
        raise StorageError(
            f"{error.filename or path} is no folder, so that nothing can be kept in it: choose "
            "another checkpointLocation, or remove it"
        ) from error
    except OSError as error:
        raise storage_error(error, path) from error


def _grant(path: str, found: os.stat_result, rights: int) -> None:
    if found.st_uid == os.geteuid() and all(map(_is_own, os.listdir(path))):
        os.chmod(path, rights)
    elif found.st_mode & _OTHERS & ~rights:
        _LOG.warning(
            "%s holds other files too, or is another user's, and stays as it is: others may read "
            "what the query keeps there (chmod %o)",
            path,
            rights & _RIGHTS,
        )


def _is_own(name: str) -> bool:
    """Of what lies in a location, or of a folder there that was being made."""
    return name in _OWN_NAMES or name.removeprefix(".").partition("~")[0] in _OWN_NAMES


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder, and those that lead to it, with the rights of the first that was there.

    Raises:
        OSError: It cannot be made.
    """
    folder = Path(path)
    if folder.is_dir():
        return
    make_folder(folder.parent)
    rights = stat.S_IMODE(os.stat(folder.parent).st_mode) & ~stat.S_ISVTX
    if rights & (_OTHERS | stat.S_ISGID):
        _make_shared(folder, rights | 0o700)
    else:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def _make_shared(folder: Path, rights: int) -> None:
    """Its name appears together with its rights: files in it get theirs from it, at any time."""
    draft = folder.parent / f".{folder.name}~{os.getpid()}-{threading.get_ident()}"
    with suppress(FileExistsError):
        os.mkdir(draft, 0o700)
    os.chmod(draft, rights)
    try:
        os.rename(draft, folder)
    except OSError:  # Somebody else has made it.
        os.rmdir(draft)


def create_file(path: str | os.PathLike[str], flags: int) -> int:
    """Create a file to write, exclusively, with the rights of its folder. Raises `OSError`.

    Its name appears together with its rights, where the file system can do that: whoever is killed
    meanwhile leaves no file that the others who share the folder cannot read.
    """
    place = os.path.abspath(path)
    rights = stat.S_IMODE(os.stat(os.path.dirname(place)).st_mode) & _OF_FILES
    if rights & _OTHERS:
        with suppress(CannotName):
            return _create_shared(place, flags, rights | 0o600)
    file = os.open(place, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    if rights & _OTHERS:
        os.fchmod(file, rights | 0o600)
    return file


class CannotName(Exception):
    """The file system has no files without a name, or cannot give them one later."""


def _create_shared(place: str, flags: int, rights: int) -> int:
    file = unnamed_file(os.path.dirname(place), flags, 0o600)
    try:
        os.fchmod(file, rights)
        give_name(file, place)
    except BaseException:
        os.close(file)
        raise
    return file


def unnamed_file(folder: str, flags: int, rights: int) -> int:
    """Open a new file in a folder; nobody finds it before `give_name`, and it is gone if closed.

    Raises:
        CannotName: The file system has none, or there is no such folder.
    """
    try:
        return os.open(folder, flags | os.O_TMPFILE | os.O_CLOEXEC, rights)
    except OSError as error:
        raise CannotName from error


def give_name(file: int, place: str) -> None:
    """Have a file without a name appear under one, as it is now.

    Raises:
        CannotName: The file system cannot.
        FileExistsError: Somebody has the name.
    """
    try:
        # With a folder named, the call follows the link that /proc shows for the open file.
        os.link(f"/proc/self/fd/{file}", place, src_dir_fd=file, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError as error:
        raise CannotName from error


def storage_error(
    error: OSError, path: str | os.PathLike[str], cure: str = PlaceForbidden.CURE
) -> StorageError:
    """What went wrong with a file that is nobody's damage: named, and with its cure.

    Args:
        error: As it was met.
        path: The file, if the error names none.
        cure: What helps, besides giving the place to this user, if it was forbidden.
    """
    place = error.filename or os.fspath(path)
    if error.errno in _FORBIDDEN:
        return PlaceForbidden(place, error.strerror or str(error), _user(), _owner(place), cure)
    return StorageError(f"{place}: {error.strerror or error}")


def is_forbidden(error: BaseException) -> bool:
    """Whether the user has not the right to do it, so that it is no use to try again."""
    return isinstance(error, OSError) and error.errno in _FORBIDDEN


def _user() -> str:
    return _named(os.geteuid())


def _owner(place: str | bytes) -> str:
    """Whose the nearest folder is, and with which rights."""
    path = Path(os.fsdecode(place))
    for folder in (path, *path.parents):
        with suppress(OSError):
            found = os.stat(folder)
            return f"{folder} is {_named(found.st_uid)}'s, mode {stat.S_IMODE(found.st_mode):o}"
    return "nobody knows whose it is"


def _named(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
