"""Deliberate bugs in how users' files become part of a stream; see recording_mutants.py, too."""

from __future__ import annotations

from typing import Any

from mutants import Mutant

from holdfast.core.queues.file_discovery import FileDiscovery


def _forget_what_earlier_lives_have_read(original: Any) -> Any:
    """All but the newest commit."""

    def recorded(self: FileDiscovery, commit: Any) -> None:
        self._seen.clear()
        original(self, commit)

    return recorded


FILES_MUTANTS: dict[str, Mutant] = {
    "forgets what earlier lives have read": Mutant(
        FileDiscovery, "recorded", _forget_what_earlier_lives_have_read, ()
    ),
}
