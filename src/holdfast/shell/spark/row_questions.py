"""Questions to nodes for the rows that they have sent last; another thread hears the answers."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.coordinator.reports import RowsReported


class RowQuestions:
    """Who has been asked, and what came of it."""

    def __init__(self) -> None:
        """Nobody has."""
        self._tickets = itertools.count(1)
        self._answers: dict[int, list[RowsReported]] = {}
        self._changed = threading.Condition()

    def asked(self, tell: Callable[[int], int], timeout_s: float) -> list[RowsReported]:
        """Put a question, and wait for its answers, for so long at most.

        Args:
            tell: Puts the question of a ticket; returns how many have been asked.
            timeout_s: Of those that answer later there is no answer.
        """
        ticket = self.open()
        return self.close(ticket, tell(ticket), timeout_s)

    def open(self) -> int:
        """A new question's ticket; answers are collected until `close`."""
        with self._changed:
            ticket = next(self._tickets)
            self._answers[ticket] = []
            return ticket

    def heard(self, answer: RowsReported) -> None:
        """A node has answered; if the question is closed, too late."""
        with self._changed:
            if answer.ticket in self._answers:
                self._answers[answer.ticket].append(answer)
                self._changed.notify_all()

    def close(self, ticket: int, wanted: int, timeout_s: float) -> list[RowsReported]:
        """Wait until so many have answered, for so long at most; their answers."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._answers[ticket]) >= wanted, timeout_s)
            return self._answers.pop(ticket)
