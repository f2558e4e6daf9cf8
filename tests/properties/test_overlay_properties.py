"""The overlay's tables and router against slow, obvious ones; and a machine that nothing typed can make raise."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.codec import Codec
from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.counts import MAX_COUNT
from agiledart_kernel.instants import Instant
from agiledart_kernel.machine import LinkLost, Received, Send, SetTimer, TimerFired
from agiledart_kernel.node_id import NodeId, digit, ring_distance, shared_prefix
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.protocol import OverlayMessage
from agiledart_overlay.scribe import messages as scribe_wire
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.neighbourhood import Neighbourhood
from agiledart_overlay.tables.next_hop import next_hop
from agiledart_overlay.tables.routing_table import RoutingTable
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire import ring_messages as ring
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import (
    JoinRing,
    LeaveRing,
    ReadRecord,
    RouteMessage,
    StoreRecord,
    UnwatchPeer,
    WatchPeer,
)

BITS, DIGIT_BITS = 8, 2
SIZE = 1 << BITS

ids8 = st.integers(0, SIZE - 1).map(NodeId)


def nearest(owner: int, others: set[int], half: int, direction: int) -> list[int]:
    return sorted(others, key=lambda other: direction * (other - owner) % SIZE)[:half]


@given(ids8, st.lists(st.tuples(st.booleans(), ids8), max_size=40), st.sampled_from([2, 4, 8]))
def test_the_leaf_set_equals_a_sorted_list(owner: NodeId, moves: list[tuple[bool, NodeId]], size: int) -> None:
    leaf_set = LeafSet(owner, size, BITS)
    known: set[int] = set()
    for is_arrival, node in moves:
        if is_arrival:
            fits, before = leaf_set.fits(node), leaf_set.members
            changed = leaf_set.add(Peer(node))
            assert changed == fits
            assert changed or leaf_set.members == before
            if node != owner:
                known.add(node)
        else:
            leaf_set.remove(node)
            known.discard(node)
            for other in sorted(known):
                leaf_set.add(Peer(NodeId(other)))
        assert [peer.node for peer in leaf_set.clockwise] == nearest(owner, known, size // 2, 1)
        assert [peer.node for peer in leaf_set.counterclockwise] == nearest(owner, known, size // 2, -1)
        assert leaf_set.is_whole == (len(known) < size)


@given(ids8, st.sets(ids8, max_size=12), ids8)
def test_leaf_set_closest_and_cover_agree_with_brute_force(owner: NodeId, others: set[NodeId], key: NodeId) -> None:
    leaf_set = LeafSet(owner, 4, BITS)
    for node in sorted(others):
        leaf_set.add(Peer(node))
    members = {peer.node for peer in leaf_set.members}
    closest = leaf_set.closest(key)
    best = min({*members, owner}, key=lambda node: (ring_distance(node, key, BITS), node))
    assert (closest.node if closest else owner) == best
    if leaf_set.covers(key):
        assert best == min({*others, owner}, key=lambda node: (ring_distance(node, key, BITS), node))
    assert [peer.node for peer in leaf_set.nearest_to(key, 3)] == sorted(
        members, key=lambda node: (ring_distance(node, key, BITS), node)
    )[:3]


@given(st.sets(ids8, min_size=2, max_size=40), st.data())
def test_leaves_unknown_to_the_peer_are_reported(nodes: set[NodeId], data: st.DataObject) -> None:
    """Two members with right leaf sets: they lack nothing of each other, and agree on what they share; otherwise the
    difference is reported.
    """
    ordered = sorted(nodes)
    sets = {}
    for owner in ordered:
        sets[owner] = LeafSet(owner, 4, BITS)
        for node in ordered:
            sets[owner].add(Peer(node))
    mine = data.draw(st.sampled_from(ordered))
    theirs = data.draw(st.sampled_from([peer.node for peer in sets[mine].members]))
    listed = [peer.node for peer in sets[theirs].members]
    assert sets[mine].lacking(theirs, listed) == []
    shared = {peer.node for peer in sets[mine].shared_with(theirs)} | {mine}
    assert shared == {peer.node for peer in sets[theirs].shared_with(mine)} | {theirs}
    gap = data.draw(st.sampled_from([node for node in listed if node != mine] or [mine]))
    missing = [node for node in listed if node != gap]
    if gap in sets[mine]:
        assert gap in [peer.node for peer in sets[mine].lacking(theirs, missing)]


@given(st.lists(st.tuples(ids8, st.integers(1, 9)), max_size=30), st.integers(1, 5), st.lists(ids8, max_size=5))
def test_the_neighbourhood_holds_the_nearest_nodes(
    offers: list[tuple[NodeId, int]], size: int, removed: list[NodeId]
) -> None:
    """Each node's latest figure counts, as long as it stayed in; against a list that is sorted anew each time."""
    near = Neighbourhood(size)
    slow: dict[NodeId, int] = {}
    for node, rtt in offers:
        near.offer(Peer(node), rtt)
        slow[node] = rtt
        slow = dict(sorted(slow.items(), key=lambda entry: (entry[1], entry[0]))[:size])
        assert [peer.node for peer in near.nearest] == list(slow)
        assert near.has_free_slot == (len(slow) < size)
    for node in removed:
        assert near.remove(node) == (slow.pop(node, None) is not None)
    assert {peer.node for peer in near} == set(slow)


@given(ids8, st.lists(ids8, max_size=40), st.integers(1, 3))
def test_routing_table_slots(owner: NodeId, nodes: list[NodeId], candidates: int) -> None:
    table = RoutingTable(owner, BITS, DIGIT_BITS, candidates)
    for node in nodes:
        table.add(Peer(node), float(node % 7))
    for (row, column), entries in table.items():
        belong = {
            node
            for node in nodes
            if node != owner
            and shared_prefix(owner, node, BITS, DIGIT_BITS) == row
            and digit(node, row, BITS, DIGIT_BITS) == column
        }
        want = sorted(belong, key=lambda node: (node % 7, node))[:candidates]
        assert [peer.node for peer in entries] == want
    assert {peer.node for peer in table} <= set(nodes) - {owner}


@given(st.sets(ids8, min_size=1, max_size=40), ids8, st.data())
def test_the_router_agrees_with_brute_force(nodes: set[NodeId], key: NodeId, data: st.DataObject) -> None:
    """With tables from global knowledge every route ends at the closest node, each hop as the rules say."""
    ordered = sorted(nodes)
    tables: dict[NodeId, tuple[LeafSet, RoutingTable]] = {}
    for owner in ordered:
        leaf_set, table = LeafSet(owner, 4, BITS), RoutingTable(owner, BITS, DIGIT_BITS, 2)
        for other in ordered:
            leaf_set.add(Peer(other))
            table.add(Peer(other), 0.0)
        tables[owner] = leaf_set, table
    here = data.draw(st.sampled_from(ordered))
    for _ in range(SIZE):
        leaf_set, table = tables[here]
        hop = next_hop(here, key, leaf_set, table, (), BITS, DIGIT_BITS)
        if hop.peer is None:
            break
        there = hop.peer.node
        gained = shared_prefix(there, key, BITS, DIGIT_BITS) > shared_prefix(here, key, BITS, DIGIT_BITS)
        nearer = (ring_distance(there, key, BITS), there) < (ring_distance(here, key, BITS), here)
        assert gained or nearer, "at equal distance the smaller id is the closer one"
        here = there
    assert here == min(ordered, key=lambda node: (ring_distance(node, key, BITS), node))


# ---- anything typed may arrive at any time

small = st.one_of(st.integers(0, 5), st.sampled_from([1 << 31, 1 << 53, MAX_COUNT]))
peers = st.one_of(st.builds(Peer, ids8, small), st.sampled_from([Peer(NodeId(node), 3) for node in (100, 101, 250)]))
coordinates = st.builds(Coordinate, *[st.one_of(st.integers(-200, 200), st.integers(-(1 << 62), 1 << 62))] * 5)
vitals = st.none() | st.builds(wire.Vitals, coordinates, st.integers(0, 1_000))
sightings = st.lists(st.builds(wire.Sighting, peers, small, st.none() | coordinates), max_size=6).map(tuple)
paths = st.lists(peers, min_size=1, max_size=4).map(tuple)
values = st.binary(max_size=8)
digests = st.binary(max_size=8)
flags = st.booleans()
instants = st.integers(0, 3_000_000_000)
tickets = st.one_of(st.tuples(st.just(NodeId(100)), st.just(3), small), st.tuples(ids8, small, small))
names = st.tuples(small, ids8)
queued_joins = st.lists(st.builds(ring.QueuedJoin, peers, small, small), max_size=3).map(tuple)

ways = st.lists(ids8, max_size=3).map(tuple)

MESSAGES: dict[type, st.SearchStrategy[Any]] = {
    wire.JoinRequest: st.builds(wire.JoinRequest, peers, small, paths, flags, small),
    wire.JoinRows: st.builds(wire.JoinRows, small, small, sightings),
    wire.JoinRefused: st.builds(wire.JoinRefused, small, st.sampled_from(["busy", "incarnation", "left", "?"]), small),
    wire.LeafRequest: st.builds(wire.LeafRequest, small, small, flags, sightings),
    wire.LeafState: st.builds(wire.LeafState, small, small, flags, sightings),
    wire.Announce: st.builds(wire.Announce, small, small, sightings, vitals),
    wire.Announced: st.builds(wire.Announced, small, small, sightings, vitals),
    wire.LeafDigest: st.builds(wire.LeafDigest, small, small, digests),
    wire.NeighbourRequest: st.builds(wire.NeighbourRequest),
    wire.Accused: st.builds(wire.Accused, small, small),
    wire.PeerProbe: st.builds(wire.PeerProbe, small, small, flags, vitals),
    wire.ProbeAck: st.builds(
        wire.ProbeAck, small, small, flags, vitals, st.integers(-1, 9_000), st.none() | peers, st.integers(0, 9_000)
    ),
    wire.IndirectProbe: st.builds(wire.IndirectProbe, small, peers),
    wire.IndirectProbeAck: st.builds(wire.IndirectProbeAck, small, ids8, small),
    wire.Suspect: st.builds(wire.Suspect, peers, small),
    wire.ConfirmSuspicion: st.builds(wire.ConfirmSuspicion, ids8, small, small),
    wire.Refute: st.builds(wire.Refute, small),
    wire.DeclaredFailed: st.builds(wire.DeclaredFailed, peers, small),
    wire.Departing: st.builds(wire.Departing),
    wire.RowRequest: st.builds(wire.RowRequest, st.integers(-1, 9), st.integers(-1, 9)),
    wire.RowState: st.builds(wire.RowState, sightings, st.integers(-1, 9), st.integers(-1, 9)),
    wire.RouteHop: st.builds(wire.RouteHop, small, ids8, values, paths),
    wire.RouteAck: st.builds(wire.RouteAck, small, vitals),
    wire.RecordWrite: st.builds(wire.RecordWrite, peers, small, small, ids8, small, values),
    wire.RecordRead: st.builds(wire.RecordRead, peers, small, small, ids8, digests),
    wire.RecordReply: st.builds(wire.RecordReply, small, flags, small, values, st.just(""), flags),
    wire.RecordCopy: st.builds(wire.RecordCopy, ids8, small, values, st.tuples(ids8, small, small)),
    wire.RecordHeld: st.builds(wire.RecordHeld, ids8, small, digests),
    wire.RecordFetch: st.builds(wire.RecordFetch, ids8, small, digests),
    wire.RecordOffer: st.builds(
        wire.RecordOffer, st.lists(st.builds(wire.Offer, ids8, small, digests), max_size=4).map(tuple)
    ),
    ring.JoinQueued: st.builds(ring.JoinQueued, small),
    ring.InviteJoiner: st.builds(ring.InviteJoiner, tickets, small, sightings),
    ring.JoinerReady: st.builds(ring.JoinerReady, tickets),
    ring.JoinerBusy: st.builds(ring.JoinerBusy, tickets),
    ring.TransferRange: st.builds(ring.TransferRange, tickets, peers),
    ring.OfferRange: st.builds(ring.OfferRange, tickets, small, sightings),
    ring.RangeTaken: st.builds(ring.RangeTaken, tickets, instants, small),
    ring.AdmissionConfirmed: st.builds(
        ring.AdmissionConfirmed, tickets, instants, names, queued_joins, st.lists(peers, max_size=3).map(tuple)
    ),
    ring.AdmissionExpired: st.builds(ring.AdmissionExpired, tickets),
    ring.RevokeTransfer: st.builds(ring.RevokeTransfer, tickets),
    ring.TransferRevoked: st.builds(ring.TransferRevoked, tickets),
    ring.QueryTransfer: st.builds(ring.QueryTransfer, tickets, peers),
    ring.RenewLease: st.builds(ring.RenewLease, flags, instants, small, names),
    ring.LeaseGranted: st.builds(ring.LeaseGranted, flags, instants, names),
    ring.NotNeighbour: st.builds(ring.NotNeighbour, flags, instants),
    ring.NotInRing: st.builds(ring.NotInRing, instants),
    ring.ProposeNeighbour: st.builds(ring.ProposeNeighbour, tickets, instants, small, names),
    ring.NeighbourAccepted: st.builds(ring.NeighbourAccepted, tickets, instants, instants, small),
    ring.NeighbourElsewhere: st.builds(ring.NeighbourElsewhere, tickets, peers),
    ring.NeighbourNotReady: st.builds(ring.NeighbourNotReady, tickets),
    ring.NeighbourRefused: st.builds(ring.NeighbourRefused, tickets, flags),
    ring.SeekPredecessor: st.builds(ring.SeekPredecessor, small),
    ring.QueryMembership: st.builds(ring.QueryMembership, instants),
    ring.MembershipReply: st.builds(ring.MembershipReply, instants, flags),
    ring.RingProbe: st.builds(ring.RingProbe, small, names, small),
    ring.RingState: st.builds(ring.RingState, small, names, small),
    ring.RequestRingCreation: st.builds(ring.RequestRingCreation, small),
    ring.RingCreationReply: st.builds(ring.RingCreationReply, small, flags, st.integers(-1, 9_000)),
    ring.JoinBounced: st.builds(ring.JoinBounced, st.builds(ring.QueuedJoin, peers, small, small), paths, flags),
    scribe_wire.Subscribe: st.builds(scribe_wire.Subscribe, ids8, small),
    scribe_wire.Subscribed: st.builds(scribe_wire.Subscribed, ids8, small, ways),
    scribe_wire.SubscribeRefused: st.builds(scribe_wire.SubscribeRefused, ids8, small),
    scribe_wire.Unsubscribe: st.builds(scribe_wire.Unsubscribe, ids8),
    scribe_wire.Heartbeat: st.builds(
        scribe_wire.Heartbeat, st.lists(st.builds(scribe_wire.HeartbeatEntry, ids8, ways), max_size=3).map(tuple)
    ),
    scribe_wire.HeartbeatAck: st.builds(scribe_wire.HeartbeatAck, st.lists(ids8, max_size=3).map(tuple)),
    scribe_wire.Publish: st.builds(scribe_wire.Publish, ids8, peers, small, small, values),
    scribe_wire.Published: st.builds(scribe_wire.Published, ids8, small),
    scribe_wire.Multicast: st.builds(scribe_wire.Multicast, ids8, peers, small, values),
    scribe_wire.ChildDropped: st.builds(
        scribe_wire.ChildDropped, ids8, st.lists(st.builds(scribe_wire.Sibling, peers, small), max_size=3).map(tuple)
    ),
    scribe_wire.SiblingProbe: st.builds(scribe_wire.SiblingProbe, small),
    scribe_wire.SiblingAck: st.builds(scribe_wire.SiblingAck, small),
    scribe_wire.Anycast: st.builds(scribe_wire.Anycast, ids8, peers, small, values, ways, paths, small),
    scribe_wire.AnycastEnd: st.builds(scribe_wire.AnycastEnd, small, flags, small),
    scribe_wire.RootCopy: st.builds(scribe_wire.RootCopy, ids8, small, st.none() | peers, values),
    scribe_wire.RootStateHeld: st.builds(scribe_wire.RootStateHeld, ids8, small),
    scribe_wire.TopicRequest: st.builds(scribe_wire.TopicRequest, ids8, peers, small, small, st.none() | values),
    scribe_wire.TopicReply: st.builds(scribe_wire.TopicReply, small, flags, st.none() | peers, values),
}

CODEC: Codec[Any] = Codec(OverlayMessage)

messages = st.one_of(*MESSAGES.values())
events = st.one_of(
    st.builds(Received, peers, messages),
    st.builds(Received, peers, messages),
    st.builds(Received, peers, messages),
    st.builds(JoinRing, st.lists(peers, max_size=3).map(tuple)),
    st.builds(JoinRing, st.just(())),
    st.just(LeaveRing()),
    st.builds(RouteMessage, ids8, values),
    st.builds(StoreRecord, small, ids8, small, values),
    st.builds(ReadRecord, small, ids8),
    st.builds(WatchPeer, peers),
    st.builds(UnwatchPeer, ids8),
    st.builds(LinkLost, ids8),
    st.builds(TimerFired, st.sampled_from([("overlay", "round"), ("overlay", "none"), "x", ("other", "y")])),
    st.none(),
)


def test_every_message_type_is_generated() -> None:
    assert set(MESSAGES) == set(OverlayMessage.__args__)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.builds(Received, peers, messages), min_size=1, max_size=8))
def test_messages_of_members_get_encodable_answers(said: list[Received]) -> None:
    """However large the numbers are that a member says: one more of something must not be what no codec takes."""
    config = OverlayConfig(id_bits=BITS, digit_bits=DIGIT_BITS, leaf_count=4, neighbour_count=4, replicas=2)
    machine = OverlayMachine(Peer(NodeId(100), 3), config, RandomStream(1, "t"))
    machine.step(JoinRing(()), Instant(0))
    for number, event in enumerate(said):
        for effect in machine.step(event, Instant(number * 1_000_000)):
            if isinstance(effect, Send):
                CODEC.decode(CODEC.encode(effect.message))
        assert machine.violations() == []


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3_000), events), max_size=60), st.booleans())
def test_step_never_raises_and_stays_bounded(script: list[tuple[int, Any]], is_member: bool) -> None:
    """None in the script lets the earliest timer fire. No node enters its own tables; its messages can be encoded."""
    me = Peer(NodeId(100), 3)
    config = OverlayConfig(id_bits=BITS, digit_bits=DIGIT_BITS, leaf_count=4, neighbour_count=4, replicas=2)
    machine = OverlayMachine(me, config, RandomStream(1, "t"))
    timers: dict[Any, int] = {}
    now = 0
    if is_member:
        script = [(0, JoinRing(())), *script]
    for wait, event in script:
        now += wait * 1_000_000
        if event is None:
            if not timers:
                continue
            name = min(timers, key=lambda name: timers[name])
            now = max(now, timers.pop(name))
            event = TimerFired(name)
        for effect in machine.step(event, Instant(now)):
            if isinstance(effect, SetTimer):
                timers[effect.name] = effect.at
            elif isinstance(effect, Send):
                CODEC.decode(CODEC.encode(effect.message))
        assert machine.violations() == []
        assert all(peer.node != me.node for peer in machine.known_peers())
        claim = machine.claim(Instant(now))
        assert claim is None or 0 < claim.length <= SIZE
        assert machine.statistics().leaves <= 4
