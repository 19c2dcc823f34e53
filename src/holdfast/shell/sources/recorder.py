"""What makes a source's rows part of its ingest log while a query runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Recorder(Protocol):
    """One source on its way into its log; `Ingest` for DataFrames, `FileRecorder` for files."""

    name: str
    way: str
    is_paced: bool

    @property
    def error(self) -> str | None:
        """Why nothing more can be recorded, or None."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether nothing will follow in its log."""
        ...

    @property
    def is_streaming(self) -> bool:
        """Whether it records more than what is there at its first start."""
        ...

    @property
    def is_unbounded(self) -> bool:
        """Whether rows may come for as long as the query runs."""
        ...

    @property
    def is_available_now(self) -> bool:
        """Whether it reads what there is, and a later run goes on behind that."""
        ...

    def start(self, spark: SparkSession) -> None:
        """Begin."""
        ...

    def process_all_available(self) -> None:
        """Wait until what is there now has been recorded."""
        ...

    def wait(self) -> None:
        """Wait until what is bounded has been recorded."""
        ...

    def stop(self) -> None:
        """Record no more; returns when nothing does."""
        ...

    def still_there(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Which of users' files that it has recorded there still are; from any thread."""
        ...
