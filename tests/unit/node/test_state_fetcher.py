"""Fragments are asked for where they lie, also at this node itself."""

from agiledart_kernel.machine import TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_node.wire.fragment_effects import FetchFragment
from agiledart_recovery.wire.effects import FetchStripe, FragmentKey
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot
from tests.unit.node.test_node import ME, Bench

KEY = FragmentKey(RunId("app", 1), InstanceId("1", 1, 0), CheckpointId(1, 4), 0)
ELEMENT = InstanceSnapshot(CheckpointId(1, 4), b"hash", 100, 2, (ME.node, NodeId(99)))


def test_a_node_with_a_fragment_fetches_it_from_itself() -> None:
    bench = Bench()
    bench.node.recovery_service._state_fetcher.fetch(FetchStripe(1, ME.node, KEY, ELEMENT, 0, 0))
    bench.node.recovery_service._state_fetcher.fetch(FetchStripe(2, NodeId(99), KEY, ELEMENT, 0, 0))
    bench.feed(TimerFired("nothing"))  # effects come with a step
    (order,) = bench.of(FetchFragment)
    assert order.replica_node == ME
