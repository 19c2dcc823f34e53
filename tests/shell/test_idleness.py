"""When Spark is idle behind a batch: then its watermark counts before the next one."""

import pytest

from holdfast.shell.spark.watermarks import has_found_nothing


@pytest.mark.parametrize(
    ("message", "is_data_available"),
    [
        ("Initializing sources", False),
        ("Initializing StreamExecution", False),
        ("Getting offsets from FileStreamSource[file:/in]", False),
        ("Writing offsets to log", False),
        ("Processing new data", True),
    ],
)
def test_a_query_that_catches_up_is_not_idle_between_its_batches(
    message: str, is_data_available: bool
) -> None:
    """As Spark said it one after the other while thirty batches waited."""
    status = {"message": message, "isDataAvailable": is_data_available, "isTriggerActive": True}
    assert not has_found_nothing(status)


def test_a_query_whose_trigger_found_nothing_is_idle() -> None:
    status = {
        "message": "Waiting for data to arrive",
        "isDataAvailable": False,
        "isTriggerActive": False,
    }
    assert has_found_nothing(status)
