"""Deliberate bugs of standby replicas and of determinants; see mutants.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mutants import Mutant

from holdfast.core.coordinator.coordinator import Coordinator
from holdfast.core.coordinator.events import WriteJournal
from holdfast.core.coordinator.instance import Instance
from holdfast.core.haunit.copied_pages import CopiedPages
from holdfast.core.haunit.delta_sender import DeltaSender
from holdfast.core.haunit.durability.base import Durability
from holdfast.core.haunit.durability.mirrored import Mirrored
from holdfast.core.haunit.events import WriteSink
from holdfast.core.haunit.ha_output import HAOutput
from holdfast.core.haunit.input_order import ArrivalOrder
from holdfast.core.haunit.node import Node
from holdfast.core.haunit.outputs.kept_output import KeptOutput
from holdfast.core.haunit.outputs.pass_gate import PassGate
from holdfast.core.haunit.passes import Pass, Passes, PassStart
from holdfast.core.haunit.state_delta import StandbyImage
from holdfast.core.queues.output_queue import Cursor, OutputQueue
from holdfast.core.state.kernels import CLEAN
from holdfast.sim.one_at_a_time import KINDS as ONE_AT_A_TIME
from holdfast.sim.process_sinks import ProcessSinks
from holdfast.sim.workload.protections import SURVIVES_ONE

_LOST_FRAMES = ("break", "cut", "isolate", "kill", "pause")
_TORN_LOGS = ("machine-crash", "slow-node")
_LAGS = ("kill", "break", "cut", "isolate", "slow-link")
_LATE = ("kill", "slow-link")
_KILLS = ("kill", "machine-crash", "slow-node", "break")
_ACTIVE, _PASSIVE = "active standby", "passive standby"

# -- active standby -------------------------------------------------------------------------


def _put_out_as_a_secondary(original: Any) -> Any:
    def put_out(self: HAOutput, *arguments: Any) -> Any:
        was_secondary, self._is_secondary = self._is_secondary, False
        effects = original(self, *arguments)
        self._is_secondary = was_secondary
        return effects

    return put_out


def _trim_what_receivers_have(original: Any) -> Any:
    def follow(self: HAOutput, positions: Any) -> list[Any]:
        return original(self, tuple((received, received) for received, _ in positions))

    return follow


def _trim_all_that_is_held(original: Any) -> Any:
    def follow(self: HAOutput, positions: Any) -> list[Any]:
        for sink in self._sinks.values():
            sink.held.clear()
        return original(self, positions)

    return follow


def _keep_for_the_primary_alone(_: Any) -> Any:
    def let_go(self: OutputQueue) -> None:
        if self.primary.needed_from > self.needed_from:
            self.needed_from = self.primary.needed_from
            self.trim(self.needed_from)

    return let_go


def _trim_when_a_cursor_closes(_: Any) -> Any:
    def unsubscribe(self: Cursor) -> None:
        self.is_subscribed = False  # What the secondary, now the primary, lacks is not kept.

    return unsubscribe


def _promote_before_the_journal(original: Any) -> Any:
    def succeed(self: Coordinator, instance: Any, now_ms: int) -> Any:
        effects = original(self, instance, now_ms)
        if effects and isinstance(effects[-1], WriteJournal):
            told = self._decisions._asked.pop(effects[-1].request_id).then(now_ms)
            return [*told, effects[-1]]
        return effects

    return succeed


def _store_while_it_is_joined(_: Any) -> Any:
    return property(lambda self: False)


def _join_at_once(_: Any) -> Any:
    return property(lambda self: self.is_secondary)


def _forget_what_sinks_lack(original: Any) -> Any:
    def promote(self: HAOutput, incarnation: Any, next_ids: Any) -> list[Any]:
        for sink in self._sinks.values():
            sink.held.clear()
        return original(self, incarnation, next_ids)

    return promote


def _write_what_the_log_has(original: Any) -> Any:
    def promote(self: HAOutput, incarnation: Any, next_ids: Any) -> list[Any]:
        return original(self, incarnation, dict.fromkeys(next_ids, 0))

    return promote


def _note_before_the_former_cut(original: Any) -> Any:
    def may_note(self: Durability) -> bool:
        self._noted_behind = None
        may: bool = original(self)
        return may

    return may_note


def _keep_the_old_incarnation(original: Any) -> Any:
    def on_promoted(self: Node, promoted: Any, now_ms: int) -> list[Any]:
        return original(self, replace(promoted, incarnation=self.incarnation), now_ms)

    return on_promoted


# -- passive standby ------------------------------------------------------------------------


def _ignore_what_sinks_lost(original: Any) -> Any:
    def restored(self: StandbyImage, point: Any, sink_next_ids: Any) -> Any:
        cut = self.cut
        if cut is not None:
            sink_next_ids = {s: max(n, cut.next_ids[s]) for s, n in sink_next_ids.items()}
        return original(self, point, sink_next_ids)

    return restored


def _ignore_what_upstream_trimmed(original: Any) -> Any:
    def restored(self: StandbyImage, point: Any, sink_next_ids: Any) -> Any:
        cut = self.cut
        if cut is not None:
            point = replace(point, needed_from=dict(cut.needed_from), older=())
        return original(self, point, sink_next_ids)

    return restored


def _apply_without_all_pages(original: Any) -> Any:
    def apply(self: StandbyImage, delta: Any) -> None:
        runs = [run for run in self._runs if run.sequence == delta.sequence]
        original(self, replace(delta, pages=sum(len(run.ids) for run in runs)))

    return apply


def _send_only_what_has_changed(original: Any) -> Any:
    def prepare(self: DeltaSender, cut: Any, outputs: Any, now_ms: int) -> list[Any]:
        pages, self._pages = self._pages, _OnlyDirty(self._pages)  # type: ignore[assignment]
        effects = original(self, cut, outputs, now_ms)
        self._pages = pages
        return effects

    return prepare


def _compare_with_what_another_had(original: Any) -> Any:
    def stop(self: DeltaSender) -> None:
        copy = self._copy
        original(self)
        self._copy = copy

    return stop


def _leave_words_out(original: Any) -> Any:
    def difference(self: CopiedPages, sequence: int, ids: Any, words: Any) -> Any:
        run = original(self, sequence, ids, words)
        changed = run.changed.copy()
        changed[:, words.shape[1] // 2 :] = False
        return replace(run, changed=changed, values=words[changed])

    return difference


class _OnlyDirty:
    """Page manager that never has clean pages sent too."""

    def __init__(self, pages: Any) -> None:
        self._pages = pages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pages, name)

    def checkpoint(self, also: Any = None) -> Any:
        del also
        return self._pages.checkpoint(None)


def _let_the_unit_write_at_once(original: Any) -> Any:
    def prepare(self: DeltaSender, cut: Any, outputs: Any, now_ms: int) -> list[Any]:
        was_sending = self._sending is not None
        effects = original(self, cut, outputs, now_ms)
        if self._sending is not None and not was_sending:
            self._pages.thaw(self._sending.snapshot, self._sending.positions)
        return effects

    return prepare


def _leave_pages_out(original: Any) -> Any:
    def prepare(self: DeltaSender, cut: Any, outputs: Any, now_ms: int) -> list[Any]:
        pages, self._pages = self._pages, _OneTooFew(self._pages)  # type: ignore[assignment]
        effects = original(self, cut, outputs, now_ms)
        self._pages = pages
        return effects

    return prepare


class _OneTooFew(_OnlyDirty):
    """Page manager that forgets one page that has changed."""

    def checkpoint(self, also: Any = None) -> Any:
        snapshot = self._pages.checkpoint(also)
        first = snapshot.changed[:1]
        self._pages.marks[snapshot.pages[first]] = CLEAN
        snapshot.is_changed[first] = False
        return snapshot


def _leave_output_out(original: Any) -> Any:
    def since(self: KeptOutput, sent_before: Any) -> Any:
        found = original(self, sent_before)
        if found is None:
            return None
        positions, batches = found
        last = {number: i for i, (number, _) in enumerate(batches)}
        next_ids = {number: batches[i][1].first_id for number, i in last.items()}
        left = tuple(batch for i, batch in enumerate(batches) if last[batch[0]] != i)
        told = tuple(
            (min(trimmed, next_ids.get(number, next_id)), next_ids.get(number, next_id))
            for number, (trimmed, next_id) in enumerate(positions)
        )
        return told, left

    return since


# -- determinants ---------------------------------------------------------------------------


def _note_what_is_on_its_way(original: Any) -> Any:
    def send_delta(self: Mirrored, now_ms: int) -> list[Any]:
        effects: list[Any] = original(self, now_ms)
        if effects and self._deltas._sending is not None:
            self.points.note(replace(self._deltas._sending.delta.cut, is_mirrored=True))
        return effects

    return send_delta


def _open_all_gates(original: Any) -> Any:
    def open_gate(self: PassGate) -> list[Any]:
        log = self.log
        durable_before, log.durable_before = log.durable_before, log.next_id
        effects = original(self)
        log.durable_before = durable_before
        return effects

    return open_gate


def _do_not_log(original: Any) -> Any:
    def begin(self: PassGate, pass_: Pass, **named: Any) -> list[Any]:
        logged = original(self, pass_, **named)
        if any(isinstance(effect, WriteSink) for effect in logged):
            self.log.durable_before = pass_.number + 1
            self.log.is_syncing = False
        return []

    return begin


def _decide_anew(original: Any) -> Any:
    def init(self: Passes, first: PassStart, recorded: Any, **named: Any) -> None:
        before = tuple(r for r in recorded if r.number < first.number)
        original(self, first, before, **named)

    return init


def _decide_as_a_secondary(_: Any) -> Any:
    def has_pass(self: ArrivalOrder, progress: Any) -> bool:
        recorded = self._passes.recorded
        if recorded is not None:
            return self._arrivals.has_received(recorded.processed_before)
        return self._arrivals.has_fresh or bool(progress.is_woken)

    return has_pass


def _count_zombies(_: Any) -> Any:
    return lambda self, log: False


def _need_only_the_next_pass(_: Any) -> Any:
    return lambda self, low: PassStart(self.next_number, self.starts)


def _let_the_clock_move_back(original: Any) -> Any:
    def decide(self: Passes, clock_us: int, *arguments: Any) -> Pass:
        self.clock_us = 0
        return original(self, clock_us, *arguments)  # type: ignore[no-any-return]

    return decide


def _forget_the_clock(original: Any) -> Any:
    def init(self: Passes, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self.clock_us = 0

    return init


def _forget_the_seed(original: Any) -> Any:
    return lambda self: original(replace(self, seed=0))


STANDBY_MUTANTS: dict[str, Mutant] = {
    "puts out as a secondary": Mutant(HAOutput, "put_out", _put_out_as_a_secondary),
    "trims what receivers have": Mutant(HAOutput, "follow", _trim_what_receivers_have),
    "trims all that is held for sinks": Mutant(
        HAOutput, "follow", _trim_all_that_is_held, ("kill",), _ACTIVE, "branches"
    ),
    "keeps for the primary alone": Mutant(
        OutputQueue, "let_go", _keep_for_the_primary_alone, _LAGS, _ACTIVE
    ),
    "promotes before the journal": Mutant(Coordinator, "_succeed", _promote_before_the_journal),
    "stores while a secondary is joined": Mutant(
        Instance, "is_being_joined", _store_while_it_is_joined, _LATE, _ACTIVE, "aggregate"
    ),
    "joins before it is served": Mutant(
        Node, "has_joined", _join_at_once, _LATE, _ACTIVE, "aggregate"
    ),
    "forgets what sinks lack": Mutant(
        HAOutput, "promote", _forget_what_sinks_lack, _KILLS, _ACTIVE
    ),
    "writes what the log has": Mutant(
        HAOutput, "promote", _write_what_the_log_has, _KILLS, _ACTIVE
    ),
    "keeps its old incarnation": Mutant(Node, "_on_promoted", _keep_the_old_incarnation),
    "ignores what sinks lost": Mutant(
        StandbyImage, "restored", _ignore_what_sinks_lost, _TORN_LOGS, _PASSIVE
    ),
    "ignores what upstream trimmed": Mutant(
        StandbyImage, "restored", _ignore_what_upstream_trimmed, _KILLS, _PASSIVE
    ),
    "sends only what has changed": Mutant(
        DeltaSender, "prepare", _send_only_what_has_changed, _KILLS, _PASSIVE
    ),
    "lets the unit write at once": Mutant(
        DeltaSender, "prepare", _let_the_unit_write_at_once, _KILLS, _PASSIVE
    ),
    "compares with what another secondary had": Mutant(
        DeltaSender, "stop", _compare_with_what_another_had, _KILLS, _PASSIVE
    ),
    "leaves half of the words out": Mutant(
        CopiedPages, "difference", _leave_words_out, _KILLS, _PASSIVE
    ),
    "leaves pages out": Mutant(DeltaSender, "prepare", _leave_pages_out, _KILLS, _PASSIVE),
    "leaves output out": Mutant(KeptOutput, "since", _leave_output_out, _KILLS, _PASSIVE),
    "notes what is on its way to the secondary": Mutant(
        Mirrored, "_send_delta", _note_what_is_on_its_way, ONE_AT_A_TIME, SURVIVES_ONE
    ),
    "opens all gates": Mutant(
        PassGate, "open", _open_all_gates, ("machine-crash",), None, "arbitrary"
    ),
    "does not log passes": Mutant(PassGate, "begin", _do_not_log),
    "decides anew": Mutant(Passes, "__init__", _decide_anew),
    "decides as a secondary": Mutant(
        ArrivalOrder, "has_pass", _decide_as_a_secondary, _KILLS, _ACTIVE
    ),
    "needs only the next pass": Mutant(
        Passes, "needed_from", _need_only_the_next_pass, ("kill",), "upstream backup", "arbitrary"
    ),
    "lets the clock move back": Mutant(Passes, "decide", _let_the_clock_move_back),
    "forgets the seed": Mutant(Pass, "to_batch", _forget_the_seed, ("kill",), None, "arbitrary"),
    "trims when a cursor closes": Mutant(
        Cursor, "unsubscribe", _trim_when_a_cursor_closes, ("lag",), _ACTIVE, "diamond"
    ),
    "notes points before the former cut": Mutant(
        Durability, "may_note", _note_before_the_former_cut, ("lag",), _ACTIVE
    ),
    "applies without all pages": Mutant(
        StandbyImage, "apply", _apply_without_all_pages, ("lost-frames",), _PASSIVE
    ),
    "counts a zombie's passes": Mutant(
        ProcessSinks,
        "is_superseded",
        _count_zombies,
        ("pause", "cut", "isolate"),
        "upstream backup",
        "arbitrary",
    ),
    "forgets the clock": Mutant(
        Passes, "__init__", _forget_the_clock, ("kill",), None, "arbitrary"
    ),
}
