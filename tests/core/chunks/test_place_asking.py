"""How a client asks for places of a whole checkpoint."""

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.object_writing import GivenUp, ObjectFailed, StepDone
from holdfast.core.chunks.place_asking import PLACES_MAX, PlaceAsking, PlacesAwaited
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.machine import Effect, TimerFired

SETTINGS = ChunkSettings(resend_ms=100, operation_timeout_ms=1_000)
TURN = m.PlacesRefused("r", True, "waits for its turn")
FEW = m.PlacesRefused("r", False, "1 data nodes live, 2 copies are wanted")


def asking(chunks: int = 3) -> PlaceAsking:
    return PlaceAsking(client="c", reservation="r", host="h", chunks=chunks, settings=SETTINGS)


def sent(effects: list[Effect]) -> list[m.Message]:
    return [effect.message for effect in effects if isinstance(effect, e.SendToMaster)]


def test_it_asks_until_it_is_answered() -> None:
    machine = asking()
    question = m.PlacesRequested("c", "r", "h", 3)
    assert sent(machine.step(e.Started(), 0)) == [question]
    assert sent(machine.step(TimerFired("resend"), 100)) == [question]
    assert machine.step(m.PlacesGranted("another"), 110) == []
    assert machine.step(m.PlacesGranted("r"), 120) == [StepDone()]
    assert machine.step(TimerFired("resend"), 200) == []


def test_who_is_queued_says_so_once_and_waits_as_long_as_it_is_answered() -> None:
    machine = asking()
    machine.step(e.Started(), 0)
    assert machine.step(TURN, 10) == [PlacesAwaited()]
    for now_ms in range(900, 9_000, 900):
        assert sent(machine.step(TimerFired("resend"), now_ms))
        assert machine.step(TURN, now_ms + 1) == []
    assert machine.step(m.PlacesGranted("r"), 9_000) == [StepDone()]


def test_without_data_nodes_it_fails_in_the_end_and_says_why() -> None:
    machine = asking()
    machine.step(e.Started(), 0)
    assert machine.step(FEW, 10) == []
    effects = machine.step(TimerFired("resend"), 1_000)
    (failed,) = (effect for effect in effects if isinstance(effect, ObjectFailed))
    assert "1 data nodes live" in failed.reason
    assert sent(effects) == [m.PlacesReturned("c", "r")]


def test_who_gives_up_gives_its_places_back() -> None:
    machine = asking()
    machine.step(e.Started(), 0)
    effects = machine.step(GivenUp(), 10)
    assert sent(effects) == [m.PlacesReturned("c", "r")]
    assert machine.step(m.PlacesGranted("r"), 20) == []


def test_it_asks_for_no_more_than_peace_can_give() -> None:
    (question,) = sent(asking(PLACES_MAX + 1).step(e.Started(), 0))
    assert isinstance(question, m.PlacesRequested)
    assert question.chunks == PLACES_MAX
