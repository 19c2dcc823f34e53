"""Every setting, with its unit, default, bounds and the papers' symbol."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import OptionError

PREFIX = "spark.holdfast."


@dataclass(frozen=True, slots=True)
class Option:
    """One setting.

    Attributes:
        name: Without the prefix `spark.holdfast.`.
        default: Its default.
        low: Least value allowed.
        high: Largest value allowed.
        meaning: For people, with unit and symbol.
    """

    name: str
    default: int
    low: int
    high: int
    meaning: str


OPTIONS: tuple[Option, ...] = (
    Option(
        "ackIntervalMs",
        50,
        1,
        60_000,
        "M of HA §5.2: acknowledgements, up to four apart at low rates; ms",
    ),
    Option("keepAliveMs", 100, 10, 60_000, "period of keep-alives; ms"),
    Option("keepAliveMisses", 3, 1, 100, "keep-alives missed until a node is taken for dead"),
    Option(
        "driverLeaseMs",
        1_000,
        100,
        3_600_000,
        "time without a word in the journal until a driver in standby takes over; ms; at a URL at "
        "least 10 s",
    ),
    Option("launchTimeoutMs", 30_000, 1_000, 3_600_000, "time a node may take to come up; ms"),
    Option(
        "failuresMax", 10, 1, 1_000_000, "failures of one node in the window that end the query"
    ),
    Option("failureWindowMs", 10_000, 100, 3_600_000, "the window of failuresMax; ms"),
    Option("inputQueueTuples", 1 << 18, 1, 1 << 30, "unprocessed tuples per input stream"),
    Option("outputQueueTuples", 1 << 18, 1, 1 << 30, "unsent tuples per output stream"),
    Option("outputQueueBytes", 256 << 20, 1 << 10, 1 << 40, "retained bytes before spilling"),
    Option("passTuples", 1 << 16, 1, 1 << 24, "tuples a node processes at a time"),
    Option(
        "readFilesInNodes",
        1,
        0,
        1,
        "0 has Spark read the files of flow.source(df) also where nodes could read them",
    ),
    Option("partialAggregates", 1, 0, 1, "0 sends every tuple of a recorded source to aggregates"),
    Option(
        "niceness",
        0,
        -20,
        19,
        "scheduling priority of nodes beside other sessions of their machine; a negative one needs "
        "the privilege, and has no effect without",
    ),
    Option("pageBytes", 8 << 10, 512, 1 << 20, "size of a page of state; a power of two"),
    Option("stateBytesMax", 4 << 30, 1 << 20, 1 << 44, "pages of one node, clones included; bytes"),
    Option("portMin", 49_152, 1_024, 65_535, "least port where the driver and nodes listen"),
    Option("portMax", 65_536, 1_025, 65_536, "one above the greatest port"),
    Option(
        "drainTimeoutMs",
        600_000,
        1_000,
        86_400_000,
        "time that working off the logs may take before other numbers of instances; ms",
    ),
    Option(
        "reachTimeoutMs",
        60_000,
        100,
        86_400_000,
        "time that a restoration, and data nodes of EmbeddedStore, wait for the machines of chunks "
        "without a live copy; ms",
    ),
    Option("progressIntervalMs", 1_000, 50, 3_600_000, "period of progress reports; ms"),
    Option("progressReportsKept", 100, 1, 100_000, "reports that recentProgress keeps"),
    Option(
        "metricsIntervalMs",
        10_000,
        0,
        3_600_000,
        "period of rows in the log of metrics; ms; 0 keeps none",
    ),
    Option(
        "retentionIntervalMs",
        60_000,
        100,
        86_400_000,
        "period of removing what `retention` does not keep; ms",
    ),
    Option(
        "locationMode",
        700,
        700,
        777,
        "rights of a checkpoint location that is a folder, and of all in it, as chmod takes them; "
        "770 for executors that run as another user of the driver's group",
    ),
    Option("allowInsecureCluster", 0, 0, 1, "1 starts without Spark's authentication"),
)
_BY_NAME = {option.name: option for option in OPTIONS}


def read_options(given: dict[str, str]) -> dict[str, int]:
    """All settings, those given (with their prefix) checked and taken over.

    Raises:
        OptionError: Unknown name, no whole number, or out of bounds.
    """
    values = {option.name: option.default for option in OPTIONS}
    for key, text in given.items():
        if not key.startswith(PREFIX):
            raise OptionError(f"{key!r} is no setting of Holdfast: they begin with {PREFIX!r}")
        option = _BY_NAME.get(key.removeprefix(PREFIX))
        if option is None:
            raise OptionError(f"unknown setting {key!r}; there are {', '.join(sorted(_BY_NAME))}")
        try:
            value = int({"true": "1", "false": "0"}.get(text.lower(), text))
        except ValueError:
            raise OptionError(f"{key}={text!r} is no whole number") from None
        if not option.low <= value <= option.high:
            raise OptionError(f"{key}={value}; it lies between {option.low} and {option.high}")
        values[option.name] = value
    return values
