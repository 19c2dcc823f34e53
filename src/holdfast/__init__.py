"""Holdfast: streaming jobs on Spark that survive crashes.

import holdfast as hf

spark = hf.session()
flow = hf.Dataflow("bids")
...
query = flow.start(spark, checkpointLocation="/tmp/bids")

A name is imported when it is first used: Spark starts Python workers that need one module of the
package, and all of it takes them seconds of a processor.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.api.dataflow import Dataflow
    from holdfast.api.embedded_store import EmbeddedStore
    from holdfast.api.protections import (
        ActiveStandby,
        Amnesia,
        Checkpointed,
        CommunicationInduced,
        Coordinated,
        EventualCheckpoints,
        PassiveStandby,
        Protection,
        Replicated,
        Uncoordinated,
        Unprotected,
        UpstreamBackup,
    )
    from holdfast.api.streams import Stream
    from holdfast.api.windows import counting, sessions, sliding, tumbling
    from holdfast.driver.listeners import queries
    from holdfast.driver.query import Query
    from holdfast.driver.security import InsecureClusterWarning
    from holdfast.driver.session import register, session
    from holdfast.errors import (
        DataflowError,
        HoldfastError,
        NotEnoughHostsError,
        NotEnoughSlotsError,
        OptionError,
        QueryFailedError,
        RescalingError,
        UnsupportedError,
    )
    from holdfast.view.metrics import serve_metrics
    from holdfast.view.spark_sinks import metrics_to_spark
    from holdfast.view.traces import send_traces

__version__ = "0.1.0"

__all__ = [
    "ActiveStandby",
    "Amnesia",
    "Checkpointed",
    "CommunicationInduced",
    "Coordinated",
    "Dataflow",
    "DataflowError",
    "EmbeddedStore",
    "EventualCheckpoints",
    "HoldfastError",
    "InsecureClusterWarning",
    "NotEnoughHostsError",
    "NotEnoughSlotsError",
    "OptionError",
    "Pass",
    "PassiveStandby",
    "Protection",
    "Query",
    "QueryFailedError",
    "Replicated",
    "RescalingError",
    "Stream",
    "Uncoordinated",
    "Unprotected",
    "UnsupportedError",
    "UpstreamBackup",
    "counting",
    "metrics_to_spark",
    "queries",
    "register",
    "send_traces",
    "serve_metrics",
    "session",
    "sessions",
    "sliding",
    "tumbling",
]

_HOMES = {
    "api.dataflow": ("Dataflow",),
    "api.streams": ("Stream",),
    "api.embedded_store": ("EmbeddedStore",),
    "api.functions": ("Pass",),
    "errors": (
        "DataflowError",
        "HoldfastError",
        "NotEnoughHostsError",
        "NotEnoughSlotsError",
        "OptionError",
        "QueryFailedError",
        "RescalingError",
        "UnsupportedError",
    ),
    "driver.listeners": ("queries",),
    "api.protections.base": ("Protection",),
    "api.protections.checkpointed": ("Checkpointed",),
    "api.protections.eventual": ("EventualCheckpoints",),
    "api.protections.regions": ("CommunicationInduced", "Coordinated", "Uncoordinated"),
    "api.protections.replay": ("Amnesia", "Unprotected", "UpstreamBackup"),
    "api.protections.replicated": ("Replicated",),
    "api.protections.standbys": ("ActiveStandby", "PassiveStandby"),
    "driver.query": ("Query",),
    "driver.security": ("InsecureClusterWarning",),
    "driver.session": ("register", "session"),
    "view.metrics": ("serve_metrics",),
    "view.spark_sinks": ("metrics_to_spark",),
    "view.traces": ("send_traces",),
    "api.windows": ("counting", "sessions", "sliding", "tumbling"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
