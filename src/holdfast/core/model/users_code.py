"""Which function of the user's is running, as the other threads of its process can see it.

Such a function may wait for minutes, as for an answer over the network. A node that it keeps is not
stuck: whoever replaced the node would call it again.
"""

from __future__ import annotations

from typing import Final, Self


class UsersCode:
    """A process runs one operator at a time, so that one name will do.

    Attributes:
        running: The function's name; empty: none runs.
    """

    __slots__ = ("running",)

    def __init__(self) -> None:
        """None runs."""
        self.running = ""

    def of(self, name: str) -> Self:
        """To be entered as a context: the function of this name runs in it."""
        self.running = name
        return self

    def __enter__(self) -> None:
        """It runs."""

    def __exit__(self, *_: object) -> None:
        """It has returned, or raised."""
        self.running = ""


USERS_CODE: Final = UsersCode()
"""This process's."""
