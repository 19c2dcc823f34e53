"""Reading an object, one claim at a time."""

from __future__ import annotations

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.messages import ChunkId, StoredChunk
from holdfast.core.chunks.object_reading import ObjectReading, ReadOutOfReach, ReadWaits
from holdfast.core.chunks.object_writing import ObjectFailed
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.machine import Effect, TimerFired

SETTINGS = ChunkSettings(operation_timeout_ms=1_000, reach_timeout_ms=5_000)
STORED = StoredChunk(ChunkId("1-7"), 10, 77)
AWAY = (m.Home("data-0", "m0"), m.Home("data-1", "m1"))


class Story:
    """A read of which the master says the same again and again."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.copies: tuple[m.Replica, ...] = ()
        self.reading = ObjectReading(
            client="c", name="n-1/x", offset=0, size=10, first_request=1, settings=SETTINGS
        )
        self.effects = self.tell(e.Started())

    def tell(self, stimulus: e.Started | m.Message | TimerFired) -> list[Effect]:
        effects = self.reading.step(stimulus, self.now_ms)
        self.reading.check_invariants()
        for effect in list(effects):
            asked = effect.message if isinstance(effect, e.SendToMaster) else None
            if isinstance(asked, m.ObjectLocateRequested):
                chunks = (m.ChunkCopies(STORED, self.copies),)
                away = () if self.copies else AWAY
                effects += self.tell(m.ObjectLocated(asked.request, chunks, away))
        return effects

    def wait(self, until_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        while self.now_ms < until_ms:
            self.now_ms += 100
            effects += self.tell(TimerFired("read"))
        return effects


def test_a_chunk_without_a_live_copy_is_waited_for_and_then_named_with_its_data_nodes() -> None:
    story = Story()
    what = "n-1/x: no data node within reach has chunk 1-7"
    where = "(data-0 is not on m0, data-1 is not on m1)"
    assert ReadWaits(f"{what} {where}") in story.wait(300)
    assert not any(isinstance(effect, ReadOutOfReach) for effect in story.wait(4_900))
    assert ReadOutOfReach(f"{what} {where}, for 5000 ms") in story.wait(5_000)


def test_a_copy_that_comes_within_reach_is_asked_and_has_its_own_time_to_answer() -> None:
    story = Story()
    story.wait(4_000)
    story.copies = (m.Replica("data-0", 1, "at data-0"),)
    effects = story.wait(4_500)
    assert any(isinstance(effect, e.SendToEndpoint) for effect in effects)
    assert ReadWaits("") in effects
    assert not any(isinstance(effect, ObjectFailed) for effect in effects)
