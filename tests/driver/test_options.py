"""Settings: unknown names, bad values and bounds are refused, with what would do."""

import pytest

from holdfast.driver.options import OPTIONS, PREFIX, read_options
from holdfast.errors import OptionError


def test_defaults_lie_within_their_bounds() -> None:
    values = read_options({})
    for option in OPTIONS:
        assert option.low <= values[option.name] <= option.high


def test_given_values_replace_defaults() -> None:
    assert read_options({f"{PREFIX}ackIntervalMs": "7"})["ackIntervalMs"] == 7
    assert read_options({f"{PREFIX}allowInsecureCluster": "true"})["allowInsecureCluster"] == 1


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("ackIntervalMs", "7", "begin with 'spark.holdfast.'"),
        (f"{PREFIX}ackInterval", "7", "unknown setting .* there are .*ackIntervalMs"),
        (f"{PREFIX}ackIntervalMs", "soon", "'soon' is no whole number"),
        (f"{PREFIX}ackIntervalMs", "0", "lies between 1 and 60000"),
    ],
)
def test_bad_settings_are_refused(key: str, value: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_options({key: value})
