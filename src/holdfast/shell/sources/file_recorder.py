"""Makes users' files part of a stream, one listing after the other; runs in the driver.

A file is named by a commit of an ingest log, with what it says of time; its rows stay where they
are, and nodes read them there. The commit is created exclusively, so that of two drivers whose
lives overlap one has made it, and the other goes on behind it.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.core.model.ids import BEGINNING_US
from holdfast.core.model.tuples import EARLIEST_US
from holdfast.core.queues.file_discovery import FileDiscovery
from holdfast.core.queues.lateness import FileTimes, FileTimesMaker
from holdfast.core.queues.recording import Following, IngestFile, UserFile
from holdfast.shell.storage.commit_store import CommitStore
from holdfast.shell.storage.errors import StorageError
from holdfast.shell.storage.folder_watch import FolderWatch
from holdfast.shell.storage.ingest_log import (
    IngestMeta,
    commit,
    has_ended,
    prepare,
    tell_idle,
)
from holdfast.shell.storage.paths import ingest_path
from holdfast.shell.storage.places import is_remote, local_path
from holdfast.shell.storage.user_files import UserFileChanged, list_files
from holdfast.shell.storage.user_records import user_rows, user_times
from holdfast.shell.storage.user_rows import DEAD, BadRow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.core.queues.file_discovery import ListedFile
    from holdfast.core.queues.recording import Commit

BY: Final = "files"
"""Who numbers commits that name users' files."""
_LOOK_S: Final = 0.05
_REMOTE_LOOK_S: Final = 0.5
_FILES_MAX: Final = 1_000
"""Of one commit, as of a micro-batch of Spark's."""
_THREADS: Final = 4
_CHANGED: Final = "changed"


@dataclass(frozen=True, slots=True)
class FilesSource:
    """What a source step says of users' files.

    Attributes:
        place: A folder, a file or a glob; a path, or a URL.
        meta: What holds for the whole stream.
        ends: Whether what is there at the first start is all.
        is_available_now: Whether a run reads what is there, and a later one goes on behind it.
        has_watermark: Whether what is late is told as by Spark's watermark, which has milliseconds.
        files_max: Of one commit.
        more_places: Others like `place`, none of which holds a file of another one.
    """

    place: str
    meta: IngestMeta
    ends: bool = False
    is_available_now: bool = False
    has_watermark: bool = False
    files_max: int = _FILES_MAX
    more_places: tuple[str, ...] = ()

    def listed(self) -> list[ListedFile]:
        """The files that there are now. Raises `UserFileError` if a place cannot be listed."""
        places = (self.place, *self.more_places)
        return [found for place in places for found in list_files(place)]

    def columns(self) -> tuple[str, ...]:
        """What the stream has of the log's columns, as expressions."""
        return tuple(f"`{name}`" for name in self.meta.schema.names if name not in DEAD.names)

    def __str__(self) -> str:
        """For the dataflow's description."""
        assert self.meta.user_files is not None
        options = "".join(f" {name}={value}" for name, value in self.meta.user_files.options)
        return f"{self.meta.user_files.name} {self.place}{options}{' that ends' * self.ends}"


class FileRecorder:
    """One source of users' files on its way into its ingest log; has what `Ingest` has."""

    def __init__(self, name: str, source: FilesSource, location: str) -> None:
        """Nothing happens before `start`."""
        self.name = name
        self.way = f"nodes read the files of {', '.join((source.place, *source.more_places))}"
        self.is_paced = False
        self._source = source
        self._path = ingest_path(location, name)
        self._discovery = FileDiscovery()
        self._following = Following()
        self._newest_us = EARLIEST_US  # of all commits
        self._error: str | None = None
        self._is_stopping = threading.Event()
        self._is_over = False  # Nobody looks any more, or did so in this life.
        self._looks = 0
        self._looked = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def error(self) -> str | None:
        """Why no more files can be recorded, or None."""
        return self._error

    @property
    def has_ended(self) -> bool:
        """Whether nothing will follow in its log."""
        return has_ended(self._path)

    @property
    def is_streaming(self) -> bool:
        """Whether files may come later."""
        return not self._source.ends

    @property
    def is_unbounded(self) -> bool:
        """Whether rows may come for as long as the query runs."""
        return self.is_streaming and not self.is_available_now

    @property
    def is_available_now(self) -> bool:
        """Whether it reads what there is, and a later run goes on behind that."""
        return self._source.is_available_now

    def start(self, spark: SparkSession) -> None:
        """Begin, in a thread of its own; Spark is not needed."""
        del spark
        prepare(self._path, self._source.meta)
        if self.has_ended:
            self._is_over = True
            return
        self._thread = threading.Thread(target=self._run, name=f"files-{self.name}", daemon=True)
        self._thread.start()

    def process_all_available(self) -> None:
        """Wait until all files are recorded that are there now."""
        if not self.is_unbounded:
            self.wait()
            return
        with self._looked:
            wanted = self._looks + 2  # The look that goes on may have begun before.
            self._looked.wait_for(lambda: self._looks >= wanted or self._is_over)

    def wait(self) -> None:
        """Wait until what is bounded has been recorded."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Record no more."""
        self._is_stopping.set()
        self.wait()

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            store = CommitStore(self._path)
            watch = self._watch()
            try:
                self._begin(store)
                self._record_all(store, watch)
            finally:
                store.close()
                if watch is not None:
                    watch.close()
        except (StorageError, OSError) as error:
            self._error = f"source {self.name}: {error}"
        except Exception as error:  # Clients of remote stores raise what they like; none is silent.
            self._error = f"source {self.name}: {type(error).__name__}: {error}"
        with self._looked:
            self._is_over = True
            self._looked.notify_all()

    def _record_all(self, store: CommitStore, watch: FolderWatch | None) -> None:
        while not self._is_stopping.is_set():
            has_more = self._look(store)
            if has_more:
                continue
            with self._looked:
                self._looks += 1
                self._looked.notify_all()
            if not self.is_unbounded:
                return
            self._pause(watch)

    def still_there(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Which of some files there still are; the others are not known any more.

        From any thread. One that comes back later under its path is read again.
        """
        listed = {found.file.path for found in self._source.listed()}
        self._discovery.forget(path for path in paths if path not in listed)
        return tuple(path for path in paths if path in listed)

    def _begin(self, store: CommitStore) -> None:
        """Know what the commits had recorded that are not kept any more."""
        beginning = store.beginning()
        if beginning is not None:
            self._following = Following(beginning.first_commit)
            self._newest_us = max(self._newest_us, beginning.newest_us)
            for path in beginning.known:
                self._discovery.passed(path)

    def _catch_up(self, store: CommitStore) -> None:
        """Take all commits there are, whoever made them."""
        while (found := store.next_commit(self._following)) is not None:
            self._took(found)

    def _took(self, found: Commit) -> None:
        self._discovery.recorded(found)
        self._newest_us = max([self._newest_us, *(file.max_time_us for file in found.files)])

    def _look(self, store: CommitStore) -> bool:
        """Record new files, the first ones of many; whether there may be more."""
        self._catch_up(store)
        if self._following.ended:
            return False
        most = sys.maxsize if self._source.ends else self._source.files_max
        new = self._discovery.next_files(self._source.listed(), most)
        with ThreadPoolExecutor(_THREADS) as pool:
            described = list(pool.map(self._described, new))
        files = self._timed([found for found in described if isinstance(found, IngestFile)])
        is_last = self._source.ends and _CHANGED not in described
        if files or is_last:
            number = self._following.next_number
            mark_us = self._watermark_us
            commit(self._path, number, files, by=BY, watermark_us=mark_us, ends=is_last)
        elif not new and self._watermark_us is not None:
            tell_idle(self._path, self._following.next_number - 1, self._watermark_us)
        return bool(new)

    @property
    def _watermark_us(self) -> int | None:
        """To which Spark's watermark would have come by the commits so far; None: it has none."""
        if not self._source.has_watermark:
            return None
        return max(0, self._newest_us // 1_000 * 1_000 - self._source.meta.delay_us)

    def _timed(self, files: list[IngestFile]) -> tuple[IngestFile, ...]:
        """Files of which no row has a time have that of the stream: they must not be late."""
        us = max([self._newest_us, *(file.max_time_us for file in files)])
        return tuple(
            replace(file, min_time_us=us, max_time_us=us)
            if file.max_time_us == BEGINNING_US
            else file
            for file in files
        )

    def _described(self, file: UserFile) -> IngestFile | str | None:
        """What a commit says of a file; None: it holds no rows; `_CHANGED`: it is not what was
        listed, and the next look will find what it is now.
        """
        now_us = int(time.time() * 1e6)
        times = FileTimesMaker(self._source.meta.ahead_us, now_us)
        good = bad = 0
        try:
            said = user_times(self._source.meta, file, now_us)
            if said is not None:
                span = said.oldest_us, said.newest_us, said.disorder_us
                return IngestFile(file.path, said.count, *span, (), file)
            for found in user_rows(self._source.meta, file, ()):
                for rows in found.parts:
                    if isinstance(rows, BadRow):
                        bad += 1
                    elif rows.num_rows:
                        times.add(rows.column(rows.num_columns - 1).to_numpy())
                        good += rows.num_rows
        except UserFileChanged:
            return _CHANGED
        if not good + bad:
            self._discovery.passed(file.path)
            return None
        if not good:
            return IngestFile(file.path, bad, BEGINNING_US, BEGINNING_US, 0, (), file)
        if bad:
            times.add(np.full(bad, times.made().newest_us))
        made = times.made()
        span = made.oldest_us, made.newest_us, _disorder_us(made, has_bad=bad > 0)
        return IngestFile(file.path, made.count, *span, made.spans, file)

    def _watch(self) -> FolderWatch | None:
        place = local_path(self._source.place)
        return None if is_remote(place) or not os.path.isdir(place) else FolderWatch(place)

    def _pause(self, watch: FolderWatch | None) -> None:
        """Until a file comes to the folder, or for a while: others come to partitions' folders."""
        wait_s = _REMOTE_LOOK_S if is_remote(self._source.place) else _LOOK_S
        if watch is None or watch.fileno() < 0:
            self._is_stopping.wait(wait_s)
            return
        ready = select.poll()  # Where many files are open, select() takes no more.
        ready.register(watch.fileno(), select.POLLIN)
        ready.poll(wait_s * 1000)
        watch.clear()


def _disorder_us(times: FileTimes, *, has_bad: bool) -> int:
    """How far a row is older than one before it, at most; bad ones are as new as the newest."""
    return times.newest_us - times.oldest_us if has_bad else times.disorder_us
