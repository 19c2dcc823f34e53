"""What everything that speaks to a Kafka broker shares: the library, settings, topics, errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.shell.storage.errors import StorageError

_RESERVED = (
    *("bootstrap.servers", "group.id", "enable.auto.commit", "enable.partition.eof"),
    *("isolation.level", "auto.offset.reset", "transactional.id", "enable.idempotence"),
    "acks",
)
_LOOK_S = 1.0
_RECONNECT_MS = 500


class KafkaError(StorageError):
    """What a topic, its records or its broker do not allow; trying again does not help."""


class KafkaInterrupted(StorageError):
    """The node ends while it waits for the broker."""


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """Which brokers to speak to, and how.

    Attributes:
        servers: `host:port`, separated by commas.
        options: More settings of librdkafka, e.g. for TLS and SASL. They may hold secrets, and are
            written nowhere.
    """

    servers: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Raises `KafkaError` for servers or options that cannot be."""
        if not isinstance(self.servers, str) or not self.servers.strip():
            raise KafkaError(f"servers={self.servers!r}; write 'host:port[,host:port]'")
        for name in self.options:
            if name in _RESERVED:
                raise KafkaError(f"option {name!r} is Holdfast's own to set; leave it out")

    def client(
        self, kind: str, settings: Mapping[str, Any], defaults: Mapping[str, Any] | None = None
    ) -> Any:
        """A `Consumer` or a `Producer` of librdkafka with these settings beside the user's.

        Args:
            kind: Which of the two; or `AdminClient`.
            settings: What the user cannot change.
            defaults: What the user can.

        Raises:
            KafkaError: A setting is not one of librdkafka's, or has no such value; or there is no
                librdkafka.
        """
        own = {
            "bootstrap.servers": self.servers,
            "log_level": 2,
            "reconnect.backoff.max.ms": _RECONNECT_MS,  # Or a broker is back for long unnoticed.
        }
        try:
            module = admin_library() if kind == "AdminClient" else library()
            return getattr(module, kind)({**own, **(defaults or {}), **self.options, **settings})
        except library().KafkaException as error:
            raise KafkaError(f"Kafka refuses its options: {code_of(error).str()}") from None
        except (TypeError, ValueError) as error:
            raise KafkaError(f"Kafka refuses its options: {error}") from None


def library() -> Any:
    """The module `confluent_kafka`. Raises `KafkaError` if the extra is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise KafkaError(
            "Kafka needs the package confluent-kafka, on the driver and on every executor: "
            f"install Holdfast with the extra 'kafka' ({error})"
        ) from None
    return confluent_kafka


def admin_library() -> Any:
    """The module `confluent_kafka.admin`. Raises as `library`."""
    library()
    import confluent_kafka.admin

    return confluent_kafka.admin


def code_of(error: Any) -> Any:
    """The `confluent_kafka.KafkaError` in an exception, or the error itself."""
    return error.args[0] if isinstance(error, BaseException) and error.args else error


def is_waiting_worth_it(error: Any) -> bool:
    """Whether an error passes when the broker is back."""
    kafka = library().KafkaError
    passing = (
        *(kafka._TRANSPORT, kafka._ALL_BROKERS_DOWN, kafka._TIMED_OUT, kafka._RESOLVE),
        *(kafka._WAIT_COORD, kafka._MAX_POLL_EXCEEDED, kafka._TIMED_OUT_QUEUE, kafka._RETRY),
        *(kafka.REQUEST_TIMED_OUT, kafka.LEADER_NOT_AVAILABLE, kafka.NOT_LEADER_FOR_PARTITION),
        *(kafka.COORDINATOR_LOAD_IN_PROGRESS, kafka.COORDINATOR_NOT_AVAILABLE),
        *(kafka.NOT_COORDINATOR, kafka.BROKER_NOT_AVAILABLE, kafka.NETWORK_EXCEPTION),
        *(kafka.NOT_ENOUGH_REPLICAS, kafka.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        *(kafka.CONCURRENT_TRANSACTIONS, kafka.UNSTABLE_OFFSET_COMMIT),
    )
    return bool(error.retriable()) or error.code() in passing


def open_looker(cluster: KafkaCluster, settings: Mapping[str, Any] | None = None) -> Any:
    """A consumer that reads and looks up what it is told to, and never joins a group.

    Raises:
        KafkaError: As `KafkaCluster.client`.
    """
    own = {
        "group.id": "holdfast",
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        "error_cb": lambda error: None,
    }
    return cluster.client("Consumer", {**own, **(settings or {})})


def open_admin(cluster: KafkaCluster) -> Any:
    """A client that asks of topics. Raises as `KafkaCluster.client`."""
    return cluster.client("AdminClient", {"error_cb": lambda error: None})


def ask_topic_id(admin: Any, topic: str) -> Any:
    """The answer to come, for `topic_id_in`."""
    asked = admin.describe_topics(library().TopicCollection([topic]), request_timeout=_LOOK_S)
    return asked[topic]


def topic_id_in(answer: Any, topic: str) -> str | None:
    """The id that tells a topic from others of its name; None while nobody knows.

    Nobody knows while the broker is away, and while there is no such topic: it may be on its way.
    Brokers before 2.8 have no ids: the text is empty.

    Raises:
        KafkaError: The topic may not be read.
    """
    try:
        found = str(answer.result(_LOOK_S).topic_id or "")
    except TimeoutError:
        return None
    except library().KafkaException as error:
        if is_waiting_worth_it(code_of(error)) or _is_unknown(code_of(error)):
            return None
        raise KafkaError(f"topic {topic!r}: {code_of(error).str()}") from None
    return found if found.strip("A") else ""  # The id of all zero bits, in base 64.


def topic_id_of(admin: Any, topic: str) -> str | None:
    """As `topic_id_in`; waits for the answer."""
    return topic_id_in(ask_topic_id(admin, topic), topic)


def partitions_of(client: Any, topic: str, timeout_s: float = _LOOK_S) -> tuple[int, ...] | None:
    """The partitions of a topic; None while the broker is away.

    Raises:
        KafkaError: There is no such topic, or it may not be read.
    """
    kafka = library()
    try:
        found = client.list_topics(topic, timeout=timeout_s).topics.get(topic)
    except kafka.KafkaException as error:
        if is_waiting_worth_it(code_of(error)):
            return None
        raise KafkaError(f"topic {topic!r}: {code_of(error).str()}") from None
    if found is None or found.error is not None or not found.partitions:
        wrong: Any = None if found is None else found.error
        if wrong is not None and is_waiting_worth_it(wrong) and not _is_unknown(wrong):
            return None
        if wrong is None or _is_unknown(wrong):
            raise KafkaError(
                f"there is no topic {topic!r}; create it, with as many partitions as it needs"
            )
        raise KafkaError(f"topic {topic!r}: {wrong.str()}")
    return tuple(sorted(found.partitions))


def _is_unknown(error: Any) -> bool:
    kafka = library().KafkaError
    return error.code() in (kafka.UNKNOWN_TOPIC_OR_PART, kafka._UNKNOWN_TOPIC)


def ends_of(client: Any, topic: str, partition: int) -> tuple[int, int] | None:
    """The first offset that a partition holds and the one after its last; None: broker away."""
    kafka = library()
    try:
        found = client.get_watermark_offsets(
            kafka.TopicPartition(topic, partition), timeout=_LOOK_S, cached=False
        )
    except kafka.KafkaException as error:
        if is_waiting_worth_it(code_of(error)):
            return None
        raise KafkaError(f"{topic}[{partition}]: {code_of(error).str()}") from None
    return None if found is None else (int(found[0]), int(found[1]))
