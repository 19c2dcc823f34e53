"""The examples in the documentation of Spark's functions: none is wrong, none fails foreignly."""

from collections import Counter

from documented_examples import documented_examples
from golden_sql import NO_COLUMNS
from verdicts import Verdict, judged

RIGHT_AT_LEAST = 685


def test_no_documented_example_is_wrong() -> None:
    found: Counter[Verdict] = Counter()
    bad = []
    for function, text, of, values in documented_examples():
        verdict, why = judged(text, NO_COLUMNS, of, values)
        found[verdict] += 1
        if verdict in (Verdict.WRONG, Verdict.FOREIGN):
            bad.append(f"{function} {verdict.value}: {why}")
    print({verdict.value: count for verdict, count in found.items()})
    assert not bad, "\n".join(bad)
    assert found[Verdict.RIGHT] >= RIGHT_AT_LEAST
