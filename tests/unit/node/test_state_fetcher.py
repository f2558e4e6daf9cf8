"""Fragments are asked for where they lie, also at this node itself."""

from agiledart_kernel.machine import Completed, TimerFired
from agiledart_kernel.node_id import NodeId
from agiledart_node.wire.fragment_effects import FetchFragment, FindSnapshot
from agiledart_recovery.wire.effects import FetchStripe, FragmentKey
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId, Voter
from agiledart_recovery.wire.register_value import InstanceSnapshot, Plan, RegisterValue, SavedState
from tests.unit.node.test_node import ME, Bench

RUN = RunId("app", 1)
KEY = FragmentKey(RunId("app", 1), InstanceId("1", 1, 0), CheckpointId(1, 4), 0)
ELEMENT = InstanceSnapshot(CheckpointId(1, 4), b"hash", 100, 2, (ME.node, NodeId(99)))


def test_a_node_with_a_fragment_fetches_it_from_itself() -> None:
    bench = Bench()
    bench.node.recovery_service._state_fetcher.fetch(FetchStripe(1, ME.node, KEY, ELEMENT, 0, 0))
    bench.node.recovery_service._state_fetcher.fetch(FetchStripe(2, NodeId(99), KEY, ELEMENT, 0, 0))
    bench.feed(TimerFired("nothing"))  # effects come with a step
    (order,) = bench.of(FetchFragment)
    assert order.replica_node == ME


def test_snapshots_in_the_register_are_put_on_the_disk_and_fetched_from_no_node() -> None:
    bench = Bench()
    content = InstanceSnapshot(CheckpointId(1, 4), b"hash", 4, 1, (), b"1234")
    value = RegisterValue(RUN, 0, 1, Plan(()), CheckpointId(1, 4), (Voter(ME, 1),), saves_less=True)
    fetcher, context = bench.node.recovery_service._state_fetcher, bench.node.parts.context
    fetched: list[list[InstanceSnapshot]] = []

    async def ensure() -> None:
        fetched.append(await fetcher.ensure_local(RUN, SavedState(InstanceId("1", 1, 0), (content,)), value))

    context.requests.begin(ensure())
    bench.feed(TimerFired("nothing"))
    (find,) = bench.of(FindSnapshot)
    assert (find.digest, find.content) == (b"hash", b"1234")
    bench.feed(Completed(find.request, True))
    assert fetched == [[]]
