"""What a query shows, as objects of its checkpoint location, for those who look when it is gone.

`view/<epoch>-plan.json` says how a run is placed; `view/<epoch>-<n>.json` is its n-th report. A new
report is there before the one before it is deleted, so that whoever looks always finds one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.core.wire.sealed_json import encode_sealed
from holdfast.shell.storage.places import read_if_any, store_at
from holdfast.shell.storage.small_files import decode

FOLDER: Final = "view"
_PLAN: Final = "plan"
_NAME: Final = re.compile(rf"{FOLDER}/(\d{{10}})-(\d{{10}}|{_PLAN})\.json")
_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class Kept:
    """What the newest run has left.

    Attributes:
        epoch: Of its coordinator; greater ones are later runs.
        plan: How it was placed.
        report: Its last report; None: it has left none.
    """

    epoch: int
    plan: dict[str, Any]
    report: dict[str, Any] | None


class ShownBox:
    """The objects of one run. Raises `StoreUnavailable` and `StorageError`."""

    def __init__(self, location: str, epoch: int, plan: Mapping[str, Any]) -> None:
        """Say how it is placed; what earlier runs have left goes with this run's first report."""
        self._store = store_at(location)
        self._epoch = epoch
        self._reports = 0
        self._former = list(_names(self._store.names(FOLDER)))
        self._put(_PLAN, plan)

    def report(self, report: Mapping[str, Any]) -> None:
        """Keep this instead of the report before it."""
        name = self._put(f"{self._reports:010d}", report)
        self._reports += 1
        for former in self._former:
            self._store.delete(former)
        self._former = [name]

    def _put(self, name: str, value: Mapping[str, Any]) -> str:
        plain = json.loads(json.dumps(value, default=str))  # As whoever reads it has it.
        path = f"{FOLDER}/{self._epoch:010d}-{name}.json"
        self._store.put(path, [encode_sealed(plain)])
        return path


def newest_kept(location: str) -> Kept | None:
    """What the newest run at a location has left; None: nothing.

    Raises:
        FileDamaged: It is not what was written.
    """
    store = store_at(location)
    for _ in range(_LOOKS):  # A report that is deleted meanwhile has a successor.
        names = _names(store.names(FOLDER))
        plans = [name for name, (_, part) in names.items() if part == _PLAN]
        if not plans:
            return None
        epoch = max(names[name][0] for name in plans)
        of_run = [name for name in sorted(names) if names[name][0] == epoch]
        reports = [name for name in of_run if names[name][1] != _PLAN]
        plan = _read(location, f"{FOLDER}/{epoch:010d}-{_PLAN}.json")
        report = _read(location, reports[-1]) if reports else None
        if plan is not None and (report is not None or not reports):
            return Kept(epoch, plan, report)
    return None


def _read(location: str, name: str) -> dict[str, Any] | None:
    content = read_if_any(store_at(location), name)
    return None if content is None else decode(content, f"{location}/{name}", dict)


def _names(found: list[str]) -> dict[str, tuple[int, str]]:
    """The epoch and the rest of the name, by name."""
    matches = {name: match for name in found if (match := _NAME.fullmatch(name))}
    return {name: (int(match[1]), match[2]) for name, match in matches.items()}
