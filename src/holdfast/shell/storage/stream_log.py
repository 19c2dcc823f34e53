"""The stream log: an append-only, segmented file log of tuples, readable while it is written.

A log is a folder of segments named `<first id>-<incarnation>.seg`. Each is created exclusively and
appended to by one writer. A writer that opens a log finds its end and begins a new segment there,
which names the owners of the log (core/wire/log_owners.py). So a writer that was replaced without
knowing it can do no harm: nobody reads what it still writes.
"""

from __future__ import annotations

import itertools
import mmap
import os
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from holdfast.core.model.ids import BEGINNING_US, NO_ID, Incarnation
from holdfast.core.model.tuples import TupleType
from holdfast.core.wire import log_records as records
from holdfast.core.wire.log_opening import (
    BeginAt,
    EndsEarly,
    FindEnd,
    LogEnd,
    LookAtOwners,
    OpenAnswer,
    OpenedLater,
    OpenRequest,
    OwnersSeen,
    SinkLacksTuples,
    open_log,
)
from holdfast.core.wire.log_owners import Owner, Owners, Place, live_segments, owners_of
from holdfast.core.wire.log_records import (
    CorruptRecord,
    EncodeRecord,
    Incomplete,
    LogRecord,
    RecordKind,
    SegmentHeader,
    encode_record,
)
from holdfast.core.wire.steps import run
from holdfast.shell.storage.beginnings import first_kept, missing
from holdfast.shell.storage.errors import (
    SchemaMismatch,
    StorageError,
    StreamLogCorrupt,
    WrittenByOther,
)
from holdfast.shell.storage.log_follower import LogFollower
from holdfast.shell.storage.paths import sync_path
from holdfast.shell.storage.rights import create_file, is_forbidden, make_folder, storage_error
from holdfast.shell.storage.segment_headers import has_records, header_of
from holdfast.shell.storage.small_files import open_regular, read_at

SEGMENT_BYTES = 256 << 20
_UNSYNCED_BYTES = 8 << 20
_OVERDUE_BYTES = 128 << 20
"""A segment is durable before the next one begins. That waits for little where it can, so that a
burst does not stand still in its middle; but a segment does not grow for ever."""
_READ_BYTES = 4 << 20
_LIST_INTERVAL_S = 0.05
_SUFFIX = ".seg"


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file and the ids that count in it: [first_id, superseded_from)."""

    path: Path
    first_id: int
    incarnation: int
    superseded_from: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder of segments, as it was found.

    Attributes:
        newest: Incarnation that has begun a segment, or is about to.
        owners: Whose tuples count.
        live: All segments whose tuples count, in order of ids.
        is_settled: Whether nobody was about to begin.
    """

    newest: int
    owners: Owners
    live: list[Segment]
    is_settled: bool


class SegmentFolder:
    """Lists the segments of a folder. What a segment says of the owners is read once."""

    def __init__(self, folder: Path) -> None:
        """The folder need not exist yet."""
        self._folder = folder
        self._said: dict[Place, Owners] = {}

    def listed(self) -> Listing:
        """What is there. Raises `StreamLogCorrupt` if the newest segment's header is damaged."""
        found: dict[Place, Path] = {}
        for name in _names(self._folder):
            first, _, writer = name.removesuffix(_SUFFIX).partition("-")
            if name.endswith(_SUFFIX) and first.isdigit() and writer.isdigit():
                found[(Incarnation(int(writer)), int(first))] = self._folder / name
        owners = owners_of(found, lambda place: self._owners_in(place, found[place]))
        live = [
            Segment(found[place], place[1], place[0], superseded_from)
            for place, superseded_from in live_segments(found, owners).items()
        ]
        newest = max((incarnation for incarnation, _ in found), default=0)
        is_settled = not owners or owners[-1].incarnation == newest
        return Listing(newest, owners, live, is_settled and bool(owners) == bool(found))

    def _owners_in(self, place: Place, path: Path) -> Owners | None:
        """What a segment's header says; None as long as there is none."""
        if place in self._said:
            return self._said[place]
        try:
            header = header_of(path)
            if isinstance(header, CorruptRecord) and has_records(path):
                raise StreamLogCorrupt(str(path), 0, header.reason)
        except FileNotFoundError:  # Trimmed just now.
            return None
        if not isinstance(header, SegmentHeader):
            return None
        self._said[place] = header.owners
        return header.owners


def segments(folder: Path) -> list[Segment]:
    """All segments whose tuples count, in order of ids."""
    return SegmentFolder(folder).listed().live


def _names(folder: Path) -> list[str]:
    """Of all files in a folder; none if there is no folder."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise storage_error(error, folder) from error


def _changed_ns(folder: Path) -> int:
    """When a file came to a folder or left it, by its file system's clock; 0: there is none."""
    try:
        return os.stat(folder).st_mtime_ns
    except FileNotFoundError:
        return 0


class _SegmentReader:
    """Reads the records of one segment from its start.

    A segment that does not change any more is mapped into memory, which takes a third of the time.
    """

    def __init__(self, segment: Segment, *, skips: bool = False, is_finished: bool = False) -> None:
        self.segment = segment
        self._skips = skips
        self._is_finished = is_finished
        self._file = open_regular(segment.path)
        self.offset = 0
        self._buffer: bytes | mmap.mmap = b""
        self._buffer_at = 0
        self.fills = 0  # how often more was read
        self.schema: pa.Schema | None = None
        self.corrupt: CorruptRecord | None = None

    def next(self) -> LogRecord | None:
        """The next record; None at the (present) end, or when `corrupt` has been set."""
        if self.schema is None and not self._read_header():
            return None
        if self.schema is None:
            return None
        needed = records.RECORD_HEADER_BYTES
        while True:
            data = self._window(needed)
            record = records.decode_record(data, None if self._skips else self.schema)
            if isinstance(record, LogRecord):
                self.offset += record.size
                return record
            if isinstance(record, CorruptRecord):
                self.corrupt = record
                return None
            if len(data) < record.needed and not self._fill(record.needed):
                return None
            needed = record.needed

    def _read_header(self) -> bool:
        needed = 4096
        while True:
            data = bytes(self._window(needed)[:needed])
            header = records.decode_segment_header(data)
            if isinstance(header, CorruptRecord):
                self.corrupt = header
                return False
            if isinstance(header, Incomplete):
                if not self._fill(header.needed):
                    return False
                needed = header.needed
                continue
            self.schema = header.schema
            self.offset = header.size
            return True

    def _window(self, needed: int) -> memoryview:
        start = self.offset - self._buffer_at
        if len(self._buffer) - start < needed:
            self._fill(needed)
            start = self.offset - self._buffer_at
        return memoryview(self._buffer)[start:]

    def _fill(self, needed: int) -> bool:
        """Read from the present offset on; whether `needed` bytes are there."""
        if self._is_finished:
            self._buffer_at = self.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            self._buffer = self._mapped(self.offset - self._buffer_at + max(needed, _READ_BYTES))
        elif os.fstat(self._file).st_size > self._buffer_at + len(self._buffer):
            wanted = max(needed, _READ_BYTES)
            self._buffer = read_at(self._file, self.segment.path, wanted, self.offset)
            self._buffer_at = self.offset
            self.fills += 1
        return len(self._buffer) - (self.offset - self._buffer_at) >= needed

    def _mapped(self, size: int) -> bytes | mmap.mmap:
        """So many bytes from `_buffer_at` on, or what there is."""
        size = min(size, os.fstat(self._file).st_size - self._buffer_at)
        if size <= 0:
            return b""
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        return mmap.mmap(self._file, size, flags, mmap.PROT_READ, offset=self._buffer_at)

    def is_cut(self) -> bool:
        """Whether the writer has taken back something that is read already."""
        return os.fstat(self._file).st_size < self._buffer_at + len(self._buffer)

    def has_record_beyond(self) -> bool:
        """Whether a whole record follows what is corrupt, so that it is no torn end."""
        size = os.fstat(self._file).st_size - self.offset
        data = read_at(self._file, self.segment.path, max(0, size), self.offset)
        return records.has_record_beyond(memoryview(data), 0, self.schema)

    def close(self) -> None:
        os.close(self._file)


class StreamLogReader(LogFollower):
    """Follows a log of segments."""

    def __init__(
        self, path: str, from_id: int = 0, *, skips: bool = False, is_finished: bool = False
    ) -> None:
        """Start at `from_id`; the folder need not exist yet.

        Args:
            path: The log's folder.
            from_id: The first tuple wanted.
            skips: Only `skip_to_end` will be called, which need not see the tuples.
            is_finished: Nobody writes to the log any more.
        """
        super().__init__(path, from_id)
        self._skips = skips
        self._is_finished = is_finished
        self._folder = Path(path)
        self._segments = SegmentFolder(self._folder)
        self._reader: _SegmentReader | None = None
        self._limit = NO_ID
        self._limit_of: list[Segment] = []  # what was listed when it was looked up
        self._looked_after = -1  # how often the segment had been read when the folder was listed
        self._live: list[Segment] = []
        self._listed_at_s = 0.0
        self._changed_ns = 0  # the folder, before it was listed

    def _next(self) -> LogRecord | None:
        for _ in range(2):
            if self._reader is None and not self._open():
                return None
            reader = self._reader
            if reader is None:
                return None
            # Listed between two looks: a segment that begins later than the first look's end
            # may continue what the second one finds.
            record = reader.next()
            if record is None:
                live = self._listed()
                record = reader.next()
                if record is None:
                    if not self._move_on(reader, live):
                        return None
                    continue
            return record
        return None

    def _listed(self, *, at_once: bool = False) -> list[Segment]:
        """All segments; listed anew if the folder has changed, and now and then in any case.

        A file system's clock may stand still between two changes.
        """
        if self._is_finished and self._live:
            return self._live
        now_s, changed_ns = time.monotonic(), _changed_ns(self._folder)
        is_old = now_s - self._listed_at_s > _LIST_INTERVAL_S
        if at_once or is_old or changed_ns != self._changed_ns:
            found = self._segments.listed()
            self._live, self._listed_at_s = found.live, now_s
            self._changed_ns = changed_ns if found.is_settled else 0
        return self._live

    def _open(self) -> bool:
        """Open the segment that holds the next id."""
        live = self._listed()
        for segment in live:
            if segment.first_id <= self.next_id < segment.superseded_from:
                self._reader = self._opened(segment)
                self._limit, self._limit_of = segment.superseded_from, live
                return True
        if live and self.next_id < live[0].first_id:
            raise missing(str(self._folder), self.next_id, live[0].first_id)
        return False

    def _opened(self, segment: Segment) -> _SegmentReader:
        self._looked_after = -1
        try:
            return _SegmentReader(segment, skips=self._skips, is_finished=self._is_finished)
        except FileNotFoundError:
            if first_kept(str(self._folder)) <= self.next_id:
                raise
            raise missing(str(self._folder), self.next_id, segment.superseded_from) from None

    def _move_on(self, reader: _SegmentReader, live: list[Segment]) -> bool:
        """At the end of a segment: whether a later one goes on from here."""
        holder = next((s for s in live if s.first_id <= self.next_id < s.superseded_from), None)
        successor = None if holder is None or holder.path == reader.segment.path else holder
        if successor is None:
            if reader.corrupt is not None and reader.has_record_beyond():
                raise StreamLogCorrupt(
                    str(reader.segment.path), reader.offset, reader.corrupt.reason
                )
            beyond = [s.first_id for s in live if s.first_id > self.next_id]
            if beyond:
                raise missing(str(self._folder), self.next_id, beyond[0])
            return False
        reader.close()
        self._reader = self._opened(successor)
        self._limit, self._limit_of = successor.superseded_from, live
        if self._skips:  # What a zombie wrote meanwhile does not count.
            self.next_id = successor.first_id
        return True

    def is_in(self, segment: Segment) -> bool:
        """Whether it is this segment that is being read, and it holds all that was read."""
        reader = self._reader
        return reader is not None and reader.segment.path == segment.path and not reader.is_cut()

    def require_end(self) -> None:
        """What follows what has been read may be the torn end of a record, but no record.

        1. A bit of a record's size flips. 2. The record seems to go on beyond the end of the file.
        Whoever only tails a log cannot tell that from a record on its way; whoever takes
        the log over must.

        Raises:
            StreamLogCorrupt: There is a whole record behind.
        """
        while (reader := self._reader) is not None and reader.has_record_beyond():
            offset = reader.offset
            self.skip_to_end()  # Its writer may be alive, and have gone on meanwhile.
            if self._reader is reader and reader.offset == offset:
                raise StreamLogCorrupt(str(reader.segment.path), offset, "a record's size is wrong")

    def _superseded_from(self) -> int:
        """The id from which a later incarnation writes.

        1. The reader opens the newest segment. 2. Its writer is replaced; the successor begins a
        segment. 3. The former writer, a zombie, goes on. What it writes from then on is not read:
        the folder is listed after every look into the segment.
        """
        reader = self._reader
        fills = 0 if reader is None else reader.fills
        live = self._listed(at_once=fills != self._looked_after)
        self._looked_after = fills
        if reader is not None and live is not self._limit_of:
            mine = [s for s in live if s.path == reader.segment.path]
            self._limit = mine[0].superseded_from if mine else reader.segment.first_id
            self._limit_of = live
        return self._limit

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the segment being read, time column included; None before the first."""
        if self._reader is None:
            self._open()
        if self._reader is not None and self._reader.schema is None:
            self._reader._read_header()
        return None if self._reader is None else self._reader.schema

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _new_segment(path: Path, header: bytes) -> int:
    """A segment with its header, open to be appended to; none at all if that fails."""
    file = create_file(path, os.O_WRONLY | os.O_APPEND)
    try:
        written = 0
        while written < len(header):
            written += os.write(file, header[written:])
    except OSError:
        os.close(file)
        path.unlink()
        raise
    return file


class StreamLogWriter:
    """Appends to a log as one incarnation."""

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        stream: str,
        incarnation: int,
        *,
        first_id: int | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_s: float | None = None,
        is_lasting: bool = True,
        encode: EncodeRecord = encode_record,
        switches_beside: bool = False,
        wanted: int = 0,
        tail: StreamLogReader | None = None,
    ) -> None:
        """Find the end of the log and begin a segment there.

        Args:
            path: The log's folder; made if missing.
            schema: Of the batches, time column included.
            stream: The stream's name.
            incarnation: Of the writer; must exceed that of every earlier one.
            first_id: For an empty log, the id of its first tuple; otherwise the log says.
            segment_bytes: Size at which the next segment begins.
            segment_s: Age at which it does, if it holds anything; None: whatever its age.
            is_lasting: Whether what a segment holds is made durable when the next one begins.
            encode: Makes records of tuples.
            switches_beside: Whether `tidy` begins segments, so that whoever appends does not wait.
            wanted: The id before which the log must not end.
            tail: Has followed the log so far, and need not begin anew; it skips, and is used up.

        Raises:
            SchemaMismatch: The log holds tuples of another schema.
            SinkLacksTuples: It ends before `wanted`, and was not begun.
            StorageError: The log has a writer of this incarnation or a later one.
        """
        self._folder = Path(path)
        try:
            make_folder(self._folder)
        except OSError as error:
            raise storage_error(error, path) from error
        self._schema, self._stream = schema, stream
        self._incarnation = Incarnation(incarnation)
        self._segment_bytes, self._segment_s = segment_bytes, segment_s
        self._begun_s, self._begun_id = 0.0, 0  # the segment, and its first id
        self._is_lasting = is_lasting
        self._encode, self._switches_beside = encode, switches_beside
        self.boundary_us = BEGINNING_US
        self.has_ended = False
        self.next_id = first_id or 0
        self.owners: Owners = ()
        self._file = -1
        self._size = self._synced_bytes = self._header_bytes = 0  # of the segment
        self._failure = ""  # nobody knows what is on disk behind those
        self._switching = threading.RLock()  # Another thread may sync, and begin a segment.
        self._appending = threading.Lock()  # Taken behind the other one.
        self._open(tail, wanted)
        if tail is not None:
            tail.close()

    def _open(self, tail: StreamLogReader | None, wanted: int) -> None:
        """Find the end and begin there; the steps are those of core/wire/log_opening.py."""
        found = SegmentFolder(self._folder).listed()

        def perform(request: OpenRequest) -> OpenAnswer:
            match request:
                case LookAtOwners():
                    return OwnersSeen(found.newest, found.owners)
                case FindEnd():
                    return self._end_of(request.owner, found.live, tail)
                case BeginAt():
                    self._begin(request)
            return None

        try:
            run(open_log(self._incarnation, self.next_id, wanted), perform)
        except EndsEarly as early:
            raise SinkLacksTuples(str(self._folder), early.end, early.wanted) from early
        except OpenedLater as later:
            raise WrittenByOther(self._folder, later.incarnation, self._incarnation) from later

    def _end_of(
        self, owner: Owner, live: list[Segment], tail: StreamLogReader | None
    ) -> LogEnd | None:
        """Where an owner's tuples end, made durable."""
        for segment in reversed([s for s in live if s.incarnation == owner.incarnation]):
            # A tail elsewhere may have seen less, and what a zombie has written since.
            if tail is not None and tail.is_in(segment):
                reader = tail
            else:
                reader = StreamLogReader(str(self._folder), segment.first_id, skips=True)
            with closing(reader):
                if reader.schema is not None and not reader.schema.equals(self._schema):
                    raise SchemaMismatch(
                        f"{self._folder} holds {reader.schema}, which differs from {self._schema}"
                    )
                reader.skip_to_end()
                reader.require_end()
                end = LogEnd(reader.next_id, reader.boundary_us, reader.ended)
            sync_path(segment.path)  # Its writer may have died before it did.
            if end.has_ended or end.boundary_us > BEGINNING_US or end.next_id > segment.first_id:
                return end  # An empty newest segment may say nothing; the one before it does.
        return None

    def _begin(self, begin: BeginAt) -> None:
        """Begin a segment that says where the log stands."""
        self.next_id, self.boundary_us = begin.end.next_id, begin.end.boundary_us
        self.has_ended = begin.end.has_ended
        self.owners = begin.owners
        self._begin_segment()
        if self.has_ended:
            self._write(RecordKind.END, TupleType.BOUNDARY, 2**63 - 1, 0, None)
        elif self.boundary_us > BEGINNING_US:
            self._write(RecordKind.BOUNDARY, TupleType.BOUNDARY, self.boundary_us, 0, None)

    def _begin_segment(self) -> None:
        with self._switching:
            if self._file >= 0:
                if self._is_lasting:
                    self._sync_file()
                os.close(self._file)
                self._file = -1
            self._open_segment()
        if self._is_lasting:
            self._sync_folder()

    def _open_segment(self) -> None:
        """What is appended goes to a new segment; the former one stays as it is."""
        path = self._folder / f"{self.next_id:020d}-{self._incarnation:010d}.seg"
        header = records.encode_segment_header(
            self._stream, self._incarnation, self.next_id, self._schema, self.owners
        )
        try:
            self._file = _new_segment(path, header)
        except FileExistsError:
            raise
        except OSError as error:
            raise self._no_room(error) from error
        self._size = self._header_bytes = len(header)
        self._begun_s, self._begun_id = time.monotonic(), self.next_id
        self._synced_bytes = 0

    def append(
        self,
        tuple_type: int,
        first_id: int,
        batch: pa.RecordBatch,
        boundary_us: int,
        created_us: int,
    ) -> None:
        """Append tuples. Raises `StorageError` unless `first_id` continues the log."""
        if first_id != self.next_id:
            raise StorageError(f"{self._stream}: tuple {first_id}, expected {self.next_id}")
        if self._is_segment_full():
            with self._switching:
                if self._is_segment_full():
                    self._begin_segment()
        with self._appending:
            if self._failure:
                raise StorageError(self._failure)
            self._write(RecordKind.DATA, tuple_type, boundary_us, created_us, batch)
            self.next_id += batch.num_rows

    def _is_segment_full(self) -> bool:
        if self.next_id == self._begun_id:
            return False
        if self._segment_s is not None and time.monotonic() - self._begun_s > self._segment_s:
            return self._synced_bytes == self._size or not self._is_lasting
        too_much = self._size - self._segment_bytes
        if too_much <= 0:
            return False
        if not self._is_lasting:
            return True
        if self._switches_beside:
            return too_much > _OVERDUE_BYTES
        return self._size - self._synced_bytes < _UNSYNCED_BYTES or too_much > _OVERDUE_BYTES

    def end(self) -> None:
        """The stream has ended; nothing follows."""
        if not self.has_ended:
            self.has_ended = True
            with self._appending:
                self._write(RecordKind.END, TupleType.BOUNDARY, 2**63 - 1, 0, None)
            self.sync()

    def _write(
        self,
        kind: RecordKind,
        tuple_type: int,
        boundary_us: int,
        created_us: int,
        batch: pa.RecordBatch | None,
    ) -> None:
        header = (kind, tuple_type, self._incarnation, self.next_id, boundary_us, created_us)
        parts = self._encode(*header, batch=batch)
        wanted = sum(len(part) for part in parts)
        if wanted > records.MAX_PAYLOAD_BYTES:
            raise StorageError(f"{self._stream}: a record of {wanted} bytes; use smaller batches")
        try:
            written = os.writev(self._file, parts)
            while written < wanted:
                rest = b"".join(bytes(part) for part in parts)[written:]
                written += os.write(self._file, rest)
        except OSError as error:
            os.ftruncate(self._file, self._size)  # No half record: what follows stays readable.
            raise self._no_room(error) from error
        self._size += wanted
        self.boundary_us = max(self.boundary_us, boundary_us)

    def _no_room(self, error: OSError) -> StorageError:
        if is_forbidden(error):
            return storage_error(error, self._folder)
        return StorageError(
            f"{self._stream}: writing tuple {self.next_id} to {self._folder} failed: "
            f"{error.strerror}; make room, then start again"
        )

    def sync(self) -> None:
        """Make everything appended so far durable. Raises `StorageError` if the disk does not."""
        with self._switching:
            self._sync_file()

    def _sync_file(self) -> None:
        """1. A disk refuses. 2. The system forgets that it had something to write. 3. The next sync
        says that all is well, a successor's too. So what was refused must go at once.
        """
        size = self._size
        if self._failure:
            raise StorageError(self._failure)
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise self._refused(error) from error
        self._synced_bytes = size

    def _sync_folder(self) -> None:
        try:
            sync_path(self._folder)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> StorageError:
        """It is no part of the log, unless a successor has taken it for stored."""
        with self._appending:
            self._failure = (
                f"{self._stream}: the disk of {self._folder} has not stored what was written "
                f"before tuple {self.next_id}: {error.strerror}; see to it, then start again"
            )
            if SegmentFolder(self._folder).listed().newest <= self._incarnation:
                with suppress(OSError):
                    os.ftruncate(self._file, max(self._synced_bytes, self._header_bytes))
        return StorageError(self._failure)

    def publish(self) -> None:
        """Let readers see everything appended so far: they do."""

    def tidy(self) -> None:
        """Begin another segment, if it is time, all is durable, and nobody else does."""
        if not self._switches_beside or self._size <= self._segment_bytes:
            return
        with self._switching:
            with self._appending:
                former = self._file
                is_durable = self._size == self._synced_bytes and self.next_id > self._begun_id
                if is_durable:
                    self._open_segment()
            if is_durable:
                os.close(former)
                self._sync_folder()

    def skip_to(self, first_id: int) -> None:
        """Go on at a later id; nobody will read what comes before it."""
        with self._switching:
            self.next_id = first_id
            self._begin_segment()
        self.trim(first_id)

    def trim(self, before: int) -> None:
        """Delete segments that hold no tuple from `before` on."""
        live = segments(self._folder)
        for segment, following in itertools.pairwise(live):
            if following.first_id <= before:
                segment.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> StreamLogWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
