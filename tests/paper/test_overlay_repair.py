"""The overlay specification §6, sentence by sentence: the requests of each node after a death, and how long it is remembered."""

from dataclasses import replace

from agiledart_kernel.coordinates import Coordinate
from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Effect, LinkLost, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_overlay.liveness.peer_gossip import PeerGossip
from agiledart_overlay.routing.repair import Repair
from agiledart_overlay.routing.slot_searches import SlotSearches
from agiledart_overlay.state.view import View
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.sightings import Sighting, Vitals
from tests.unit.overlay.bench import Bench, peer, sent

LAN = OverlayConfig.lan()
ME = Peer(NodeId(0x11 << 120), 1)


def named(number: int, incarnation: int = 1) -> Peer:
    """A peer whose id starts with these two digits."""
    return Peer(NodeId(number << 120), incarnation)


def view_of(*numbers: int, config: OverlayConfig = LAN) -> View:
    """A member that knows these; the first of them is the nearest by round trip, the last the farthest."""
    view = View(ME, config, RandomStream(1), lambda _: None)
    view.joined = True
    view.now = Instant(1_000 * SECOND)
    for place, number in enumerate(numbers, start=1):
        view.meet(named(number), 0, Vitals(Coordinate(error=100_000)), Instant(view.now - place * 1_000_000))
    view.collect_garbage()
    view.effects = []
    view.gone.clear()
    view.leaves_changed = False
    return view


def asked(effects: list[Effect], kind: type) -> list[NodeId]:
    return [each.to.node for each in effects if isinstance(each, Send) and isinstance(each.message, kind)]


def kill(view: View, number: int) -> Peer:
    peer = named(number)
    view.remove(peer, 0, has_left=False)
    view.effects = []
    return peer


def test_a_failure_is_remembered_for_15_minutes_or_until_a_higher_incarnation() -> None:
    view = view_of(0x21, 0x31)
    dead = kill(view, 0x21)
    PeerGossip(view).receive_sightings((Sighting(dead),))
    assert view.effects == [], "stale gossip cannot reinsert it"
    PeerGossip(view).receive_sightings((Sighting(named(0x21, 2)),))
    assert asked(view.effects, wire.PeerProbe) == [dead.node]
    view.now = Instant(view.now + 900 * SECOND)
    view.collect_garbage()
    assert view.book.is_dead(dead, 0), "15 minutes are not over"
    view.now = Instant(view.now + 1)
    view.collect_garbage()
    assert not view.book.is_dead(dead, 0)


def test_leaf_set_repair_asks_the_live_leaf_with_the_largest_index_on_each_side() -> None:
    view = view_of(0x12, 0x13, 0x14, 0x0E, 0x0F, 0x10, config=replace(LAN, leaf_count=4))
    dead = kill(view, 0x12)
    Repair(view, PeerGossip(view)).on_gone([dead])
    requested = asked(view.effects, wire.LeafRequest)
    assert named(0x14).node in requested, "known from the table, it has moved up"
    assert named(0x0F).node in requested


def test_leaf_set_repair_verifies_every_new_node_by_contact() -> None:
    view = view_of(0x12, 0x13, 0x0F, 0x10, config=replace(LAN, leaf_count=4))
    kill(view, 0x12)
    Repair(view, PeerGossip(view)).on_leaf_state(
        named(0x13), wire.LeafState(1, 0, joined=True, sightings=(Sighting(named(0x14)),))
    )
    assert named(0x14).node not in view.leaf_set
    assert asked(view.effects, wire.PeerProbe) == [named(0x14).node]
    view.meet(named(0x14), 0)
    assert named(0x14).node in view.leaf_set


def test_a_dead_slot_is_searched_in_its_row_first_then_in_the_row_below() -> None:
    """Slot (0, 2) is empty; 31 and 41 share its row; 1A stands in row 1. The cheapest is asked first."""
    view = view_of(0x41, 0x31, 0x1A, 0x21)
    kill(view, 0x21)
    searches = SlotSearches(view)
    searches.begin(named(0x21).node)
    for helper in (0x41, 0x31, 0x1A):
        ((to, message),) = [(each.to, each.message) for each in view.effects if isinstance(each, Send)]
        assert to == named(helper)
        assert message == wire.RowRequest(0, 2)
        view.effects = []
        searches.on_answer(to, wire.RowState((Sighting(named(0x21)),) if helper == 0x31 else (), 0, 2))
    assert len(searches) == 0, "no known node: the exchange of whole rows may find it later"


def test_the_search_ends_at_the_first_live_node_and_skips_silent_helpers() -> None:
    view = view_of(0x41, 0x31, 0x21)
    kill(view, 0x21)
    searches = SlotSearches(view)
    searches.begin(named(0x21).node)
    assert asked(view.effects, wire.RowRequest) == [named(0x41).node]
    searches.on_exchange()
    searches.on_exchange()
    assert asked(view.effects, wire.RowRequest) == [named(0x41).node, named(0x31).node]
    searches.on_answer(named(0x31), wire.RowState((Sighting(named(0x22)),), 0, 2))
    assert len(searches) == 0


def test_a_slot_with_another_candidate_needs_no_search() -> None:
    view = view_of(0x41, 0x22, 0x21)
    kill(view, 0x21)
    searches = SlotSearches(view)
    searches.begin(named(0x21).node)
    assert view.effects == []


def test_a_dead_next_hop_is_routed_around_at_once_by_rule_3() -> None:
    """32… shares no digit more with a key 2F… than this node does, but it is closer: better than waiting for a repair."""
    far = [0x71, 0x81, 0x91, 0xA1]
    view = view_of(*far, 0x21, 0x12, 0x13, 0x0F, 0x10, 0x31, config=replace(LAN, leaf_count=4))
    key = NodeId(0x2F << 120)
    first = view.next_hop(key)
    assert first.peer == named(0x21)
    around = view.next_hop(key, (named(0x21).node,))
    assert around.peer == named(0x31)


def test_each_row_is_exchanged_periodically_with_a_random_member() -> None:
    view = view_of(0x21, 0x31, 0x1A, 0x1B)
    repair = Repair(view, PeerGossip(view))
    repair.on_exchange(())
    rows = [
        each.message for each in view.effects if isinstance(each, Send) and isinstance(each.message, wire.RowRequest)
    ]
    assert rows == [wire.RowRequest(0, -1), wire.RowRequest(1, -1)]
    assert len(asked(view.effects, wire.NeighbourRequest)) == 1
    assert OverlayConfig.paper().table_exchange_ns == 900 * SECOND


def test_neighbourhood_repair_asks_a_neighbour_and_fills_by_contact() -> None:
    view = view_of(0x21, 0x31, 0x41, config=replace(LAN, neighbour_count=2))
    assert [peer.node for peer in view.neighbourhood.nearest] == [named(0x21).node, named(0x31).node]
    dead = kill(view, 0x21)
    repair = Repair(view, PeerGossip(view))
    repair.on_gone([dead])
    assert asked(view.effects, wire.NeighbourRequest) == [named(0x31).node]
    view.effects = []
    repair.on_row_state(named(0x31), wire.RowState((Sighting(named(0x51)), Sighting(dead))))
    assert asked(view.effects, wire.PeerProbe) == [named(0x51).node]


def test_presets_of_section_6() -> None:
    lan, wan, paper = OverlayConfig.lan(), OverlayConfig.wan(), OverlayConfig.paper()
    assert (lan.probe_interval_ns, lan.probe_timeout_ns, lan.indirect_probes) == (SECOND // 2, SECOND // 5, 3)
    assert (lan.suspicion_min_ns, lan.suspicion_max_ns, lan.leaf_exchange_ns) == (1 * SECOND, 2 * SECOND, 2 * SECOND)
    assert (wan.probe_interval_ns, wan.suspicion_max_ns) == (2 * SECOND, 5 * SECOND)
    assert (paper.probe_interval_ns, paper.leaf_exchange_ns) == (5 * SECOND, 10 * SECOND)
    assert lan.tombstone_ns == wan.tombstone_ns == paper.tombstone_ns == 900 * SECOND
    assert lan.hop_timeout_ns == SECOND // 20, "at least 50 ms"
    for nodes in (10, 100, 1_000, 10_000):
        OverlayConfig.simulation(nodes).validate()


def test_a_refused_connection_starts_the_indirect_probes_at_once() -> None:
    bench = Bench(1).adopt(*(peer(number) for number in (2, 3, 4, 5)))
    effects = bench.give(LinkLost(peer(2).node))
    assert len(sent(effects, wire.IndirectProbe)) == 3
