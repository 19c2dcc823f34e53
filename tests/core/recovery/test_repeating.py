"""Who repeats: the largest set of units that may rely on each other."""

from holdfast.core.recovery.repeating import Reading, UnitNature, repeating


def _unit(*senders, precise=True, determined=True, gated=()):
    return UnitNature(precise, determined, tuple(Reading(s, s in gated) for s in senders))


def test_whoever_reads_what_may_change_does_not_repeat():
    units = {"a": _unit(determined=False), "b": _unit("a"), "c": _unit("b"), "d": _unit("source")}
    assert repeating(units) == {"d"}


def test_a_gate_stops_it():
    units = {"a": _unit(determined=False), "b": _unit("a", gated=("a",)), "c": _unit("b")}
    assert repeating(units) == {"b", "c"}


def test_a_unit_that_promises_less_counts_as_a_source():
    units = {"a": _unit(precise=False, determined=False), "b": _unit("a")}
    assert repeating(units) == {"b"}


def test_in_a_loop_all_repeat_or_none_does():
    loop = {"a": _unit("source", "b"), "b": _unit("a")}
    assert repeating(loop) == {"a", "b"}
    loop["b"] = _unit("a", determined=False)
    assert repeating(loop) == set()
