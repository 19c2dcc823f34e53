"""What a changed dataflow takes over of a location: decided from texts, before anything is done.

Theory of operation. A location remembers its dataflow as text (description.py), and each operator's
layout of state as data (`operators.json`). The changed dataflow is described in the same way, and
the two are compared by the names of steps:

- A source goes on where it was read to, if it is the same.
- An operator with state keeps it if it is the same over the same columns. What comes into it may be
  computed otherwise then only if somebody asks for that by name: results mix both.
- Aggregates may be added to it; they begin empty, with the tuples after the cut.
- State that fits nobody, or whose operator is gone, is dropped only if somebody asks for that.
- An operator that was not there begins empty, with the tuples after the cut.
- Operators without state, and sinks, may change as they like, but for a sink's columns. A sink of a
  changelog holds what its changes have come to, so others do not go on with it.

Whatever cannot be taken over is refused by name. Names that were not given are numbered in order
(`aggregate2`), so where operators with state are added in front, names should be given.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from holdfast.api.steps import (
    Loop,
    Operation,
    RunningAggregate,
    Source,
    Stateful,
    WindowAggregate,
)
from holdfast.core.model.changes import CHANGE_COLUMN
from holdfast.driver.inspection import schema_from

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SOURCE: Final = {kind.WORD for kind in get_args(Source)}
_STATEFUL: Final = {kind.WORD for kind in get_args(Stateful)}
_WORDS: Final = "|".join(sorted({kind.WORD for kind in get_args(Operation)}))
_STEP: Final = re.compile(rf"({_WORDS}) (\S+) in (\S+): (\(.*)", re.DOTALL)
_SINK: Final = re.compile(r"sink (\S+) <- (\S+)( .*)?")
_OTHER: Final = re.compile(r"(dataflow|unit|protection) (.*)")

_GROWING: Final = {WindowAggregate.WORD, RunningAggregate.WORD}
_AGGREGATES: Final = "aggregates=["
_TAKES_BACK: Final = "presence=sum("
"""Of an aggregate over a changelog."""
_CHANGES: Final = re.compile(rf"[( ]{CHANGE_COLUMN} string[,)]")
"""In the columns of a changelog."""
_OTHERWISE: Final = "its input is computed otherwise"
_PLAIN_WORDS: Final = 2
"""Of windows that are nothing but a size and a slide; see `window_words`."""

Wish: TypeAlias = Literal["keep", "drop"]
Operators: TypeAlias = "Mapping[str, list[dict[str, Any]]]"
"""Per unit its operators with state, as `operators.json` has them."""


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of a step or a sink.

    Attributes:
        name: Its name.
        kind: Its word, as `filter`; `sink`.
        change: `same`, `changed`, `new` or `gone`.
        state: `none`, `kept`, `empty`, `dropped` or `refused`.
        note: More about it, for people; of what is refused the reason.
    """

    name: str
    kind: str
    change: str
    state: str = "none"
    note: str = ""

    def __str__(self) -> str:
        """One line."""
        state = "" if self.state == "none" else f", state {self.state}"
        return f"{self.kind} {self.name}: {self.change}{state}" + (self.note and f": {self.note}")


@dataclass(frozen=True, slots=True)
class Changes:
    """What happens if a dataflow is started at a location.

    Attributes:
        changes: Of each step and each sink.
        refused: Why nothing happens, as it is refused; empty: it would go on.
        units: Units that go on, changed.
        is_at_cut: Whether the location was left at a cut, as a changed dataflow needs.
    """

    changes: tuple[Change, ...]
    refused: tuple[str, ...]
    units: frozenset[str] = frozenset()
    is_at_cut: bool = False

    @property
    def kept(self) -> frozenset[str]:
        """Operators that keep their state."""
        return frozenset(each.name for each in self.changes if each.state == "kept")

    @property
    def is_same(self) -> bool:
        """Whether nothing has changed."""
        return not self.refused and all(each.change == "same" for each in self.changes)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "changes": [asdict(each) for each in self.changes],
            "refused": list(self.refused),
            "is_same": self.is_same,
            "is_at_cut": self.is_at_cut,
        }

    def __str__(self) -> str:
        """One line for each change, then for each reason why it is refused."""
        changed = [str(each) for each in self.changes if each.change != "same"]
        kept = [
            str(each) for each in self.changes if each.change == "same" and each.state != "none"
        ]
        return "\n".join([*changed, *kept, *(f"refused: {reason}" for reason in self.refused)])


@dataclass(frozen=True, slots=True)
class _Step:
    """A step's line, taken apart: `said` is all but word, name, unit and inputs."""

    word: str
    name: str
    unit: str
    said: str
    inputs: tuple[str, ...]

    @property
    def has_state(self) -> bool:
        return self.word in _STATEFUL

    @property
    def has_changes(self) -> bool:
        """Whether its rows are those of a changelog."""
        return _CHANGES.search(self.columns or "") is not None

    @property
    def aggregates(self) -> tuple[list[str], str] | None:
        """Its aggregates, and what else is said of it but for its columns; None: it has none."""
        columns = self.columns
        before, mark, after = (self.said[len(columns) :] if columns else "").partition(_AGGREGATES)
        texts, depth, start, quote = list[str](), 0, 0, ""
        for place, letter in enumerate(after if mark else ""):
            if quote or letter in "'\"`":
                quote = "" if letter == quote else quote or letter
            elif letter in "([{":
                depth += 1
            elif depth == 0 and letter in ",]":
                texts.append(after[start:place].strip())
                start = place + 1
                if letter == "]":
                    return texts, before + after[start:]
            elif letter in ")]}":
                depth -= 1
        return None

    @property
    def columns(self) -> str | None:
        """Names and types of its columns; None: a name holds a parenthesis that stays open."""
        depth = 0
        for place, letter in enumerate(self.said):
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return self.said[: place + 1]
        return None


@dataclass(slots=True)
class _Read:
    """A description, taken apart."""

    steps: dict[str, _Step] = field(default_factory=dict)
    sinks: dict[str, tuple[str, str]] = field(default_factory=dict)  # its step, and where it goes
    head: dict[str, str] = field(default_factory=dict)  # of `dataflow` and `protection`
    counts: dict[str, str] = field(default_factory=dict)  # per unit

    @staticmethod
    def of(text: str) -> _Read:
        """Take a description apart; a line that begins nothing belongs to the one before."""
        read, lines = _Read(), list[str]()
        for line in text.rstrip("\n").split("\n"):
            if any(kind.fullmatch(line) for kind in (_STEP, _SINK, _OTHER)) or not lines:
                lines.append(line)
            else:
                lines[-1] += f"\n{line}"
        for line in lines:
            read._take_line(line)
        return read

    def _take_line(self, line: str) -> None:
        if step := _STEP.fullmatch(line):
            word, name, unit, said = step.groups()
            rest, _, inputs = said.rpartition(" <- ")
            has_inputs = word not in _SOURCE
            read = tuple(inputs.split(", ")) if has_inputs else ()
            self.steps[name] = _Step(word, name, unit, rest if has_inputs else said, read)
        elif sink := _SINK.fullmatch(line):
            self.sinks[sink[1]] = sink[2], sink[3] or ""
        elif other := _OTHER.fullmatch(line):
            unit, colon, count = other[2].partition(": ")
            if other[1] == "unit" and colon:
                self.counts[unit] = count
            else:
                self.head[other[1]] = other[2]

    def readers(self, unit: str) -> Iterator[_Step]:
        """Steps of other units that read a unit."""
        names = {step.name for step in self.steps.values() if step.unit == unit}
        for step in self.steps.values():
            if step.unit != unit and names.intersection(step.inputs):
                yield step

    def line(self, unit: str) -> list[object]:
        """All that restart points of a unit depend on."""
        members = [step for step in self.steps.values() if step.unit == unit]
        names = {step.name for step in members}
        sinks = [(sink, *what) for sink, what in self.sinks.items() if what[0] in names]
        return [*members, *sinks, *self.readers(unit), self.counts.get(unit)]

    def inputs(self, unit: str) -> list[str]:
        """What a unit reads, in order: its sources, and the steps of other units."""
        found: dict[str, None] = {}
        for step in self.steps.values():
            if step.unit == unit and step.word in _SOURCE:
                found[step.name] = None
            for name in step.inputs if step.unit == unit else ():
                if self.steps[name].unit != unit:
                    found[name] = None
        return list(found)

    def origins(self, unit: str) -> set[str]:
        """Its sources, and the units that it reads."""
        read = [self.steps[name] for name in self.inputs(unit)]
        return {step.name if step.unit == unit else f"unit {step.unit}" for step in read}

    def states_before(self, name: str) -> set[str]:
        """All operators with state that its input has come through."""
        found: set[str] = set()
        for read in self.steps[name].inputs:
            found |= self.states_before(read) | ({read} if self.steps[read].has_state else set())
        return found

    def before(self, name: str) -> list[str]:
        """What is computed between a step and the sources or states that it comes from."""
        return [each for read in self.steps[name].inputs for each in self.made_by(read)]

    def made_by(self, name: str) -> list[str]:
        """The same, with the step itself."""
        step = self.steps[name]
        if step.has_state or step.word in _SOURCE:
            return [f"{step.word} {step.name}"]
        return [f"{step.word} {step.said}", *self.before(name)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two descriptions, and the operators with state of both.

    Attributes:
        former: The text that a location remembers.
        wanted: That of the changed dataflow.
        former_operators: What the location says of operators' state.
        wanted_operators: The same of the changed dataflow.
        wishes: By operator or source, whether its state is kept or dropped where that must be said.
    """

    former: str
    wanted: str
    former_operators: Operators
    wanted_operators: Operators
    wishes: Mapping[str, Wish]

    def changes(self, *, is_at_cut: bool) -> Changes:
        """What happens."""
        old, new = _Read.of(self.former), _Read.of(self.wanted)
        if any(step.word == Loop.WORD for step in (*old.steps.values(), *new.steps.values())):
            return Changes((), ("it has a loop, whose nodes are at no cut in common",))
        refused = [*self._of_all(old, new)]
        found = [self._of_step(name, old, new) for name in new.steps | old.steps]
        of_steps = {each.name: each for each in found}
        found += [self._of_sink(name, old, new, of_steps) for name in new.sinks | old.sinks]
        refused += [str(each) for each in found if each.state == "refused"]
        refused += self._of_changelogs(new, of_steps)
        both = [unit for unit in new.counts if unit in old.counts]
        for unit in both:
            refused += self._of_unit(unit, old, new)
        changed = frozenset(unit for unit in both if old.line(unit) != new.line(unit))
        if not is_at_cut and (changed or old.counts.keys() != new.counts.keys()):
            refused.append(
                "it was not left at a cut: start the former dataflow's drain there first "
                "(flow.drain, holdfast drain)"
            )
        return Changes(tuple(found), tuple(refused), changed, is_at_cut)

    def _of_all(self, old: _Read, new: _Read) -> Iterator[str]:
        for word, value in old.head.items():
            if new.head.get(word) != value:
                yield f"{word} was {value!r} and is {new.head.get(word)!r}"
        for name, wish in self.wishes.items():
            if wish not in get_args(Wish):
                yield f'state={{"{name}": {wish!r}}} is neither "keep" nor "drop"'
            elif name not in old.steps:
                yield f'state={{"{name}": "{wish}"}} names nothing that the location holds'

    def _of_step(self, name: str, old: _Read, new: _Read) -> Change:
        was, now = old.steps.get(name), new.steps.get(name)
        if now is None:
            assert was is not None
            return self._of_gone(was)
        if was is None:
            is_empty = now.has_state or now.word in _SOURCE
            return Change(name, now.word, "new", "empty" if is_empty else "none")
        change = "same" if was == now else "changed"
        if was.word in _SOURCE or now.word in _SOURCE:
            if was == now:
                return Change(name, now.word, change, "kept")
            return Change(name, now.word, change, "refused", f"was {was.said}")
        if not was.has_state and not now.has_state:
            return Change(name, now.word, change)
        if not was.has_state:
            return Change(name, now.word, change, "empty")
        return self._of_state(was, now, old, new)

    @staticmethod
    def _of_changelogs(new: _Read, found: Mapping[str, Change]) -> Iterator[str]:
        """What is kept of changes takes them back later; so they must be those of before."""
        for name, step in new.steps.items():
            is_fed = any(new.steps[each].has_changes for each in step.inputs)
            if found[name].state != "kept" or not is_fed:
                continue
            began = _begun(new.states_before(name), found)
            what = f"{', '.join(began)} would begin anew" if began else found[name].note
            if began or _OTHERWISE in found[name].note:
                yield (
                    f"{name} holds what a changelog has come to, and {what}; say "
                    f'state={{"{name}": "drop"}}, too'
                )

    def _of_gone(self, was: _Step) -> Change:
        if not was.has_state and was.word not in _SOURCE:
            return Change(was.name, was.word, "gone")
        if self.wishes.get(was.name) == "drop":
            return Change(was.name, was.word, "gone", "dropped")
        why = f'say state={{"{was.name}": "drop"}} to let go of what it holds'
        return Change(was.name, was.word, "gone", "refused", why)

    def _of_state(self, was: _Step, now: _Step, old: _Read, new: _Read) -> Change:
        wish = self.wishes.get(was.name)
        change = "same" if was == now else "changed"
        if wish == "drop":
            return Change(now.name, now.word, change, "dropped", "it begins empty")
        reason = self._unfit(was, now)
        if reason is None and was.unit != now.unit:
            reason = f'it moves; unit("{was.unit}") before it puts it where it was'
        if reason is not None:
            why = f'{reason}; say state={{"{now.name}": "drop"}} to begin empty'
            return Change(now.name, now.word, "changed", "refused", why)
        added = self._added(was, now)
        notes = [f"{added} begin empty"] if added else []
        if old.before(was.name) == new.before(now.name):
            return Change(now.name, now.word, change, "kept", "; ".join(notes))
        if wish == "keep":
            notes.append(_OTHERWISE)
            return Change(now.name, now.word, "changed", "kept", "; ".join(notes))
        why = (
            f'{_OTHERWISE}; say state={{"{now.name}": "keep"}} to go on with '
            'what it holds, or "drop" to begin empty'
        )
        return Change(now.name, now.word, "changed", "refused", why)

    def _unfit(self, was: _Step, now: _Step) -> str | None:
        """Why state cannot be taken over; None: it can."""
        if was.word != now.word:
            return f"it was a {was.word}"
        held = _operator(self.former_operators, was)
        if held is None:
            return "its state is in no checkpoint"
        wanted = _operator(self.wanted_operators, now)
        if wanted is not None and _grown(was, now) and _grown_layout(held, wanted):
            return None
        if was.said != now.said:
            return f"it was {was.said}"
        return None if held == wanted else "the columns that it reads have changed"

    def _added(self, was: _Step, now: _Step) -> str:
        """Which of its aggregates begin empty, for people."""
        wanted = _operator(self.wanted_operators, now) or {}
        held = _operator(self.former_operators, was) or {}
        names = [each[2] for each in wanted["settings"].get("aggregates", ())]
        old = [each[2] for each in held["settings"].get("aggregates", ())]
        return ", ".join(name for name in names if name not in old)

    def _of_sink(self, name: str, old: _Read, new: _Read, found: Mapping[str, Change]) -> Change:
        was, now = old.sinks.get(name), new.sinks.get(name)
        if now is None:
            return Change(name, "sink", "gone", note="what it holds stays")
        if was is None:
            return Change(name, "sink", "new")
        before, after = old.steps[was[0]], new.steps[now[0]]
        reason = self._unlike(before, after, old, new, found) if after.has_changes else ""
        if not reason and was == now and before == after:
            return Change(name, "sink", "same")
        if was[1] != now[1]:
            reason = f"it went{was[1] or ' to a log'}"
        elif before.unit != after.unit:
            reason = f"unit {before.unit} has written it, and not {after.unit}"
        elif before.columns is None or before.columns != after.columns:
            reason = f"it holds {before.columns}"
        if reason:
            place = ", and another place" if after.has_changes and now[1] else ""
            reason = f"{reason}; give it another name{place}"
            return Change(name, "sink", "changed", "refused", reason)
        return Change(name, "sink", "changed")

    @staticmethod
    def _unlike(
        before: _Step, after: _Step, old: _Read, new: _Read, found: Mapping[str, Change]
    ) -> str:
        """Why changes do not go on from what a sink has come to by others; empty: they do."""
        held = "it holds what a changelog has come to, and"
        states = new.states_before(after.name) | ({after.name} if after.has_state else set())
        if began := _begun(states, found):
            return f"{held} {', '.join(began)} would begin anew"
        is_same = old.made_by(before.name) == new.made_by(after.name)
        return "" if is_same else f"{held} {_OTHERWISE}"

    @staticmethod
    def _of_unit(unit: str, old: _Read, new: _Read) -> Iterator[str]:
        if old.counts[unit] != new.counts[unit]:
            yield (
                f"unit {unit} had {old.counts[unit]}, and would have {new.counts[unit]}: change "
                "the one first, then the other"
            )
        if old.origins(unit) != new.origins(unit):
            was, now = (", ".join(sorted(read.origins(unit))) for read in (old, new))
            yield f"unit {unit} has read {was}, and would read {now}; give it another name"


def _begun(states: set[str], found: Mapping[str, Change]) -> list[str]:
    """Those of some operators with state that begin anew."""
    return sorted(each for each in states if found[each].state != "kept")


def _operator(operators: Operators, step: _Step) -> dict[str, Any] | None:
    """What is said of an operator's state, as JSON has it; None: nothing is."""
    members = _plain(operators.get(step.unit)) or ()
    return next((each for each in members if each["name"] == step.name), None)


def _grown(was: _Step, now: _Step) -> bool:
    """Whether a step has the same aggregates or more of them, and is the same otherwise."""
    held, wanted = was.aggregates, now.aggregates
    if held is None or wanted is None or _TAKES_BACK in held[1]:
        return False  # What began empty would be taken back what it has never been given.
    return held[1] == wanted[1] and set(held[0]) <= set(wanted[0])


def _grown_layout(held: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Whether an operator has the same groups, and the same accumulators or more of them."""
    settings, more = dict(held["settings"]), dict(wanted["settings"])
    if held["kind"] not in _GROWING or held["kind"] != wanted["kind"]:
        return False
    if held["kind"] == WindowAggregate.WORD and len(settings["windows"]) != _PLAIN_WORDS:
        return False
    aggregates, others = settings.pop("aggregates"), more.pop("aggregates")
    columns, others_columns = (
        [(f.name, f.type) for text in each["inputs"] for f in schema_from(text)]
        for each in (held, wanted)
    )
    is_read_same = all(column in others_columns for column in columns)
    return settings == more and all(each in others for each in aggregates) and is_read_same


def _plain(value: Any) -> Any:
    """A value as it is when it has been written and read."""
    return json.loads(json.dumps(value))
