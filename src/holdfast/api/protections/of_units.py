"""The protection of every unit of a dataflow: one for all, or one by unit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.api.embedded_store import EmbeddedStore
from holdfast.api.protections.base import PRECISELY, Protection
from holdfast.api.protections.checkpointed import Checkpointed, StoredCheckpoints
from holdfast.api.protections.eventual import EventualCheckpoints
from holdfast.api.protections.replay import UpstreamBackup
from holdfast.api.steps import Loop
from holdfast.core.recovery.guarantee import Guarantee
from holdfast.errors import OptionError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.api.graph import Graph
    from holdfast.api.steps import Step


class Protections:
    """The protection of every unit of a dataflow."""

    def __init__(self, given: Protection | Mapping[str, Protection] | None) -> None:
        """One for all units; or by unit, the others having upstream backup."""
        self._default: Protection = UpstreamBackup()
        self._of: dict[str, Protection] = {}
        if isinstance(given, Protection):
            self._default = given
        elif given is not None:
            self._of = dict(given)

    def of(self, unit: str) -> Protection:
        """A unit's."""
        return self._of.get(unit, self._default)

    def check(self, flow: Graph) -> None:
        """Refuse what makes no sense. Raises `OptionError` and `UnsupportedError`."""
        units = dict.fromkeys(s.unit for s in flow.steps if not isinstance(s.operation, Loop))
        for name, protection in self._of.items():
            if not isinstance(protection, Protection):
                raise OptionError(f"protection[{name!r}] is {protection!r}, no protection")
            if name not in units:
                raise OptionError(f"protection names {name!r}; units are {', '.join(units)}")
        for unit in units:
            self.of(unit).check(flow)
        for step in flow.steps:
            self._check_changes(step)
        own = [p for p in map(self.of, units) if isinstance(p, StoredCheckpoints)]
        writers = {p.writers for p in own if isinstance(p, Checkpointed)}
        embedded = [p.store for p in map(self.of, units) if isinstance(p, EventualCheckpoints)]
        kept = {*(p.store for p in own), *filter(None, embedded)} if any(embedded) else set()
        if len({p.where() for p in own}) > 1 or len(writers) > 1 or len(kept) > 1:
            raise OptionError(
                "units are checkpointed to different stores, or with different `writers`: "
                "one store serves all units of a query"
            )

    def _check_changes(self, step: Step) -> None:
        """A table that changes bears none that is missing, and none that comes again."""
        protection = self.of(step.unit)
        if step.changelog is None or protection.guarantee == Guarantee.PRECISE.value:
            return
        raise UnsupportedError(
            f"{step.unit}: {type(protection).__name__} may lose or repeat changes of "
            f"{step.name!r}, and the table that they come to would be wrong from then on; "
            f"{PRECISELY}"
        )

    @property
    def stored(self) -> StoredCheckpoints | None:
        """Where the units that are checkpointed are checkpointed to; None: there are none."""
        all_of_them = (self._default, *self._of.values())
        return next((p for p in all_of_them if isinstance(p, StoredCheckpoints)), None)

    @property
    def embedded(self) -> EmbeddedStore | None:
        """The chunk store that the query is to run itself; None: none."""
        all_of_them = (self._default, *self._of.values())
        kept = [p for p in all_of_them if isinstance(p, StoredCheckpoints | EventualCheckpoints)]
        return next((p.store for p in kept if isinstance(p.store, EmbeddedStore)), None)

    @property
    def keep_states(self) -> bool:
        """Whether any unit's state can be read back, so that it can be divided anew."""
        kept = (StoredCheckpoints, EventualCheckpoints)
        return any(isinstance(p, kept) for p in (self._default, *self._of.values()))

    @property
    def checkpointed(self) -> Checkpointed | None:
        """The protection of the units that are checkpointed on their own; None: there are none."""
        all_of_them = (self._default, *self._of.values())
        return next((p for p in all_of_them if isinstance(p, Checkpointed)), None)

    def describe(self) -> str:
        """What of it must be the same when a query goes on at a location."""
        others = {
            unit: text
            for unit, protection in self._of.items()
            if (text := protection.describe()) != self._default.describe()
        }
        return ", ".join(
            [self._default.describe(), *(f"{unit}: {text}" for unit, text in others.items())]
        )
