"""The chunk master, one claim at a time."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from holdfast.core.chunks import effects as e
from holdfast.core.chunks import messages as m
from holdfast.core.chunks.chunk_master import ChunkMaster
from holdfast.core.chunks.data_node import DataNode, DataNodeIdentity
from holdfast.core.chunks.messages import ChunkId, StoredChunk
from holdfast.core.chunks.settings import ChunkSettings
from holdfast.core.machine import Effect, Machine, Stimulus, TimerFired
from holdfast.core.peace.messages import CopyConstraint, PeaceSettings
from holdfast.core.peace.network_model import NetworkModel
from holdfast.core.peace.peace import Peace

SETTINGS = ChunkSettings(copies=2, keep_alive_ms=100, misses=3, recopy_delay_ms=500)
T = TypeVar("T", bound=m.Message)


class Story:
    """A master, what it is told, and what it says."""

    def __init__(self, epoch: int = 1, journal: tuple[dict[str, object], ...] = ()) -> None:
        self.placement: Machine | None = None
        self.now_ms = 1_000
        self.journal: list[dict[str, object]] = list(journal)
        self.master = ChunkMaster(epoch=epoch, settings=SETTINGS, journal=journal)
        self.tell(e.Started())

    def tell(self, stimulus: Stimulus) -> list[Effect]:
        """All effects; journal entries are written at once."""
        effects = self.master.step(stimulus, self.now_ms)
        self.master.check_invariants()
        for effect in list(effects):
            if isinstance(effect, e.WriteJournal):
                self.journal += effect.entries
                effects += self.tell(e.JournalWritten(effect.request_id))
        return effects

    def join(self, node: str, *chunks: StoredChunk, host: str = "", launch: int = 1) -> int:
        """A data node comes up; its incarnation."""
        task = f"{node}|{launch}"
        joined = m.DataNodeJoined(node, task, 1, launch, host or node, host, f"at {node}", chunks)
        self.last = self.tell(joined)
        return said(self.last, m.Welcomed)[0].incarnation

    def place(self, request: int = 1) -> m.ChunkPlaced:
        asked = m.ChunkPlacementRequested("client", "u", request)
        return said(self.tell(asked), m.ChunkPlaced)[0]

    def create(self, name: str = "a-1/x") -> None:
        self.tell(m.ObjectCreateRequested("client", "u", name, "host"))

    def commit(self, *chunks: StoredChunk, name: str = "a-1/x") -> list[Effect]:
        epoch = self.master.epoch
        return self.tell(m.ObjectCommitRequested("client", "u", epoch, name, chunks))

    def write(self, name: str = "a-1/x") -> tuple[StoredChunk, m.ChunkPlaced]:
        """An object of one chunk."""
        self.create(name)
        placed = self.place()
        stored = StoredChunk(placed.chunk, 10, 77)
        assert said(self.commit(stored, name=name), m.ObjectCommitted)
        return stored, placed

    def wait(self, ms: int, *alive: tuple[str, int]) -> list[Effect]:
        """Time goes by; these data nodes are heard."""
        effects: list[Effect] = []
        for _ in range(ms // 100):
            self.now_ms += 100
            for node, incarnation in alive:
                self.tell(m.DataNodeAlive(node, f"{node}|1", incarnation))
            effects += self.tell(TimerFired("chunks"))
        return effects


def hello_of(effects: list[Effect]) -> m.DataNodeJoined:
    """What a data node that joins says."""
    words = [effect.message for effect in effects if isinstance(effect, e.SendToMaster)]
    return next(word for word in words if isinstance(word, m.DataNodeJoined))


def said(effects: list[Effect], kind: type[T]) -> list[T]:
    sent = (x.message for x in effects if isinstance(x, e.SendToClient | e.SendToDataNode))
    return [message for message in sent if isinstance(message, kind)]


def test_a_chunk_goes_to_distinct_data_nodes_on_distinct_hosts_if_there_are() -> None:
    story = Story()
    for node, host in (("a", "h1"), ("b", "h1"), ("c", "h2")):
        story.join(node, host=host)
    story.create()
    assert [replica.node for replica in story.place().chain] == ["a", "c"]


def test_an_object_exists_only_when_the_journal_has_it() -> None:
    story = Story()
    story.join("a")
    story.join("b")
    story.create()
    stored = StoredChunk(story.place().chunk, 10, 77)
    asked = m.ObjectCommitRequested("client", "u", 1, "a-1/x", (stored,))
    effects = story.master.step(asked, story.now_ms)
    assert not said(effects, m.ObjectCommitted)
    assert story.master.directory.objects == {}
    write = next(effect for effect in effects if isinstance(effect, e.WriteJournal))
    assert said(story.tell(e.JournalWritten(write.request_id)), m.ObjectCommitted)
    assert list(story.master.directory.objects) == ["a-1/x"]


def test_a_commit_said_again_is_answered_again_also_by_a_later_master() -> None:
    story = Story()
    story.join("a")
    story.join("b")
    stored, _ = story.write()
    assert said(story.commit(stored), m.ObjectCommitted)
    later = Story(epoch=2, journal=tuple(story.journal))
    assert said(later.commit(stored), m.ObjectCommitted)


def test_a_name_is_given_once() -> None:
    story = Story()
    story.join("a")
    story.join("b")
    story.write()
    other = m.ObjectCreateRequested("other", "v", "a-1/x", "host")
    assert said(story.tell(other), m.UploadRefused)
    story.tell(m.ObjectCreateRequested("client", "w", "a-1/y", "host"))
    other = m.ObjectCreateRequested("other", "v", "a-1/y", "host")
    assert "another" in said(story.tell(other), m.UploadRefused)[0].reason


def test_an_upload_that_ended_does_not_rise_again() -> None:
    """1. Empty object, deleted. 2. Its opening and its commit come once more, late."""
    story = Story()
    story.create()
    assert said(story.commit(), m.ObjectCommitted)
    story.tell(m.ObjectDeleteRequested("client", 1, "a-1/x"))
    story.create()
    assert said(story.commit(), m.UploadRefused)
    assert story.master.directory.objects == {}
    later = Story(epoch=2, journal=tuple(story.journal))
    later.create()
    late = m.ObjectCommitRequested("client", "u", 1, "a-1/x", ())
    assert said(later.tell(late), m.UploadRefused)


def test_what_nobody_committed_is_deleted_where_it_is_found() -> None:
    story = Story()
    stray = StoredChunk(ChunkId("7-1"), 10, 77)
    story.join("a", stray)
    assert [u.chunks for u in said(story.last, m.ChunksUnwanted)] == [("7-1",)]


def test_a_lost_data_nodes_chunks_are_copied_after_a_delay() -> None:
    story = Story()
    incarnations = {node: story.join(node) for node in ("a", "b", "c")}
    stored, placed = story.write()
    lost, kept = (replica.node for replica in placed.chain)
    others = [(n, i) for n, i in incarnations.items() if n != lost]
    assert not said(story.wait(400, *others), m.CopyWanted)
    wanted = said(story.wait(600, *others), m.CopyWanted)
    assert [copy.chunk for copy in wanted] == [stored.chunk]
    assert wanted[0].target.node not in (lost, kept)


def test_a_data_node_that_comes_back_in_time_keeps_its_chunks() -> None:
    story = Story()
    incarnations = {node: story.join(node) for node in ("a", "b", "c")}
    stored, placed = story.write()
    lost = placed.chain[0].node
    others = [(n, i) for n, i in incarnations.items() if n != lost]
    story.wait(500, *others)
    again = story.join(lost, stored, launch=2)
    assert again > incarnations[lost]
    assert not said(story.wait(300, *others), m.CopyWanted)
    assert story.master.directory.copies_of("a-1/x") == [2]


def test_a_broken_chain_is_replaced_when_the_client_asks_again() -> None:
    story = Story()
    incarnations = {node: story.join(node) for node in ("a", "b", "c")}
    story.create()
    first = story.place()
    assert story.place() == first
    lost = first.chain[1].node
    story.wait(500, *((n, i) for n, i in incarnations.items() if n != lost))
    second = story.place()
    assert second.chunk != first.chunk
    assert lost not in [replica.node for replica in second.chain]


def test_a_commit_waits_until_every_chunk_has_its_copies() -> None:
    story = Story()
    incarnations = {node: story.join(node) for node in ("a", "b", "c")}
    story.create()
    placed = story.place()
    stored = StoredChunk(placed.chunk, 10, 77)
    lost = placed.chain[0].node
    others = [(n, i) for n, i in incarnations.items() if n != lost]
    story.wait(500, *others)
    effects = story.commit(stored)
    assert "1 live copies of 2" in said(effects, m.PlacementDelayed)[0].reason
    copy = said(story.wait(100, *others), m.CopyWanted)[0]
    target = copy.target
    story.tell(m.ChunkStored(target.node, target.incarnation, 1, stored))
    assert said(story.commit(stored), m.ObjectCommitted)


def test_a_damaged_chunk_is_deleted_only_once_a_sound_one_is_known() -> None:
    story = Story()
    first, second = story.join("a"), story.join("b")
    stored, _ = story.write()
    both = (("a", first), ("b", second))
    story.tell(m.InventoryReported("b", second, 1, (), (stored.chunk,)))
    assert story.master.directory.copies_of("a-1/x") == [1]
    wanted = said(story.wait(600, *both), m.CopyWanted)
    assert not wanted, "b holds a damaged copy until it has said that it deleted it"
    story.tell(m.ChunksDeleted("b", second, 2, (stored.chunk,)))
    assert [copy.target.node for copy in said(story.wait(600, *both), m.CopyWanted)] == ["b"]
    story.tell(m.InventoryReported("a", first, 1, (), (stored.chunk,)))
    effects = story.wait(1_000, *both)
    assert not said(effects, m.ChunksUnwanted), "the last copy stays, though damaged"


def test_a_late_listing_does_not_bring_back_what_is_being_deleted() -> None:
    story = Story()
    incarnations = {node: story.join(node) for node in ("a", "b", "c")}
    stored, placed = story.write()
    third = next(n for n in incarnations if n not in [r.node for r in placed.chain])
    report = m.ChunkStored(third, incarnations[third], 1, stored)
    unwanted = said(story.tell(report), m.ChunksUnwanted)
    assert len(unwanted) == 1, "one copy too many"
    assert story.master.directory.copies_of("a-1/x") == [2]
    for node, incarnation in incarnations.items():
        effects = story.tell(m.InventoryReported(node, incarnation, 5, (stored,), ()))
        assert len(said(effects, m.ChunksUnwanted)) <= 1
    assert story.master.directory.copies_of("a-1/x") == [2]


def test_words_of_former_incarnations_and_launches_change_nothing() -> None:
    story = Story()
    first = story.join("a")
    second = story.join("a", launch=2)
    assert second == first + 1
    effects = story.tell(m.DataNodeAlive("a", "a|1", first))
    assert said(effects, m.Fenced) == [m.Fenced(first)]
    effects = story.tell(m.DataNodeJoined("a", "a|1", 2, 1, "h", "h", "at a", ()))
    assert said(effects, m.Dismissed)
    assert story.master.incarnations() == {"a": second}
    assert story.master.statistics().stale_messages == 1


def test_a_data_node_lost_before_it_heard_its_welcome_joins_anew() -> None:
    story = Story()
    machine = DataNode(DataNodeIdentity("a", "a|1", 1, "a", "", "at a"), SETTINGS, ())
    first = story.tell(hello_of(machine.step(e.Started(), story.now_ms)))
    missed = said(first, m.Welcomed)[0].incarnation
    assert said(story.wait(1_000), m.Fenced) == [m.Fenced(missed)]
    again = hello_of(machine.step(TimerFired("alive"), story.now_ms))
    assert again.join == 1, "it heard neither"
    words: list[m.Message] = [
        effect.message for effect in story.tell(again) if isinstance(effect, e.SendToDataNode)
    ]
    answers = [effect for word in words for effect in machine.step(word, story.now_ms)]
    assert story.master.incarnations() == {"a": 0}, "a hello of a lost life brings none back"
    anew = hello_of(answers)
    assert anew.join == 2
    machine.step(said(story.tell(anew), m.Welcomed)[0], story.now_ms)
    assert machine.statistics().incarnation == story.master.incarnations()["a"] > missed
    assert not story.tell(again), "too late"


def test_a_later_master_gives_higher_incarnations_and_knows_the_objects() -> None:
    story = Story()
    first = story.join("a")
    story.join("b")
    stored, placed = story.write()
    later = Story(epoch=2, journal=tuple(story.journal))
    assert later.join("a", stored) > first
    later.join("b", stored)
    located = later.tell(m.ObjectLocateRequested("client", 3, "a-1/x"))
    copies = said(located, m.ObjectLocated)[0].chunks
    assert [[r.node for r in c.replicas] for c in copies] == [["a", "b"]]
    assert placed.chunk == stored.chunk


def test_peace_places_and_delays_when_it_is_given() -> None:
    peace = Peace(
        NetworkModel.of_racks({}),
        settings=PeaceSettings(constraints=(CopyConstraint.ANY_SERVER,), can_writer_hold_copy=True),
        random=Random(1),
    )
    story = Story()
    story.master = ChunkMaster(epoch=1, settings=SETTINGS, placement=peace)
    for node in ("a", "b", "c"):
        story.join(node, host="h")
    story.create()
    placed = story.place()
    assert len({replica.node for replica in placed.chain}) == 2
    stored = StoredChunk(placed.chunk, 10, 77)
    story.tell(m.ChunkCompleted("client", "u", 1))
    assert story.place(2).chunk != placed.chunk
    assert said(story.commit(stored), m.ObjectCommitted)


def test_a_writer_that_was_killed_soon_holds_up_nobody_and_a_live_one_writes_on() -> None:
    settings = PeaceSettings(can_writer_hold_copy=True)
    peace = Peace(NetworkModel.of_racks({}), settings=settings, random=Random(1))
    story = Story()
    story.master = ChunkMaster(epoch=1, settings=SETTINGS, placement=peace)
    nodes = [(node, story.join(node, host="h")) for node in ("a", "b")]
    story.create()
    first = story.place()
    for number in range(9):  # As many as the network carries at once, and one that waits.
        upload = f"v{number}"
        story.tell(m.ObjectCreateRequested("other", upload, f"b-1/{number}", "h"))
        answer = story.tell(m.ChunkPlacementRequested("other", upload, 1))
        if said(answer, m.PlacementDelayed):
            break
        story.tell(m.ChunkCompleted("other", upload, 1))
    assert "turn" in said(answer, m.PlacementDelayed)[0].reason
    for _ in range(10):  # The first one asks, as clients do while their chunk is on its way.
        assert not said(story.wait(100, *nodes), m.ChunkPlaced)
        assert story.place() == first
    assert said(story.wait(700, *nodes), m.ChunkPlaced)[0].upload == upload
    assert story.place().chunk != first.chunk, "it was only paused"


def test_with_too_few_data_nodes_a_chunk_has_to_wait() -> None:
    story = Story()
    story.join("a")
    story.create()
    effects = story.tell(m.ChunkPlacementRequested("client", "u", 1))
    assert "1 data nodes live" in said(effects, m.PlacementDelayed)[0].reason
    story.join("b")
    assert len(story.place().chain) == 2


def test_the_journal_names_the_machine_of_a_copy_before_the_object() -> None:
    story = Story()
    story.join("a", host="m0")
    story.join("b", host="m1")
    stored, _ = story.write()
    assert story.journal[:2] == [
        {"data_node": "a", "homes": ["m0"]},
        {"data_node": "b", "homes": ["m1"]},
    ]
    later = Story(epoch=2, journal=tuple(story.master.directory.entries()))
    assert later.master.directory.homes == {"a": ("m0",), "b": ("m1",)}
    assert later.master.statistics().out_of_reach == 1
    later.join("b", stored, host="m1")
    assert later.master.statistics().out_of_reach == 0


def test_a_former_home_is_one_until_every_chunk_has_its_copies_elsewhere() -> None:
    story = Story()
    story.join("a", host="m0")
    story.join("b", host="m1")
    stored, _ = story.write()
    later = Story(epoch=2, journal=tuple(story.journal))
    a = later.join("a", host="m3")
    b = later.join("b", stored, host="m1")
    later.wait(200, ("a", a), ("b", b))
    assert later.master.directory.homes == {"a": ("m0", "m3"), "b": ("m1",)}
    later.tell(m.ChunkStored("a", a, 1, stored))
    later.wait(100, ("a", a), ("b", b))
    assert later.master.directory.homes == {"a": ("m3",), "b": ("m1",)}
    assert Story(epoch=3, journal=tuple(later.journal)).master.directory.homes["a"] == ("m3",)


def test_who_asks_for_a_chunk_without_a_live_copy_hears_where_nobody_is() -> None:
    story = Story()
    story.join("a", host="m0")
    story.join("b", host="m1")
    story.write()
    later = Story(epoch=2, journal=tuple(story.journal))
    later.join("a", host="m3")
    located = said(later.tell(m.ObjectLocateRequested("client", 1, "a-1/x")), m.ObjectLocated)
    assert located[0].away == (m.Home("a", "m0"), m.Home("b", "m1"))


def with_peace() -> Story:
    """Two data nodes of 2 chunks each in a timestep; any may hold a copy."""
    story = Story()
    settings = PeaceSettings(constraints=(CopyConstraint.ANY_SERVER,), can_writer_hold_copy=True)
    peace = Peace(NetworkModel.of_racks({}), settings=settings, random=Random(1))
    story.master = ChunkMaster(epoch=1, settings=SETTINGS, placement=peace)
    story.join("a", host="h")
    story.join("b", host="h")
    return story


def ask(story: Story, reservation: str, chunks: int) -> list[Effect]:
    return story.tell(m.PlacesRequested("client", reservation, "a", chunks))


def chunk_of(story: Story, upload: str, request: int = 1) -> list[Effect]:
    return story.tell(m.ChunkPlacementRequested("client", upload, request))


def test_a_checkpoint_is_granted_or_refused_as_a_whole() -> None:
    story = with_peace()
    assert said(ask(story, "r", 2), m.PlacesGranted) == [m.PlacesGranted("r")]
    (refused,) = said(ask(story, "s", 1), m.PlacesRefused)
    assert (refused.reservation, refused.is_queued) == ("s", True)
    for upload in ("u", "v"):
        story.tell(m.ObjectCreateRequested("client", upload, f"a-1/{upload}", "a", "r"))
        assert said(chunk_of(story, upload), m.ChunkPlaced)
    assert not said(story.tell(m.ChunkCompleted("client", "u", 1)), m.PlacesGranted)
    effects = story.tell(m.ChunkCompleted("client", "v", 1))
    assert said(effects, m.PlacesGranted) == [m.PlacesGranted("s")]


def test_places_that_are_given_back_are_for_others() -> None:
    story = with_peace()
    ask(story, "r", 2)
    ask(story, "s", 1)
    effects = story.tell(m.PlacesReturned("client", "r"))
    assert said(effects, m.PlacesGranted) == [m.PlacesGranted("s")]
    assert story.tell(m.PlacesReturned("client", "r")) == []


def test_chunks_at_former_places_do_not_count_for_a_reservation_that_is_begun_once_more() -> None:
    story = with_peace()
    ask(story, "r", 2)
    for upload in ("u", "v"):
        story.tell(m.ObjectCreateRequested("client", upload, f"a-1/{upload}", "a", "r"))
        assert said(chunk_of(story, upload), m.ChunkPlaced)
    story.tell(m.PlacesReturned("client", "r"))
    assert said(ask(story, "r", 1), m.PlacesGranted), "a question that comes late"
    assert said(ask(story, "s", 2), m.PlacesRefused)
    assert not story.tell(m.ChunkCompleted("client", "v", 1)), "the second chunk of one"
    assert not story.tell(m.ChunkCompleted("client", "u", 1)), "Peace would not wait for r's"
    effects = story.tell(m.PlacesReturned("client", "r"))
    assert said(effects, m.PlacesGranted) == [m.PlacesGranted("s")]


def test_a_refused_checkpoint_may_come_back_larger() -> None:
    story = with_peace()
    ask(story, "r", 2)
    ask(story, "s", 1)
    story.tell(m.PlacesReturned("client", "r"))
    assert said(ask(story, "s", 2), m.PlacesGranted)
    story.tell(m.ObjectCreateRequested("client", "u", "a-1/u", "a", "s"))
    chains = [said(chunk_of(story, "u", n), m.ChunkPlaced)[0].chain for n in (1, 2)]
    assert {replica.node for chain in chains for replica in chain} == {"a", "b"}


def test_more_chunks_than_were_asked_for_are_placed_one_by_one() -> None:
    story = with_peace()
    ask(story, "r", 1)
    story.tell(m.ObjectCreateRequested("client", "u", "a-1/u", "a", "r"))
    assert said(chunk_of(story, "u", 1), m.ChunkPlaced)
    story.tell(m.ChunkCompleted("client", "u", 1))
    assert said(chunk_of(story, "u", 2), m.ChunkPlaced)


def test_a_place_at_a_data_node_that_is_lost_is_not_taken() -> None:
    story = with_peace()
    story.join("c", host="h")
    ask(story, "r", 1)
    story.tell(m.ObjectCreateRequested("client", "u", "a-1/u", "a", "r"))
    former = said(chunk_of(story, "u"), m.ChunkPlaced)[0].chain
    story.join(former[0].node, host="h", launch=2)  # Its first life is over.
    (placed,) = said(chunk_of(story, "u"), m.ChunkPlaced)
    assert placed.chain[0] != former[0]


def test_a_client_that_is_silent_keeps_no_places_and_a_live_one_writes_on() -> None:
    story = with_peace()
    nodes = [(name, node.incarnation) for name, node in story.master.directory.nodes.items()]
    ask(story, "r", 2)
    story.tell(m.ObjectCreateRequested("client", "u", "a-1/u", "h", "r"))
    assert said(ask(story, "s", 1), m.PlacesRefused)
    for _ in range(8):
        story.wait(200, *nodes)
        assert said(chunk_of(story, "u"), m.ChunkPlaced)
        assert said(ask(story, "s", 1), m.PlacesRefused)
    effects = []
    for _ in range(8):
        effects += [*story.wait(200, *nodes), *ask(story, "s", 1)]
    assert said(effects, m.PlacesGranted)
    story.tell(m.PlacesReturned("client", "s"))
    assert said(chunk_of(story, "u", 2), m.ChunkPlaced), "it was only paused"
