"""What Peace is told, what it answers, and its settings. [SGuard §5]"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NewType

from holdfast.core.errors import LocalProtocolError
from holdfast.core.machine import Effect, Stimulus
from holdfast.core.peace.network_model import ServerName

WriteRequestId = NewType("WriteRequestId", str)
"""Names a request to write, uniquely over all writers."""


class CopyConstraint(enum.Enum):
    """Where a copy of a chunk may lie, besides never twice on one server. [SGuard §5]"""

    ANY_SERVER = "any server"
    SAME_RACK_AS_WRITER = "same rack as the writer"
    SAME_RACK_AS_PREVIOUS = "same rack as the previous copy"
    OTHER_RACK_THAN_PREVIOUS = "other rack than the previous copy"


@dataclass(frozen=True, slots=True)
class PeaceSettings:
    """Settings of the scheduler.

    Attributes:
        constraints: For the first copy, the second, ...; later copies may lie on any server.
        can_writer_hold_copy: Whether the writer's own server may be in a chain (paper: never).
        timestep_done_percent: A timestep ends when so much of it is written (paper: 80).
        timestep_timeout_ms: It ends after this time in any case; who was silent as long, is out.
        drafts_max: So many schedules are made for a timestep when not all fits (paper: 1).
        passed_over_max: So many younger requests may begin before one that waits.
        requests_max: Requests that are queued or being written.
        chunks_max: Chunks of one request.
        copies_max: Copies of one chunk.
    """

    constraints: tuple[CopyConstraint, ...] = (
        CopyConstraint.SAME_RACK_AS_WRITER,
        CopyConstraint.OTHER_RACK_THAN_PREVIOUS,
    )
    can_writer_hold_copy: bool = False
    timestep_done_percent: int = 80
    timestep_timeout_ms: int = 60_000
    drafts_max: int = 16
    passed_over_max: int = 16
    requests_max: int = 4_096
    chunks_max: int = 4_096
    copies_max: int = 8

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if not 1 <= self.timestep_done_percent <= 100:
            raise LocalProtocolError(
                f"timestep_done_percent is {self.timestep_done_percent}, not from 1 to 100"
            )
        if self.passed_over_max < 0:
            raise LocalProtocolError(f"passed_over_max is {self.passed_over_max}, below 0")
        for name in (
            "timestep_timeout_ms",
            "drafts_max",
            "requests_max",
            "chunks_max",
            "copies_max",
        ):
            if getattr(self, name) < 1:
                raise LocalProtocolError(f"{name} is {getattr(self, name)}, below 1")


# -- stimuli --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteRequested(Stimulus):
    """A node has a checkpoint to write.

    Attributes:
        request_id: Names the request. Sent again unchanged, it is answered again.
        writer: The server that the node runs on.
        copies: Copies of every chunk; 0: to the outside store.
        chunks: How many chunks; they are numbered from 0.
    """

    request_id: WriteRequestId
    writer: ServerName
    copies: int
    chunks: int


@dataclass(frozen=True, slots=True)
class ChunkWritten(Stimulus):
    """All copies of a chunk are stored."""

    request_id: WriteRequestId
    chunk: int


@dataclass(frozen=True, slots=True)
class WriteWithdrawn(Stimulus):
    """A writer no longer wants to write, or is gone."""

    request_id: WriteRequestId


@dataclass(frozen=True, slots=True)
class ServerLost(Stimulus):
    """A server is dead: nothing is written from or to it."""

    server: ServerName


@dataclass(frozen=True, slots=True)
class ServerJoined(Stimulus):
    """A server is there; it counts from the next timestep on."""

    server: ServerName
    rack: str


# -- effects --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkPlacement:
    """A chunk and its chain: the writer sends to the first server, which passes it on."""

    chunk: int
    servers: tuple[ServerName, ...]


@dataclass(frozen=True, slots=True)
class GrantWrite(Effect):
    """Let the writer write these chunks now; a later grant of a chunk replaces an earlier one."""

    request_id: WriteRequestId
    placements: tuple[ChunkPlacement, ...]


@dataclass(frozen=True, slots=True)
class RefuseWrite(Effect):
    """Tell the writer to cancel for now. It is queued, and will be granted later."""

    request_id: WriteRequestId


@dataclass(frozen=True, slots=True)
class FailWrite(Effect):
    """Tell the writer that nothing will come of its request."""

    request_id: WriteRequestId
    reason: str


@dataclass(frozen=True, slots=True)
class PeaceStatistics:
    """What the scheduler does and has done.

    Attributes:
        timestep: Number of the current timestep, or of the last one.
        waiting_requests: Queued, and nothing granted yet.
        begun_requests: Some chunks granted, some not.
        granted_requests: All chunks granted, not all written.
        awaited_chunks: Chunks of the current timestep; withdrawn ones do not count.
        done_chunks: Those of them that are written.
        refusals: Requests refused so far.
        failures: Requests failed so far.
        repeated_timesteps: Timesteps in which the continued requests kept their chains.
        expired_timesteps: Timesteps that ended by time.
        ignored_reports: Stimuli about what is no longer known.
    """

    timestep: int
    waiting_requests: int
    begun_requests: int
    granted_requests: int
    awaited_chunks: int
    done_chunks: int
    refusals: int
    failures: int
    repeated_timesteps: int
    expired_timesteps: int
    ignored_reports: int
