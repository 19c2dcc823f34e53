"""Records of a topic whose values a schema registry knows, and which of them are dead letters."""

import pytest

from holdfast.shell.kafka.client import KafkaError
from holdfast.shell.kafka.decoding import Decoder, Records


def records(*values: bytes | None) -> Records:
    count = len(values)
    return Records([0] * count, list(range(count)), [5_000_000] * count, [None] * count, [*values])


def check_dead_letters(
    good: bytes, bad: dict[bytes, str], lenient: Decoder, strict: Decoder
) -> None:
    """Bad values, between good ones, are dead letters with their reasons, or an error at the first.

    Args:
        good: A value.
        bad: Others, and what is said of each; the first is of a schema that nobody knows.
        lenient: With dead letters.
        strict: Without.
    """
    given = [each for one in bad for each in (good, one)] + [None]
    decoded = lenient.decode(records(*given), 0)
    assert decoded.is_bad.tolist() == [False, True] * len(bad) + [True]
    errors = [e for e in decoded.batch.column("kafka_error").to_pylist() if e]
    for error, said in zip(errors, [*bad.values(), "it is null"], strict=True):
        assert said in error
    with pytest.raises(KafkaError, match=r"partition 0, offset 1: .* does not know its schema"):
        strict.decode(records(*given), 0)
