"""Only the peer at the other end of a stream may speak about it."""

import pyarrow as pa

from holdfast.core.haunit import events
from holdfast.core.haunit.plan import InputSpec, NodePlan, OutputSpec
from holdfast.core.model.ids import Incarnation, NodeId, StreamId
from holdfast.core.wire.connection_rights import ConnectionRights
from holdfast.core.wire.frames import CorruptFrame

IN, OUT, SINK = StreamId("bids>counts"), StreamId("counts>tops"), StreamId("sink")
SCHEMA = pa.schema([("n", pa.int64())])
PLAN = NodePlan(
    NodeId("counts[0]"),
    "counts",
    0,
    (InputSpec(IN, 0, SCHEMA, NodeId("bids[0]")),),
    1,
    (),
    (
        OutputSpec(("port", 0), SCHEMA, (OUT,), (NodeId("tops[0]"),)),
        OutputSpec(("port", 0), SCHEMA, (SINK,), (), is_sink=True),
    ),
)
ENDS = Incarnation(1), Incarnation(2)
OWN = StreamId("counts[0]~")


def test_a_receiver_speaks_about_its_own_stream() -> None:
    rights = ConnectionRights(PLAN)
    assert rights.from_receiver(b"tops[0]|1|1", events.AckReceived(OUT, *ENDS, 1, 1, 1)) is None
    assert (
        rights.from_receiver(b"tops[0]|9|9", events.SubscribeReceived(OUT, *ENDS, 1, 1, 1)) is None
    )
    own = events.DeltaAckReceived(OWN, *ENDS, 1, 1, True)
    assert rights.from_receiver(b"counts[0]|1|1", own) is None


def test_a_producer_speaks_about_its_own_stream() -> None:
    rights = ConnectionRights(PLAN)
    assert rights.from_producer(NodeId("bids[0]"), events.BoundaryReceived(IN, *ENDS, 1, 1)) is None
    own = events.PositionsReceived(OWN, *ENDS, ((1, 1),))
    assert rights.from_producer(NodeId("counts[0]"), own) is None


def test_nobody_speaks_for_another() -> None:
    rights = ConnectionRights(PLAN)
    ack = events.AckReceived(OUT, *ENDS, 1, 1, 1)
    for identity in (b"", b"tops", b"tops[1]|1|1", b"tops[0]x|1", b"\x00abcd", b"counts[0]|1|1"):
        assert isinstance(rights.from_receiver(identity, ack), CorruptFrame)
    for stream in (IN, SINK, OWN, StreamId("nothing")):
        other = events.AckReceived(stream, *ENDS, 1, 1, 1)
        assert isinstance(rights.from_receiver(b"tops[0]|1|1", other), CorruptFrame)
    for stream in (OUT, SINK, OWN, StreamId("nothing")):
        boundary = events.BoundaryReceived(stream, *ENDS, 1, 1)
        assert isinstance(rights.from_producer(NodeId("bids[0]"), boundary), CorruptFrame)


def test_messages_go_one_way() -> None:
    rights = ConnectionRights(PLAN)
    down = events.BoundaryReceived(OUT, *ENDS, 1, 1)
    assert isinstance(rights.from_receiver(b"tops[0]|1|1", down), CorruptFrame)
    upwards = events.AckReceived(IN, *ENDS, 1, 1, 1)
    assert isinstance(rights.from_producer(NodeId("bids[0]"), upwards), CorruptFrame)
