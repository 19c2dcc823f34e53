"""What processes ask the simulated store of ingest logs for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Put:
    """Make an object, unless there is one; answered by whether it is new."""

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Read:
    """Answered by the content, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object; no answer."""

    name: str


@dataclass(frozen=True, slots=True)
class List:
    """Answered by all names in a folder, sorted."""

    folder: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Let time pass."""

    us: int


Operation: TypeAlias = Put | Read | Delete | List | Wait
