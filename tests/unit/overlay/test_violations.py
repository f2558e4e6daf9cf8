"""A machine knows when it is wrong: mistakes planted in its parts are found by its own `violations()`."""

from collections.abc import Callable
from typing import Any

import pytest

from agiledart_kernel.codec import Codec
from agiledart_kernel.counts import MAX_COUNT
from agiledart_kernel.machine import LinkLost
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.overlay_machine import OverlayMachine
from agiledart_overlay.records.record_directory import RecordDirectory
from agiledart_overlay.records.record_store import value_digest
from agiledart_overlay.ring.leases import Leases
from agiledart_overlay.state.agreement import AgreedNeighbour
from agiledart_overlay.state.view import View
from agiledart_overlay.tables.leaf_set import LeafSet
from agiledart_overlay.tables.neighbourhood import Neighbourhood
from agiledart_overlay.wire.events import LeaveRing, StoreRecord, WatchPeer
from agiledart_overlay.wire.messages import Departing, PeerProbe, ProbeAck, RecordCopy, RecordFetch, RecordHeld
from agiledart_overlay.wire.ring_messages import RenewLease, RingProbe, RingState
from tests.unit.overlay.bench import Bench, peer, sent

Patch = pytest.MonkeyPatch


def leaves_in_the_order_of_arrival(patch: Patch) -> None:
    def insert(self: LeafSet, side: list[Any], distances: list[int], other: Any, distance: int) -> None:
        side.append(other)
        distances.append(distance)

    patch.setattr(LeafSet, "_insert", insert)


def the_dead_stay_in_the_neighbourhood(patch: Patch) -> None:
    patch.setattr(Neighbourhood, "remove", lambda self, node: False)


def checks_without_a_timer(patch: Patch) -> None:
    right = View.set_timer_by

    def set_timer_by(self: View, name: str, at: int) -> None:
        if name != "checks":
            right(self, name, at)

    patch.setattr(View, "set_timer_by", set_timer_by)


def promises_of_ten_leases(patch: Patch) -> None:
    right = Leases._grant

    def grant(self: Leases, side: AgreedNeighbour, sender: Any, message: RenewLease) -> None:
        right(self, side, sender, message)
        side.promise = self._view.now + 10 * self._view.config.lease_ns

    patch.setattr(Leases, "_grant", grant)


def operations_that_never_end(patch: Patch) -> None:
    patch.setattr(RecordDirectory, "_finish", lambda self, work: work.waiting.pop(0))


def what_is_agreed_is_not_followed_up(patch: Patch) -> None:
    patch.setattr(OverlayMachine, "_go_on", lambda self: None)


def go(bench: Bench) -> None:
    """Something happens to every part of a machine."""
    bench.adopt(peer(3), peer(5), peer(4))
    bench.receive(peer(3), RenewLease(to_predecessor=True, at=0, refutations=0, name=(0, NodeId(0))))
    bench.receive(peer(3), PeerProbe(1, 0, joined=True))
    bench.give(LinkLost(peer(4).node))
    for to, fetch in sent(bench.give(StoreRecord(1, NodeId(1 << 120), 0, b"value")), RecordFetch):
        for other, copy in sent(bench.receive(to, RecordHeld(fetch.key, 0, b"")), RecordCopy):
            bench.receive(other, RecordHeld(copy.key, copy.version, value_digest(copy.value)))
    bench.receive(peer(5), Departing())
    bench.wait(100)
    bench.give(LeaveRing())


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        (leaves_in_the_order_of_arrival, "ring_1: the clockwise leaves"),
        (the_dead_stay_in_the_neighbourhood, "I3: 05"),
        (checks_without_a_timer, "timer: something waits for 'checks'"),
        (promises_of_ten_leases, "longer than a lease"),
        (operations_that_never_end, "root: 0 operations, counted as 1"),
        (what_is_agreed_is_not_followed_up, "agreed: a step has left something"),
    ],
)
def test_a_violation_is_reported(mistake: Callable[[Patch], None], sentence: str, monkeypatch: Patch) -> None:
    """Each step of these tests is checked by the fixture of this folder."""
    with monkeypatch.context() as patch:
        mistake(patch)
        with pytest.raises(AssertionError, match=sentence):
            go(Bench(1))
    go(Bench(1))


def test_a_watched_non_member_enters_no_table_by_its_answers() -> None:
    """A round trip that was measured put it into the neighbourhood and the routing table."""
    bench = Bench(1).adopt(peer(3), peer(5))
    bench.give(WatchPeer(peer(5)))
    bench.give(LinkLost(peer(5).node))
    number = sent(bench.effects, PeerProbe)[-1][1].number
    bench.receive(peer(5), ProbeAck(number, 1, joined=False))
    assert peer(5).node not in bench.machine.neighbourhood
    assert peer(5).node not in bench.machine.routing_table


def test_a_copy_of_an_unwritten_record_is_dropped() -> None:
    """Version 0 means that there is none; a node that kept such a copy would spread it."""
    bench = Bench(1).adopt(peer(3))
    bench.receive(peer(3), RecordCopy(NodeId(7), 0, b"x", (peer(3).node, 1, 1)))
    assert bench.machine.records == ()
    assert dict(bench.machine.statistics().dropped) == {"record-version": 1}


def test_a_ring_of_close_ids_reports_a_size_that_a_message_can_carry() -> None:
    """The estimate by density grew beyond what any codec takes, and the step's answer could not be sent."""
    near = [Peer(NodeId((1 << 120) + root_path * step), 1) for step in range(1, 15) for root_path in (1, -1)]
    bench = Bench(1).adopt(*near)
    bench.machine._neighbours.merging.on_round()
    ((_, state),) = sent(bench.receive(near[0], RingProbe(0, (0, NodeId(0)), 1)), RingState)
    assert state.size == MAX_COUNT
    codec: Codec[RingState] = Codec(RingState)
    assert codec.decode(codec.encode(state)) == state
