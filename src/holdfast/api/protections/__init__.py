"""Protections: what a failure may cost. [HA §3.1, §4]

Each approach is a class here, chosen for the dataflow or for every unit of it; a family has a file.
"""

from holdfast.api.protections.base import Protection
from holdfast.api.protections.by_name import PROTECTIONS_BY_NAME, parse_protection
from holdfast.api.protections.checkpointed import CHECKPOINT_FOLDER, Checkpointed, StoredCheckpoints
from holdfast.api.protections.eventual import EventualCheckpoints
from holdfast.api.protections.of_units import Protections
from holdfast.api.protections.regions import (
    CommunicationInduced,
    Coordinated,
    RegionCheckpoints,
    Uncoordinated,
)
from holdfast.api.protections.replay import Amnesia, Unprotected, UpstreamBackup
from holdfast.api.protections.replicated import Replicated
from holdfast.api.protections.standbys import ActiveStandby, PassiveStandby

__all__ = [
    "CHECKPOINT_FOLDER",
    "PROTECTIONS_BY_NAME",
    "ActiveStandby",
    "Amnesia",
    "Checkpointed",
    "CommunicationInduced",
    "Coordinated",
    "EventualCheckpoints",
    "PassiveStandby",
    "Protection",
    "Protections",
    "RegionCheckpoints",
    "Replicated",
    "StoredCheckpoints",
    "Uncoordinated",
    "Unprotected",
    "UpstreamBackup",
    "parse_protection",
]
