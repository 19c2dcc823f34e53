"""Packs of a recording: many old commits, with the rows of their files, as one object.

Theory of operation. A recording (recording.py) grows by a commit and some small files per batch,
a hundred a minute and more. For as long as they are kept they would be files of their own. So who
leads the dataflow packs them: 64 commits in a row become one object, and 64 such blocks become one
again as long as it stays small. A pack holds each commit as it was written, and the records of each
of its files. Nothing is numbered anew: ids, lateness, shares of instances and the place of a reader
are what they were.

1. The pack is put. It counts when it is whole, which its last bytes say.
2. Files, commits and words of idleness that it holds are deleted, and packs within it; again after
   a crash.

A reader takes a commit of a pack that it knows from there. Otherwise it reads the commit, and looks
then whether there is a pack with it meanwhile, which counts: the name of a commit that was deleted
may be taken once more, by a writer that stood still for long. A file that is gone is read on in the
pack, behind the records that were taken already. Such a writer looks after its put, withdraws what
it has put, and takes the packed commit for the one that was there before.

The two newest commits are never packed, as they are never removed (beginning.py). Blocks begin at
multiples of their length, so that two drivers, one of which has been replaced without knowing it,
make the same packs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from holdfast.core.queues.beginning import KEPT_COMMITS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from holdfast.core.queues.retention import Piece

PACKS: Final = "packs"
BLOCKS: Final = (64, 64 * 64)
"""So many commits are one pack; longer ones are tried first."""
PACK_BYTES_MAX: Final = 64 << 20
"""Of the rows in a pack: what is larger is no small file."""
PACKED_AFTER_US: Final = 60_000_000
"""Commits of this age are packed: whoever follows the log has read them from their own files."""


@dataclass(frozen=True, slots=True, order=True)
class PackName:
    """The commits [first, end) of a pack."""

    first: int
    end: int

    @staticmethod
    def around(number: int, length: int) -> PackName:
        """The block of a length that holds a commit."""
        first = number // length * length
        return PackName(first, first + length)

    def __str__(self) -> str:
        """The name in the store."""
        return f"{PACKS}/{self.first:020d}-{self.end:020d}.pack"

    def holds(self, number: int) -> bool:
        """Whether a commit is in it."""
        return self.first <= number < self.end

    @property
    def length(self) -> int:
        """How many commits are in it."""
        return self.end - self.first


def packs_in(names: Iterable[str]) -> list[PackName]:
    """All packs among the names, the longest first."""
    found: list[PackName] = []
    for name in names:
        first, _, end = name.removeprefix(f"{PACKS}/").removesuffix(".pack").partition("-")
        if first.isdigit() and end.isdigit() and str(PackName(int(first), int(end))) == name:
            found.append(PackName(int(first), int(end)))
    return sorted(found, key=lambda pack: (-pack.length, pack.first))


def within_others(packs: Collection[PackName]) -> list[PackName]:
    """Those of which all is in a longer one, in the same order. Cost: O(packs)."""
    known = set(packs)
    lengths = {pack.length for pack in known}
    return [
        pack
        for pack in packs
        if any(PackName.around(pack.first, of) in known for of in lengths if of > pack.length)
    ]


def due(
    pieces: Collection[Piece],
    packs: Iterable[PackName],
    now_us: int,
    blocks: Sequence[int] = BLOCKS,
) -> list[PackName]:
    """Which packs to make now, each of which may hold shorter ones.

    Args:
        pieces: The commits that are kept, the oldest first, without a gap.
        packs: Those that there are.
        now_us: The clock.
        blocks: Lengths of packs.

    Cost: O(commits).
    """
    known, made = set(packs), list[PackName]()
    begin = next(iter(pieces)).first if pieces else 0
    for length in sorted(blocks, reverse=True):
        first = -(-begin // length) * length
        rest = islice(pieces, first - begin, max(0, len(pieces) - KEPT_COMMITS))
        while len(block := list(islice(rest, length))) == length:
            name, first = PackName(first, first + length), first + length
            is_held = any(PackName.around(name.first, of) in known for of in blocks if of >= length)
            is_old = block[-1].at_us <= now_us - PACKED_AFTER_US
            if not is_held and is_old and sum(p.size_bytes for p in block) <= PACK_BYTES_MAX:
                known.add(name)
                made.append(name)
    return made
