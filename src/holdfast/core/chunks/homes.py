"""On which machine a data node is to come up: one where its chunks are. [SGuard §2.2]

Theory of operation. A data node keeps its chunks in a folder of the machine that it came up on, and
finds those of that machine only. The journal names these machines: a data node that comes up on one
for the first time adds it to its *homes*, in front of the journal entry of any object with a copy
there. When every chunk has all its copies, nobody needs what lies elsewhere, and its homes are the
machine where it is.

While some chunk has no copy within reach, as after a restart of the driver, a data node waits for
its first home for at most `reach_timeout_ms`: a later one has only what was written after the first
was left. Otherwise nothing is lost by coming up elsewhere, and it waits for nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Sequence


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a data node goes now.

    Attributes:
        machine: Its name; empty: any one.
        is_binding: Whether it may come up on no other.
    """

    machine: str = ""
    is_binding: bool = False


def destination(
    homes: Sequence[str], present: Container[str], *, must_find_home: bool
) -> Destination | None:
    """Where a data node goes; None: it waits for its first home.

    Args:
        homes: Its homes, oldest first.
        present: Machines with room for it.
        must_find_home: Chunks are out of reach, and it has not waited for too long.
    """
    if must_find_home and homes:
        return Destination(homes[0], is_binding=True) if homes[0] in present else None
    return Destination(next((home for home in homes if home in present), ""))
