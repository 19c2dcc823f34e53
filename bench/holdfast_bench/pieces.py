"""A campaign in pieces: which seeds ran on which commit, and what was found there.

A piece is what a summary says of consecutive seeds (`to_json`), with the commit that they ran on
and the first seed. Pieces of one commit that follow each other are one. A campaign that was stopped
goes on behind its last seed, on whatever code is there then.

Which pieces still count, the code decides. Of some seeds of each piece the digest over all events
is kept: its *probes*. A piece counts as long as all of them, run on the present code, give the same
digests. Documentation, faster code and moved code leave a piece as it is; a change of a protocol,
or of draws, takes it out of the sum. Real runs have no digests: they count when simulated pieces of
their commit do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Piece = dict[str, Any]
KINDS: Final = ("simulated", "real")
PROBES: Final = "probes"
_PROBE_EVERY: Final = 100
_DIGITS: Final = 12


def load(path: Path | None) -> dict[str, Any]:
    """The campaign of a file; a new one if there is none."""
    found: dict[str, Any] = json.loads(path.read_text()) if path and path.exists() else {}
    return {kind: found.get(kind, []) for kind in KINDS}


def save(campaign: dict[str, Any], path: Path | None) -> None:
    """Write the file whole or not at all: whoever is killed here loses no earlier piece."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.part")
    beside.write_text(json.dumps({kind: campaign[kind] for kind in KINDS}, indent=1) + "\n")
    os.replace(beside, path)


def next_seed(pieces: list[Piece], first_seed: int) -> int:
    """Where the next piece begins; `first_seed` if there is none."""
    return pieces[-1]["first_seed"] + pieces[-1]["runs"] if pieces else first_seed


def add(pieces: list[Piece], commit: str, first_seed: int, found: Piece) -> None:
    """Add what was found in the seeds from one on.

    Raises:
        ValueError: They do not follow the last ones.
    """
    if next_seed(pieces, first_seed) != first_seed:
        raise ValueError(f"seed {next_seed(pieces, first_seed)} comes next, not {first_seed}")
    piece = {"commit": commit, "first_seed": first_seed, **found}
    if pieces and pieces[-1]["commit"] == commit:
        pieces[-1] = total([pieces[-1], piece]) | {"commit": commit}
    else:
        pieces.append(piece)


def total(pieces: list[Piece]) -> Piece:
    """What all of them came to: numbers added up, lists one after the other, names once."""
    whole: Piece = {}
    for piece in pieces:
        for name, value in piece.items():
            if name not in ("commit", "first_seed"):
                whole[name] = _sum(whole[name], value) if name in whole else value
    first = {"first_seed": pieces[0]["first_seed"]} if pieces else {}
    return first | whole


def _sum(one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        names = (*one, *(name for name in other if name not in one))
        return {name: one.get(name, 0) + other.get(name, 0) for name in names}
    if isinstance(one, list) and all(isinstance(entry, str) for entry in one + other):
        return sorted({*one, *other})
    return round(one + other, 1) if isinstance(one, float) else one + other


def probes_of(digests: dict[int, str]) -> list[str]:
    """Some seeds of a piece with their digests: its first one, and then each hundredth."""
    seeds = sorted(digests)
    chosen = dict.fromkeys([*seeds[:1], *(s for s in seeds if s % _PROBE_EVERY == 0)])
    return [f"{seed} {digests[seed][:_DIGITS]}" for seed in chosen]


def counting(campaign: dict[str, Any], digest_of: Callable[[int], str]) -> dict[str, Any]:
    """The pieces that count on the present code, which `digest_of` runs a seed on."""

    def behaves_so(piece: Piece) -> bool:
        probes = [probe.split() for probe in piece.get(PROBES, [])]
        return bool(probes) and all(
            digest_of(int(seed))[:_DIGITS] == digest for seed, digest in probes
        )

    simulated = [piece for piece in campaign["simulated"] if behaves_so(piece)]
    commits = {piece["commit"] for piece in simulated}
    return {
        "simulated": simulated,
        "real": [piece for piece in campaign["real"] if piece["commit"] in commits],
    }


def middle_of(counted: dict[str, int]) -> tuple[int, int] | None:
    """Median and maximum of numbers by how often each came; None: there are none."""
    numbers = sorted((int(number), count) for number, count in counted.items())
    left = (sum(counted.values()) + 1) // 2
    for number, count in numbers:
        left -= count
        if left <= 0:
            return number, numbers[-1][0]
    return None


def in_batches(wanted: int, size: int, run: Callable[[int], int]) -> None:
    """Call `run` with at most `size` until it has done what is wanted; it says how much it did."""
    while wanted > 0:
        wanted -= run(min(size, wanted))
