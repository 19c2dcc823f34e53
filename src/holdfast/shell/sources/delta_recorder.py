"""Makes a Delta table part of a stream: the rows it holds, and then those of each new version.

A commit of the ingest log names the files that a version adds, and the version itself. So a restart
goes on behind the newest version that was recorded. The files are read where they lie; one that was
removed since, as by a vacuum, fails the query by name.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import fsspec

from holdfast.core.queues.recording import IngestFile, UserFile
from holdfast.core.queues.table_versions import (
    AddedFile,
    RowsTakenBack,
    TableUnfit,
    added_files,
    require_features,
    require_settings,
)
from holdfast.shell.sources.file_recorder import BY, FileRecorder, FilesSource
from holdfast.shell.storage.ingest_log import commit
from holdfast.shell.storage.places import is_remote, local_path, whole_place
from holdfast.shell.storage.user_files import UserFileChanged, UserFileError, list_files
from holdfast.shell.stores.file_system import modified_s

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from holdfast.core.queues.recording import Commit
    from holdfast.shell.storage.commit_store import CommitStore

_ORIGIN: Final = "version "
_LOG: Final = "_delta_log"
_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class DeltaSource(FilesSource):
    """What a source step says of a Delta table.

    Attributes:
        start_version: The first version whose changes are read; None: all rows that the table has
            at the first start, and then the changes.
        start_ms: The same by the time of versions, in milliseconds since 1970.
    """

    start_version: int | None = None
    start_ms: int | None = None

    def __str__(self) -> str:
        """For the dataflow's description."""
        begin = ""
        if self.start_version is not None:
            begin = f" from version {self.start_version}"
        elif self.start_ms is not None:
            begin = f" from {self.start_ms} ms"
        return f"delta {self.place}{begin}{' that ends' * self.ends}"


class DeltaRecorder(FileRecorder):
    """One table on its way into its ingest log."""

    def __init__(self, name: str, source: DeltaSource, location: str) -> None:
        """Nothing happens before `start`."""
        super().__init__(name, source, location)
        self._table = _Table(source)
        self._version: int | None = None  # the newest that was recorded, or had nothing new

    def still_there(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """None need be known: what is new follows from the version."""
        self._discovery.forget(paths)
        return ()

    def _took(self, found: Commit) -> None:
        super()._took(found)
        if found.origin.startswith(_ORIGIN):
            self._version = int(found.origin.removeprefix(_ORIGIN))

    def _look(self, store: CommitStore) -> bool:
        """Record the next version; whether there may be more."""
        self._catch_up(store)
        if self._following.ended:
            return False
        found = self._table.next_version(self._version)
        if found is None:
            return False
        version, new = found
        with ThreadPoolExecutor(_THREADS) as pool:
            described = list(pool.map(self._described, new))
        if any(isinstance(file, str) for file in described):
            raise UserFileChanged(f"a file of {self._table.place} was changed while it was read")
        files = self._timed([file for file in described if isinstance(file, IngestFile)])
        if files or self._source.ends:
            number, origin = self._following.next_number, f"{_ORIGIN}{version}"
            commit(self._path, number, files, by=BY, origin=origin, ends=self._source.ends)
        self._version = version
        return True


class _Table:
    """The versions of a table in a folder, or at a URL."""

    def __init__(self, source: DeltaSource) -> None:
        self._source = source
        self.place = whole_place(source.place)
        if is_remote(self.place):
            self._system, root = fsspec.core.url_to_fs(self.place)
        else:
            self._system, root = fsspec.filesystem("file"), self.place
        self._root = f"{root.rstrip('/')}/{_LOG}"

    def next_version(self, after: int | None) -> tuple[int, list[UserFile]] | None:
        """The next version and the files with its rows; None: there is none yet.

        Args:
            after: The version before it; None: begin.

        Raises:
            UserFileError: The version, or one of its files, is gone; or it is unfit.
        """
        try:
            if after is None:
                begin = self._first_version()
                if begin is None:
                    return self._snapshot()
                after = begin - 1
            version = after + 1
            actions = self._actions(version)
            if actions is None:
                return None
            return version, [self._file(added) for added in added_files(actions)]
        except TableUnfit as error:
            shown = "the newest version" if after is None else f"version {after + 1}"
            cure = ""
            if after is not None and isinstance(error, RowsTakenBack):
                cure = (
                    ". Begin again in a new checkpointLocation: with the rows that the table has "
                    f"now, or behind this version, with start_version={after + 2}"
                )
            raise UserFileError(f"{self.place}: {shown} cannot be read: {error}{cure}") from None

    def _snapshot(self) -> tuple[int, list[UserFile]]:
        """The newest version, and all files that it consists of."""
        from deltalake import DeltaTable

        table = DeltaTable(self.place)
        require_readable(table)
        found = (list_files(path) for path in sorted(map(self._path_of, table.file_uris())))
        files = [listed.file for each in found for listed in each]
        if len(files) != len(table.file_uris()):
            raise UserFileChanged(f"{self.place}: files of version {table.version()} are gone")
        return table.version(), files

    def _first_version(self) -> int | None:
        """Whose changes come first; None: the rows of the newest version do."""
        if self._source.start_version is not None:
            return self._source.start_version
        if self._source.start_ms is None:
            return None
        versions = self._versions()
        for version in versions:
            if self._made_ms(version) >= self._source.start_ms:
                return version
        return versions[-1] + 1

    def _versions(self) -> list[int]:
        """Those that the table's log has."""
        names = (os.path.basename(each["name"]).partition(".") for each in self._log())
        return sorted(int(n) for n, _, kind in names if kind == "json" and n.isdigit())

    def _made_ms(self, version: int) -> int:
        """When a version was made."""
        for action in self._actions(version) or ():
            said = action.get("commitInfo", {})
            if made_ms := said.get("inCommitTimestamp") or said.get("timestamp"):
                return int(made_ms)
        logged = {os.path.basename(each["name"]): each for each in self._log()}
        return int(modified_s(logged[_name(version)]) * 1000)

    def _log(self) -> list[dict[str, Any]]:
        """What lies in the table's log."""
        self._system.invalidate_cache()
        found: list[dict[str, Any]] = self._system.ls(self._root, detail=True)
        return found

    def _path_of(self, uri: str) -> str:
        """Of a file that the table names, as the table is named: others write `s3a` for `s3`."""
        if not is_remote(self.place):
            return local_path(uri)
        scheme, _, rest = uri.partition("://")
        return f"{self.place.partition('://')[0]}://{rest}" if scheme else uri

    def _actions(self, version: int) -> list[dict[str, Any]] | None:
        """What a version does; None: it is not there yet."""
        try:
            content = self._system.cat_file(f"{self._root}/{_name(version)}")
            return [json.loads(line) for line in content.splitlines() if line.strip()]
        except FileNotFoundError:
            pass
        if any(other > version for other in self._versions()):
            raise UserFileChanged(
                f"{self.place}: version {version} is gone from the table's log, and with it "
                "what it changed. Begin again in a new checkpointLocation, at a version that is "
                "there, and keep the log longer (delta.logRetentionDuration)"
            )
        return None

    def _file(self, added: AddedFile) -> UserFile:
        path = f"{self.place}/{unquote(added.path)}"
        found = list_files(path)
        if len(found) != 1 or found[0].file.size_bytes != added.size_bytes:
            what = "is gone" if not found else "was changed"
            raise UserFileChanged(
                f"{path} {what} since it was added to the table, as by a vacuum; begin again in a "
                "new checkpointLocation"
            )
        return found[0].file


def require_readable(table: DeltaTable) -> None:
    """Raise `TableUnfit` if the files of a table, as it is now, must be read in another way.

    What changes that later is an action of a version, which `added_files` refuses.
    """
    require_features(table.protocol().reader_features or ())
    require_settings(table.metadata().configuration)


def _name(version: int) -> str:
    return f"{version:020d}.json"
