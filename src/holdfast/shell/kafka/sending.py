"""Gives tuples to a producer in the order of their ids, and knows which of them the broker has."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.shell.kafka.client import library
from holdfast.shell.kafka.encoding import HEADER

if TYPE_CHECKING:
    from holdfast.shell.kafka.sink import KafkaSinkSpec

_CALL_S = 1.0
_WAIT_S = 0.1
_PURGE_S = 5.0

Batches = list[tuple[int, pa.RecordBatch]]
"""First ids, and the tuples from there on."""


class GivenUp(Exception):
    """Tuples go another way."""


class Sending:
    """The way of a sink's tuples into one producer.

    Several threads may give tuples. Only one may wait for the broker: reports of deliveries come
    while it does.
    """

    def __init__(self, spec: KafkaSinkSpec, producer: Any, next_id: int) -> None:
        """Begin with the tuple of this id.

        Args:
            spec: The sink.
            producer: The library's.
            next_id: Of the tuple that is to be given first.
        """
        self._spec = spec
        self._producer = producer
        self._deliveries: deque[_Delivery] = deque()
        self._giving = threading.Lock()
        self._next_id = next_id
        self.is_held_up = False  # what was offered last was not taken
        self.is_delivered = False  # what was awaited last
        self._is_given_up = False
        self.at = "one of the tuples"  # what could not be written, for messages
        self.failed: Any = None  # what the first record met that was refused
        self.moved_s = time.monotonic()  # when it last came further

    def offer(self, waiting_from: Callable[[int], Batches]) -> None:
        """Give tuples as far as that is possible at once; once it is not, wait for `give`.

        Args:
            waiting_from: What is not settled, from an id on.
        """
        if self.is_held_up or not self._giving.acquire(blocking=False):
            return
        try:
            self.is_held_up = True
            for first_id, batch in waiting_from(self._next_id):
                if not self._give(first_id, batch, is_patient=False):
                    return
            self.is_held_up = False
        except (library().KafkaException, GivenUp):
            pass  # The one meets `give` too, whose caller judges it; after the other it goes on.
        finally:
            self._giving.release()

    def give(self, batches: Batches) -> None:
        """Give tuples that were not given before, as fast as the broker takes them."""
        with self._giving:
            for first_id, batch in from_id(batches, self._next_id):
                self._give(first_id, batch, is_patient=True)
            self.is_held_up = False

    def give_up(self) -> None:
        """Let no more tuples into the producer, and drop what it still has.

        Whoever gives or waits meanwhile meets `GivenUp`. Returns when reports of all are in, so
        that nothing keeps the producer, or when they have been waited for long enough.
        """
        self._is_given_up = True
        with self._giving:  # Whoever gives looks up every `_WAIT_S`.
            self._producer.purge(blocking=False)
        deadline_s = time.monotonic() + _PURGE_S
        while len(self._producer) and time.monotonic() < deadline_s:
            self._producer.poll(_WAIT_S)

    def _require_wanted(self) -> None:
        if self._is_given_up:
            raise GivenUp(f"sink {self._spec.stream} has been opened again meanwhile")

    def _give(self, first_id: int, batch: pa.RecordBatch, *, is_patient: bool) -> bool:
        spec = self._spec
        delivery = _Delivery(self, first_id)
        self._deliveries.append(delivery)
        self._require_wanted()
        for number, record in enumerate(spec.encoder.records(batch), first_id):
            header = [(HEADER, f"{spec.stream}/{number}")]
            while record is not None and not self._is_taken(*record, header, delivery):
                if not is_patient:
                    return False
                self._producer.poll(_WAIT_S)
                self._require_wanted()
            self._next_id = number + 1
            delivery.given += record is not None
            if number % 1024 == 0:
                self._require_wanted()
                self.moved_s = time.monotonic()
        return True

    def _is_taken(
        self, key: bytes | None, value: bytes | None, header: list[Any], delivery: _Delivery
    ) -> bool:
        try:
            self._producer.produce(
                self._spec.topic, value, key, headers=header, on_delivery=delivery.report
            )
        except BufferError:
            return False
        except library().KafkaException:
            self.at = f"tuple {self._next_id}"
            raise
        return True

    def hear(self) -> None:
        """Take the reports of deliveries that are there."""
        self._producer.poll(0)

    def flush(self) -> None:
        """Return when the broker has all there is. Raises what the first refused record met."""
        left = len(self._producer) + 1
        while left:
            now_left = self._producer.flush(_CALL_S)
            if now_left < left:
                self.moved_s = time.monotonic()
            left = now_left
            self.require_none_failed()

    def await_delivery(self, before_id: int) -> None:
        """Return when the broker has all tuples before an id, whatever is given meanwhile.

        However long that takes: the library tries again by itself. Raises what the first refused
        record met. Needs a producer that reports all deliveries.
        """
        self.is_delivered = False
        deliveries = self._deliveries
        while deliveries and deliveries[0].first_id < before_id:
            if deliveries[0].is_over:
                deliveries.popleft()
            else:
                self._producer.poll(_WAIT_S)
            self.moved_s = time.monotonic()
            self._require_wanted()
            self.require_none_failed()
        self.is_delivered = True

    def require_none_failed(self) -> None:
        """Raise what the first refused record met, if one was."""
        if self.failed is not None:
            raise library().KafkaException(self.failed)


class _Delivery:
    """Tuples that were given together."""

    def __init__(self, sending: Sending, first_id: int) -> None:
        self._sending = sending
        self._reported = 0
        self.first_id = first_id
        self.given = 0

    @property
    def is_over(self) -> bool:
        """Whether the broker has all that were given."""
        return self._reported == self.given

    def report(self, error: Any, message: Any) -> None:
        """The library's word of one record."""
        del message
        self._reported += 1
        if error is not None and self._sending.failed is None:
            self._sending.failed = error


def from_id(batches: Batches, first: int) -> Batches:
    """The tuples from an id on."""
    return [
        (max(first_id, first), batch.slice(max(0, first - first_id)))
        for first_id, batch in batches
        if first_id + batch.num_rows > first
    ]


def first_part(batches: Batches, tuples: int, size: int) -> Batches:
    """The tuples that come first.

    Args:
        batches: All of them.
        tuples: How many to take at most.
        size: How many bytes, about, at most; one tuple is taken whatever its size.
    """
    found: Batches = []
    for first_id, batch in batches:
        each = batch.nbytes / max(1, batch.num_rows)
        fit = min(tuples, int(size / each)) if each else tuples
        part = batch.slice(0, fit if found else max(1, fit))
        if not part.num_rows:
            break
        found.append((first_id, part))
        tuples -= part.num_rows
        size -= int(part.num_rows * each)
        if part.num_rows < batch.num_rows:
            break
    return found
