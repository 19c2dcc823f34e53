"""Deliberate bugs are in code that is there, by the name that it has now."""

from contextlib import AbstractContextManager
from typing import Protocol

import pytest
from checkpoint_mutants import CHECKPOINT_MUTANTS
from chunk_mutants import CHUNK_MUTANTS
from line_mutants import LINE_MUTANTS
from recording_mutants import RECORDING_MUTANTS
from test_mutants import SEPARATE
from topic_mutants import TOPIC_MUTANTS


class Bug(Protocol):
    """What all kinds of mutants have."""

    def switched_in(self) -> AbstractContextManager[None]:
        """The bug is there within the block."""


ALL: dict[str, Bug] = {
    **SEPARATE,
    **CHECKPOINT_MUTANTS,
    **CHUNK_MUTANTS,
    **LINE_MUTANTS,
    **RECORDING_MUTANTS,
    **TOPIC_MUTANTS,
}


@pytest.mark.parametrize("name", ALL)
def test_what_a_bug_replaces_is_there(name: str) -> None:
    """Runs by seed take minutes to tell that a method was renamed; this takes none."""
    with ALL[name].switched_in():
        pass
