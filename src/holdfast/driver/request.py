"""What a user has asked to run, and how: read and checked, and placed as often as it is needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.haunit.plan import NodeLimits
from holdfast.driver.options import PREFIX
from holdfast.errors import OptionError
from holdfast.planning.plan import Plan, plan_dataflow
from holdfast.shell.storage.places import is_remote
from holdfast.shell.transport.addresses import Ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from holdfast.api.embedded_store import EmbeddedStore
    from holdfast.api.graph import Graph
    from holdfast.api.protections import Protections
    from holdfast.driver.changes import Wish
    from holdfast.driver.retention import Retentions


@dataclass(frozen=True, slots=True)
class Request:
    """A dataflow that is to run.

    Attributes:
        flow: The dataflow.
        spark: The session.
        location: The checkpoint location.
        protections: What a failure may cost, by unit.
        parallelism: Instances of units that can have several, for all or by unit.
        retentions: How much is kept of each log.
        values: The options `spark.holdfast.*`, by their names without that.
        wishes: Of a changed dataflow, which state is kept or dropped where that must be said.
    """

    flow: Graph
    spark: SparkSession
    location: str
    protections: Protections
    parallelism: int | dict[str, int]
    values: dict[str, int]
    retentions: Retentions
    wishes: Mapping[str, Wish]

    @property
    def wait_s(self) -> float:
        """How long slots and executors may take to be there."""
        return self.values["launchTimeoutMs"] / 1e3

    def place(
        self, counts: int | dict[str, int] | None = None, given: Protections | None = None
    ) -> Plan:
        """Plan it.

        Args:
            counts: Other numbers of instances.
            given: Other protections.

        Raises:
            DataflowError: It cannot be placed so.
        """
        protections = given or self.protections
        return plan_dataflow(
            self.flow,
            self.location,
            parallelism=self.parallelism if counts is None else counts,
            limits=node_limits(self.values),
            protection=lambda unit: protections.of(unit).of_unit(),
            has_parts=bool(self.values["partialAggregates"]),
        )

    def embedded_store(self) -> EmbeddedStore | None:
        """The chunk store that the query runs itself, if it does.

        Raises:
            OptionError: Nobody says where its data nodes keep their chunks.
        """
        store = self.protections.embedded
        if store is None:
            return None
        if is_remote(self.location) and not store.local_directory:
            raise OptionError(
                f"EmbeddedStore() with {self.location} needs local_directory, a folder"
            )
        return store


def session_options(conf: Mapping[str, str], of_session: Mapping[str, str]) -> dict[str, str]:
    """What settings of Spark say to Holdfast.

    Args:
        conf: Those of Spark's start.
        of_session: Those of the session, with what `spark.conf.set` has said; these count.
    """
    given = {**conf, **of_session}
    return {key: value for key, value in given.items() if key.startswith(PREFIX)}


def node_limits(values: dict[str, int]) -> NodeLimits:
    """Bounds and periods of nodes. Raises `OptionError` for some that exclude each other."""
    if values["passTuples"] > values["inputQueueTuples"]:
        raise OptionError(f"{PREFIX}passTuples is larger than {PREFIX}inputQueueTuples")
    if values["pageBytes"].bit_count() != 1:
        raise OptionError(f"{PREFIX}pageBytes={values['pageBytes']} is no power of two")
    return NodeLimits(
        input_queue_tuples=values["inputQueueTuples"],
        output_queue_tuples=values["outputQueueTuples"],
        output_queue_bytes=values["outputQueueBytes"],
        pass_tuples=values["passTuples"],
        ack_interval_ms=values["ackIntervalMs"],
        keep_alive_ms=values["keepAliveMs"],
        resubscribe_ms=3 * values["keepAliveMs"],
        page_bytes=values["pageBytes"],
        state_bytes=values["stateBytesMax"],
    )


def ports_of(values: dict[str, int]) -> Ports:
    """Those that processes may listen on. Raises `OptionError` if there is none."""
    low, high = values["portMin"], values["portMax"]
    if low >= high:
        raise OptionError(f"{PREFIX}portMin={low} is not below {PREFIX}portMax={high}")
    return Ports(low, high)
