"""Protections by the names that the command line has for them."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from holdfast.api.protections.base import Protection, interval_ms_of
from holdfast.api.protections.checkpointed import Checkpointed
from holdfast.api.protections.eventual import EventualCheckpoints
from holdfast.api.protections.regions import (
    CommunicationInduced,
    Coordinated,
    Uncoordinated,
)
from holdfast.api.protections.replay import Amnesia, Unprotected, UpstreamBackup
from holdfast.api.protections.replicated import Replicated
from holdfast.api.protections.standbys import ActiveStandby, PassiveStandby
from holdfast.errors import OptionError, UnsupportedError

PROTECTIONS_BY_NAME: Final[dict[str, type[Protection]]] = {
    "amnesia": Amnesia,
    "upstream-backup": UpstreamBackup,
    "active-standby": ActiveStandby,
    "passive-standby": PassiveStandby,
    "checkpointed": Checkpointed,
    "uncoordinated": Uncoordinated,
    "coordinated": Coordinated,
    "communication-induced": CommunicationInduced,
    "eventual-checkpoints": EventualCheckpoints,
    "replicated": Replicated,
    "none": Unprotected,
}
"""What `--protection` takes."""


def parse_protection(name: str, guarantee: str | None, interval: str | None) -> Protection:
    """A protection by its command-line name; None stands for its own default.

    Raises:
        UnsupportedError: There is none of that name.
        OptionError: It has no interval, or the interval is too short.
        DataflowError: The interval is no duration.
    """
    chosen = PROTECTIONS_BY_NAME.get(name)
    if chosen is None:
        raise UnsupportedError(f"protection {name!r}; there are {', '.join(PROTECTIONS_BY_NAME)}")
    given = {"guarantee": guarantee, "interval": interval}
    settings = {key: value for key, value in given.items() if value is not None}
    if "interval" in settings and "interval" not in [field.name for field in fields(chosen)]:
        raise OptionError(f"protection {name!r} has no interval")
    made = chosen(**settings)
    if interval is not None:
        interval_ms_of(made, interval)  # Starting would ask no sooner than Spark runs.
    return made
