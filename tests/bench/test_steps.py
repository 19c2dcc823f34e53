"""The page of steps says what every step took of a real recording, and what it is bounded by."""

from holdfast_bench import steps
from holdfast_bench.steps import Sizes


def test_every_step_of_both_queries_is_measured_and_has_its_bound() -> None:
    results = steps.run(Sizes(120_000, 1), lambda _: None)
    assert [cost["step"] for cost in results["steps"]["q1"]] == [
        "read the log",
        "thereof checksum, validation",
        "passes",
        "write the sink's log",
    ]
    q12 = {(cost["process"], cost["step"]): cost for cost in results["steps"]["q12"]}
    assert len(q12) == 9
    assert all(cost["bytes"] > 0 and cost["bound_ns"] > 0 for cost in q12.values())
    assert q12["ingest", "passes"]["bytes"] == 40, "four columns and the time"
    assert q12["ingest, counts", "channel"]["bytes"] < 4, "24 bytes for a dozen bids"
    page = steps.render(results)
    assert "## q12" in page
    assert "| ingest, counts | the same without encryption | " in page
