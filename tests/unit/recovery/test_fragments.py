"""Saving and rebuilding one snapshot, with replica nodes that fail."""

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.fragments.placement import spread
from agiledart_recovery.fragments.snapshot_rebuild import RebuildState, SnapshotRebuild
from agiledart_recovery.fragments.snapshot_replication import ReplicationOutcome, SnapshotReplication
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.effects import FetchStripe, SendFragment
from agiledart_recovery.wire.names import CheckpointId, InstanceId
from agiledart_recovery.wire.register_value import InstanceSnapshot
from tests.unit.recovery.bench import RUN, context, peer

PARTY, AT, LARGE = InstanceId("stage"), CheckpointId(1, 1), 4 << 20


def sent(at: RecoveryContext) -> list[SendFragment]:
    effects, at.effects = at.effects, []
    return [each for each in effects if isinstance(each, SendFragment)]


def fetched(at: RecoveryContext) -> list[FetchStripe]:
    effects, at.effects = at.effects, []
    return [each for each in effects if isinstance(each, FetchStripe)]


def saving(at: RecoveryContext, replica_nodes: int, done: list[SnapshotReplication]) -> SnapshotReplication:
    at.candidates = tuple(peer(number) for number in range(2, 10))
    where = spread(at.me, at.candidates[:replica_nodes], LARGE, 4, 2)
    return SnapshotReplication(
        at, RUN, PARTY, InstanceSnapshot(AT, b"hash", LARGE, where.m, where.replica_nodes), where, done.append
    )


def test_a_snapshot_is_safe_when_all_replica_nodes_have_acknowledged() -> None:
    at, done = context(), list[SnapshotReplication]()
    one = saving(at, 6, done)
    for each in sent(at):
        assert not done
        at.answered(each.request, None, "")
    assert done == [one]
    assert (one.outcome, one.snapshot.survives) == (ReplicationOutcome.SAFE, 2)


def test_a_failed_replica_node_is_replaced_by_another_host() -> None:
    at, done = context(), list[SnapshotReplication]()
    one = saving(at, 6, done)
    first, *others = sent(at)
    at.answered(first.request, None, "its disk is full")
    (again,) = sent(at)
    assert again.replica_node not in [first.replica_node, *(each.replica_node for each in others)]
    for each in (again, *others):
        at.answered(each.request, None, "")
    assert again.replica_node in one.snapshot.replica_nodes


def test_a_snapshot_is_degraded_with_m_plus_one_fragments_and_lost_below_m() -> None:
    for acknowledged, outcome in ((5, ReplicationOutcome.SAFE), (4, ReplicationOutcome.LOST)):
        at, done = context(), list[SnapshotReplication]()
        one = saving(at, 6, done)
        at.candidates = at.candidates[:6]
        for number, each in enumerate(sent(at)):
            at.answered(each.request, None, "" if number < acknowledged else "its disk is full")
        one.on_timeout()
        assert done == [one]
        assert (one.outcome, one.snapshot.survives) == (outcome, acknowledged - 4)


def test_a_late_snapshot_is_safe_as_soon_as_enough_have_acknowledged() -> None:
    at, done = context(), list[SnapshotReplication]()
    one = saving(at, 6, done)
    *few, fifth, sixth = sent(at)
    for each in few:
        at.answered(each.request, None, "")
    one.on_timeout()
    assert (done, one.outcome) == ([], ReplicationOutcome.SENDING), "two are on their way"
    at.answered(fifth.request, None, "")
    assert (done, one.outcome, one.snapshot.survives) == ([one], ReplicationOutcome.SAFE, 1)
    at.answered(sixth.request, None, "")
    assert (done, one.snapshot.survives) == ([one], 2)


def rebuild(at: RecoveryContext, live: int) -> SnapshotRebuild:
    replica_nodes = tuple(NodeId(number) for number in range(2, 8))
    return SnapshotRebuild(
        at, RUN, PARTY, InstanceSnapshot(AT, b"hash", 4_001, 4, replica_nodes), dict.fromkeys(replica_nodes[:live])
    )


def test_all_live_replica_nodes_share_the_work() -> None:
    at = context()
    one = rebuild(at, 5)
    asked = fetched(at)
    each_serves = [sum(fetch.replica_node == NodeId(number) for fetch in asked) for number in range(2, 7)]
    assert each_serves == [4] * 5
    for fetch in asked:
        at.answered(fetch.request, bytes(fetch.length), "")
    assert one.state is RebuildState.READY
    assert all(len(pieces) == 4 for pieces in one.pieces)


def test_a_provider_that_fails_is_left_out() -> None:
    at = context()
    one = rebuild(at, 6)
    asked = fetched(at)
    for fetch in asked:
        at.answered(fetch.request, bytes(fetch.length), "gone" if fetch.replica_node == NodeId(3) else "")
    for fetch in fetched(at):
        assert fetch.replica_node != NodeId(3)
        at.answered(fetch.request, bytes(fetch.length), "")
    assert one.state is RebuildState.READY


def test_too_few_replica_nodes_end_the_rebuild() -> None:
    """The coordinator begins another attempt when one of them returns, so the rebuild itself has nothing to wait for."""
    at = context()
    one = rebuild(at, 3)
    assert one.state is RebuildState.LOST
    assert fetched(at) == []


def test_a_wrong_hash_fetches_whole_fragments_to_identify_the_bad_one() -> None:
    at = context()
    one = rebuild(at, 6)
    for fetch in fetched(at):
        at.answered(fetch.request, b"x", "")
    one.on_wrong_hash()
    first, *others = fetched(at)
    at.answered(first.request, None, "its hash is wrong")
    for fetch in (*others, *fetched(at)):
        at.answered(fetch.request, b"whole", "")
    assert one.state is RebuildState.READY
    assert first.key.index not in one.pieces[0]
