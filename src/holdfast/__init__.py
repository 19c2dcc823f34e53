"""Holdfast: streaming jobs on Spark that survive crashes.

import holdfast as hf

spark = hf.session()
flow = hf.Dataflow("bids")
...
query = flow.start(spark, checkpointLocation="/tmp/bids")
"""

from holdfast.api.dataflow import Dataflow, Stream
from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.errors import (
    DataflowError,
    HoldfastError,
    NotEnoughHostsError,
    NotEnoughSlotsError,
    OptionError,
    QueryFailedError,
    RescalingError,
    UnsupportedError,
)
from holdfast.api.listeners import queries
from holdfast.api.protections import (
    ActiveStandby,
    Amnesia,
    Checkpointed,
    PassiveStandby,
    Protection,
    Unprotected,
    UpstreamBackup,
)
from holdfast.api.query import Query
from holdfast.api.security import InsecureClusterWarning
from holdfast.api.session import register, session
from holdfast.api.windows import counting, sliding, tumbling

__version__ = "0.1.0"

__all__ = [
    "ActiveStandby",
    "Amnesia",
    "Checkpointed",
    "Dataflow",
    "DataflowError",
    "EmbeddedStore",
    "HoldfastError",
    "InsecureClusterWarning",
    "NotEnoughHostsError",
    "NotEnoughSlotsError",
    "OptionError",
    "PassiveStandby",
    "Protection",
    "Query",
    "QueryFailedError",
    "RescalingError",
    "Stream",
    "Unprotected",
    "UnsupportedError",
    "UpstreamBackup",
    "counting",
    "queries",
    "register",
    "session",
    "sliding",
    "tumbling",
]
