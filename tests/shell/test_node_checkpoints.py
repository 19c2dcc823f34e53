"""What a node says of its checkpoints."""

from types import SimpleNamespace
from typing import Any

from holdfast.core.haunit import events
from holdfast.core.model.ids import CheckpointId, Incarnation
from holdfast.shell.spark.node_checkpoints import NodeCheckpoints


def test_how_long_a_refused_checkpoint_took_is_forgotten() -> None:
    said: list[dict[str, Any]] = []
    unused: Any = None
    reporter: Any = SimpleNamespace(tell=lambda _, **values: said.append(values))
    made = NodeCheckpoints(unused, reporter, *[unused] * 5)
    names = [CheckpointId(sequence, Incarnation(1)) for sequence in range(1, 5)]
    for took_us, name in enumerate(names):
        prepared: Any = SimpleNamespace(checkpoint=name)
        made.note_standstill([events.WriteCheckpoint(prepared)], took_us)
    for name in (names[0], names[3]):
        made.report(events.ReportCheckpoint(name, None, 0, 0, 0))
    assert [values["prepared_us"] for values in said] == [0, 3]
