"""Silence counts when the one who waits was there to hear. [HA §4]"""

from holdfast.core.coordinator.silence import SilenceWatch


def test_at_a_check_in_time_the_limit_alone_counts() -> None:
    watch = SilenceWatch(late_ms=100)
    watch.check(50)
    assert not watch.is_lost("a", heard_ms=0, limit_ms=50, now_ms=50)
    watch.check(150)
    assert watch.is_lost("a", heard_ms=99, limit_ms=50, now_ms=150)


def test_at_a_late_check_only_who_was_missed_before_is_lost() -> None:
    watch = SilenceWatch(late_ms=100)
    watch.check(0)
    watch.check(101)
    assert not watch.is_lost("dead", heard_ms=0, limit_ms=50, now_ms=101)
    assert not watch.is_lost("alive", heard_ms=0, limit_ms=50, now_ms=101)
    watch.check(202)
    assert watch.is_lost("dead", heard_ms=0, limit_ms=50, now_ms=202)
    assert not watch.is_lost("alive", heard_ms=110, limit_ms=50, now_ms=202)


def test_who_was_missed_long_ago_and_heard_since_is_no_suspect() -> None:
    watch = SilenceWatch(late_ms=100)
    for now_ms, heard_ms in ((0, 0), (200, 0), (210, 205), (400, 205)):
        watch.check(now_ms)
        assert not watch.is_lost("a", heard_ms, limit_ms=50, now_ms=now_ms)
