"""Requests to a store, as values: what a protocol asks of it, step by step; see steps.py."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

_T = TypeVar("_T")
_LISTINGS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ListNames:
    """The names of all objects in a folder; answered by a list."""

    folder: str


@dataclass(frozen=True, slots=True)
class ReadObject:
    """An object's bytes, as far as they are there; answered by them, or None: there is none."""

    name: str


@dataclass(frozen=True, slots=True)
class PutObject:
    """Make an object that only its writer knows; answered by None when it is there."""

    name: str
    parts: Sequence[bytes | pa.Buffer]


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete an object; answered by None."""

    name: str


StoreRequest = ListNames | ReadObject | PutObject | DeleteObject
StoreAnswer = list[str] | memoryview | None
Steps = Generator[StoreRequest, StoreAnswer, _T]


class ChangesTooFast(Exception):
    """A folder was listed often, and was another one each time."""


def listed(folder: str) -> Steps[list[str]]:
    """A listing. It is not made in one moment: of what changes meanwhile it shows anything."""
    answer = yield ListNames(folder)
    assert isinstance(answer, list)
    return answer


def settled(folder: str) -> Steps[list[str]]:
    """A listing in which nothing is missing that was there all the time, under whatever name.

    1. A listing passes the place of a merged part, which is not there yet. 2. The part is stored,
    and those that it is made of are deleted. 3. The listing does not find them. The next one
    finds the merged part. So two in a row must agree.

    Raises:
        ChangesTooFast: No two did.
    """
    before: list[str] | None = None
    for _ in range(_LISTINGS_MAX):
        now = yield from listed(folder)
        if now == before:
            return now
        before = now
    raise ChangesTooFast(folder)


def read(name: str) -> Steps[memoryview | None]:
    """An object, or None."""
    answer = yield ReadObject(name)
    assert not isinstance(answer, list)
    return answer
