"""What a client does to write one object. [SGuard §2.2, §5]

Theory of operation.

    OPENING --UploadOpened--> IDLE --ChunkGiven--> PLACING --ChunkPlaced--> SENDING
        --ChunkAcked by the whole chain--> IDLE --FinishRequested--> COMMITTING
        --ObjectCommitted--> DONE;   any --refused, given up, out of time--> FAILED

- Every `resend_ms` the present question to the master is asked again; while a chunk is on its way,
  so is the question for its place: the answer is a new place when the chain has lost a data node.
- A refusal by the chain, or no answer for `chain_timeout_ms`, leads to a new request number, and so
  to a new chunk id. Answers about other chunk ids than the present one are dropped.
- The chain must have stored what was sent: size and checksum are compared.
- Opening, each chunk, and committing may each take `operation_timeout_ms`.

Each step is answered to the caller by `StepDone`, or once and for all by `ObjectFailed`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.errors import InvariantViolation, LocalProtocolError
from holdfast.core.machine import Effect, SetTimer, Stimulus, TimerFired

if TYPE_CHECKING:
    from holdfast.core.chunks.messages import ChunkId, StoredChunk
    from holdfast.core.chunks.settings import ChunkSettings

_RESEND: Final = "resend"


class WritingState(enum.Enum):
    """Where an object is on its way."""

    OPENING = "opening"
    IDLE = "idle"
    PLACING = "placing"
    SENDING = "sending"
    COMMITTING = "committing"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ChunkGiven(Stimulus):
    """The next chunk of the object; not empty, at most `chunk_bytes`."""

    data: bytes


@dataclass(frozen=True, slots=True)
class FinishRequested(Stimulus):
    """All chunks were given and stored."""


@dataclass(frozen=True, slots=True)
class GivenUp(Stimulus):
    """The caller no longer wants the object."""


@dataclass(frozen=True, slots=True)
class StepDone(Effect):
    """The upload is open; or the chunk is stored; or the object exists."""


@dataclass(frozen=True, slots=True)
class ObjectFailed(Effect):
    """Nothing will come of the object, or of reading it."""

    reason: str


class ObjectWriting:
    """The machine of one upload. Volatile as a whole."""

    def __init__(
        self,
        *,
        client: str,
        upload: str,
        name: str,
        host: str,
        settings: ChunkSettings,
        reservation: str = "",
    ) -> None:
        """Begin with `Started`; `upload` is unique, `reservation` whose places it takes."""
        self._reservation = reservation
        self._client = client
        self._upload = upload
        self._name = name
        self._host = host
        self._settings = settings
        self.state = WritingState.OPENING
        self._deadline_ms = 0
        self._epoch = 0  # of the master that opened the upload
        self._request = 0
        self._data = b""  # of the chunk that is placed or sent
        self._expected: StoredChunk | None = None  # what the chain must have stored, when SENDING
        self._attempt_ms = 0  # when the present chain was given the chunk
        self._stored: list[StoredChunk] = []
        self._last_reason = "the master does not answer"

    def step(self, stimulus: Stimulus, now_ms: int) -> list[Effect]:
        """Take one stimulus; an answer to something this client did before is dropped."""
        handler = _HANDLERS.get(type(stimulus))
        return [] if handler is None else handler(self, stimulus, now_ms)

    # -- the caller -------------------------------------------------------------------------

    def _on_started(self, _: e.Started, now_ms: int) -> list[Effect]:
        return self._begin(WritingState.OPENING, now_ms)

    def _on_chunk_given(self, given: ChunkGiven, now_ms: int) -> list[Effect]:
        self._check_is_idle()
        if not 0 < len(given.data) <= self._settings.chunk_bytes:
            raise LocalProtocolError(f"a chunk of {len(given.data)} bytes")
        self._data = given.data
        self._request += 1
        return self._begin(WritingState.PLACING, now_ms)

    def _on_finish_requested(self, _: FinishRequested, now_ms: int) -> list[Effect]:
        self._check_is_idle()
        return self._begin(WritingState.COMMITTING, now_ms)

    def _check_is_idle(self) -> None:
        if self.state is not WritingState.IDLE:
            raise LocalProtocolError(f"{self._name} is {self.state.value}")

    def _on_given_up(self, _: GivenUp, now_ms: int) -> list[Effect]:
        del now_ms
        if self._is_over():
            return []
        self.state = WritingState.FAILED
        self._expected = None
        return [e.SendToMaster(m.UploadAborted(self._client, self._upload))]

    def _begin(self, state: WritingState, now_ms: int) -> list[Effect]:
        self.state = state
        self._deadline_ms = now_ms + self._settings.operation_timeout_ms
        return self._ask(now_ms)

    # -- the master -------------------------------------------------------------------------

    def _ask(self, now_ms: int) -> list[Effect]:
        """The present question, and when to ask it again."""
        timer = SetTimer(_RESEND, now_ms + self._settings.resend_ms)
        return [e.SendToMaster(self._question()), timer]

    def _question(self) -> m.Message:
        client, upload = self._client, self._upload
        if self.state is WritingState.OPENING:
            return m.ObjectCreateRequested(
                client, upload, self._name, self._host, self._reservation
            )
        if self.state is WritingState.COMMITTING:
            chunks = tuple(self._stored)
            return m.ObjectCommitRequested(client, upload, self._epoch, self._name, chunks)
        return m.ChunkPlacementRequested(client, upload, self._request)

    def _on_timer_fired(self, timer: TimerFired, now_ms: int) -> list[Effect]:
        if self.state is WritingState.IDLE or self._is_over() or timer.name != _RESEND:
            return []
        if now_ms >= self._deadline_ms:
            return self._fail(f"no success within the time given: {self._last_reason}")
        timeout_ms = self._settings.chain_timeout_ms
        if self.state is WritingState.SENDING and now_ms - self._attempt_ms >= timeout_ms:
            self._last_reason = "the data nodes do not answer"
            return self._place_anew(now_ms)
        return self._ask(now_ms)

    def _is_over(self) -> bool:
        return self.state in (WritingState.DONE, WritingState.FAILED)

    def _fail(self, reason: str) -> list[Effect]:
        self.state = WritingState.FAILED
        self._expected = None
        aborted = m.UploadAborted(self._client, self._upload)
        return [e.SendToMaster(aborted), ObjectFailed(f"{self._name}: {reason}")]

    def _on_upload_opened(self, opened: m.UploadOpened, _: int) -> list[Effect]:
        if opened.upload != self._upload or self.state is not WritingState.OPENING:
            return []
        self._epoch = opened.epoch
        return self._done(WritingState.IDLE)

    def _done(self, state: WritingState) -> list[Effect]:
        self.state = state
        self._last_reason = "the master does not answer"
        return [StepDone()]

    def _on_upload_refused(self, refused: m.UploadRefused, _: int) -> list[Effect]:
        if refused.upload != self._upload or self._is_over():
            return []
        return self._fail(refused.reason)

    def _on_object_committed(self, committed: m.ObjectCommitted, _: int) -> list[Effect]:
        if committed.upload != self._upload or self.state is not WritingState.COMMITTING:
            return []
        return self._done(WritingState.DONE)

    # -- a chunk ----------------------------------------------------------------------------

    def _is_of_this_chunk(self, upload: str, request: int) -> bool:
        is_asked = self.state in (WritingState.PLACING, WritingState.SENDING)
        return is_asked and upload == self._upload and request == self._request

    def _on_placement_delayed(self, delayed: m.PlacementDelayed, _: int) -> list[Effect]:
        is_commit = self.state is WritingState.COMMITTING and delayed.upload == self._upload
        if is_commit or self._is_of_this_chunk(delayed.upload, delayed.request):
            self._last_reason = delayed.reason
        return []

    def _on_chunk_placed(self, placed: m.ChunkPlaced, now_ms: int) -> list[Effect]:
        if not self._is_of_this_chunk(placed.upload, placed.request):
            return []
        if self._expected is not None and not _is_newer(placed.chunk, self._expected.chunk):
            return []  # The chain stands; or the answer is older than the one we follow.
        size = self._settings.piece_bytes
        pieces = [self._data[at : at + size] for at in range(0, len(self._data), size)]
        table = m.checksum_table([m.piece_checksum(piece) for piece in pieces])
        checksum = m.chunk_checksum(table)
        self._expected = m.StoredChunk(placed.chunk, len(self._data), checksum)
        self.state = WritingState.SENDING
        self._attempt_ms = now_ms
        first, behind = placed.chain[0], placed.chain[1:]
        return [
            e.SendToEndpoint(
                first.endpoint,
                m.Piece(placed.chunk, 0, first.incarnation, index, len(pieces), behind, piece),
            )
            for index, piece in enumerate(pieces)
        ]

    def _on_chunk_acked(self, acked: m.ChunkAcked, now_ms: int) -> list[Effect]:
        expected = self._expected
        if expected is None or acked.stored.chunk != expected.chunk:
            return []  # Of a chain given up since.
        if acked.stored != expected:
            self._last_reason = f"chunk {expected.chunk} was stored with another checksum"
            return self._place_anew(now_ms)
        self._stored.append(expected)
        self._expected = None
        self._data = b""
        completed = m.ChunkCompleted(self._client, self._upload, self._request)
        return [e.SendToMaster(completed), *self._done(WritingState.IDLE)]

    def _on_chunk_refused(self, refused: m.ChunkRefused, now_ms: int) -> list[Effect]:
        if self._expected is None or refused.chunk != self._expected.chunk:
            return []
        self._last_reason = refused.reason
        self._wait_before_next(now_ms)
        return [SetTimer(_RESEND, now_ms + self._settings.resend_ms)]

    def _wait_before_next(self, now_ms: int) -> None:
        """A full disk refuses at once: ask for the next chain with the next timer only."""
        self._attempt_ms = now_ms - self._settings.chain_timeout_ms

    def _place_anew(self, now_ms: int) -> list[Effect]:
        self._expected = None
        self._request += 1
        self.state = WritingState.PLACING
        return self._ask(now_ms)

    # -- looking ----------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolation` when the machine's own state makes no sense."""
        if (self.state is WritingState.SENDING) != (self._expected is not None):
            raise InvariantViolation(f"{self._name} is {self.state.value} without a chunk")

    def statistics(self) -> WritingState:
        """Where the object is on its way."""
        return self.state


def _is_newer(chunk: ChunkId, known: ChunkId) -> bool:
    return (m.parse_chunk_id(chunk) or ()) > (m.parse_chunk_id(known) or ())


_HANDLERS: dict[type[Stimulus], Callable[[ObjectWriting, Any, int], list[Effect]]] = {
    e.Started: ObjectWriting._on_started,
    ChunkGiven: ObjectWriting._on_chunk_given,
    FinishRequested: ObjectWriting._on_finish_requested,
    GivenUp: ObjectWriting._on_given_up,
    TimerFired: ObjectWriting._on_timer_fired,
    m.UploadOpened: ObjectWriting._on_upload_opened,
    m.UploadRefused: ObjectWriting._on_upload_refused,
    m.ChunkPlaced: ObjectWriting._on_chunk_placed,
    m.PlacementDelayed: ObjectWriting._on_placement_delayed,
    m.ChunkAcked: ObjectWriting._on_chunk_acked,
    m.ChunkRefused: ObjectWriting._on_chunk_refused,
    m.ObjectCommitted: ObjectWriting._on_object_committed,
}
