"""Silence counts when the one who waits was there to hear. [HA §4]"""

from holdfast.core.model.silence import SilenceWatch


def test_at_a_check_in_time_the_limit_alone_counts() -> None:
    watch = SilenceWatch(late_ms=100)
    watch.check(50, [0], 50)
    assert not watch.is_lost("a", heard_ms=0, limit_ms=50, now_ms=50)
    watch.check(150, [99], 50)
    assert watch.is_lost("a", heard_ms=99, limit_ms=50, now_ms=150)


def test_at_a_late_check_only_who_was_missed_before_is_lost() -> None:
    watch = SilenceWatch(late_ms=100)
    watch.check(0, [0, 0], 50)
    watch.check(101, [0, 0, 90], 50)
    assert not watch.is_lost("dead", heard_ms=0, limit_ms=50, now_ms=101)
    assert not watch.is_lost("alive", heard_ms=0, limit_ms=50, now_ms=101)
    watch.check(202, [0, 110, 200], 50)
    assert watch.is_lost("dead", heard_ms=0, limit_ms=50, now_ms=202)
    assert not watch.is_lost("alive", heard_ms=110, limit_ms=50, now_ms=202)


def test_who_was_missed_long_ago_and_heard_since_is_no_suspect() -> None:
    watch = SilenceWatch(late_ms=100)
    for now_ms, heard_ms in ((0, 0), (200, 0), (210, 205), (400, 205)):
        watch.check(now_ms, [heard_ms], 50)
        assert not watch.is_lost("a", heard_ms, limit_ms=50, now_ms=now_ms)


def test_time_in_which_all_are_silent_does_not_count() -> None:
    watch = SilenceWatch(late_ms=100)

    def lost(now_ms: int, **heard_ms: int) -> list[str]:
        watch.check(now_ms, list(heard_ms.values()), 50)
        return [name for name, at_ms in heard_ms.items() if watch.is_lost(name, at_ms, 50, now_ms)]

    assert not lost(55, a=5, b=10, c=10)
    assert not lost(70, a=5, b=10, c=10)
    assert not lost(90, a=5, b=10, c=10), "all of them"
    assert not lost(130, a=5, b=120, c=10), "b is there again"
    assert not lost(140, a=5, b=120, c=135)
    assert lost(145, a=5, b=120, c=135) == ["a"]


def test_who_is_dead_is_lost_though_a_slow_one_falls_silent_again_and_again() -> None:
    watch = SilenceWatch(late_ms=100)
    slow_ms = 0
    for now_ms in range(0, 1_000, 10):
        slow_ms = now_ms if now_ms % 70 == 0 else slow_ms
        watch.check(now_ms, [0, slow_ms], 50)
        if watch.is_lost("dead", 0, 50, now_ms):
            break
    assert 60 < now_ms <= 160


def test_those_that_stay_silent_together_are_lost_all_the_same() -> None:
    watch = SilenceWatch(late_ms=100)
    times = []
    for now_ms in range(0, 400, 10):
        watch.check(now_ms, [0, 5], 50)
        if watch.is_lost("a", 0, 50, now_ms) and watch.is_lost("b", 5, 50, now_ms):
            times.append(now_ms)
    assert times[0] == 160
    watch.check(400, [5], 50)
    assert watch.is_lost("b", 5, 50, 400)


def test_a_sole_peer_has_nobody_to_be_silent_with() -> None:
    watch = SilenceWatch(late_ms=100)
    watch.check(0, [0], 50)
    watch.check(60, [0], 50)
    assert watch.is_lost("a", 0, 50, 60)
