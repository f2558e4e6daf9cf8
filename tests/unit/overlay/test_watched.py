"""A watched peer is in the book without being in a table; the tables must take it all the same when it shows itself."""

from agiledart_kernel.machine import LinkLost
from agiledart_overlay.wire.effects import PeerFailed
from agiledart_overlay.wire.events import WatchPeer
from agiledart_overlay.wire.messages import DeclaredFailed, IndirectProbe, JoinRefused, JoinRequest, PeerProbe
from agiledart_overlay.wire.ring_messages import InviteJoiner
from tests.unit.overlay.bench import Bench, of, peer, sent


def test_a_watched_node_that_appears_as_a_member_becomes_a_leaf() -> None:
    bench = Bench(1).adopt(peer(3))
    bench.give(WatchPeer(peer(5)))
    assert peer(5) not in bench.machine.leaf_set.members
    bench.receive(peer(5), PeerProbe(1, 0, joined=True))
    assert peer(5) in bench.machine.leaf_set.members


def test_a_watched_non_member_does_not_return_because_another_leaf_died() -> None:
    bench = Bench(1).adopt(peer(3), peer(5))
    bench.give(WatchPeer(peer(5)))
    bench.receive(peer(5), PeerProbe(1, 1, joined=False))
    view = bench.machine._view
    view.step_aside(view.book.alive[peer(5).node])
    view.remove(peer(3), 0, has_left=False)
    assert bench.machine.leaf_set.members == ()


def test_a_rejoining_node_is_not_killed_by_earlier_rumours() -> None:
    """An application's hosts watch each other: a node that merely had to join again must not be declared dead to them."""
    bench = Bench(1).adopt(peer(3), peer(5))
    bench.give(WatchPeer(peer(5)))
    bench.receive(peer(5), PeerProbe(1, 2, joined=False))
    bench.receive(peer(3), DeclaredFailed(peer(5), 1))
    assert of(bench.wait(100), PeerFailed) == []
    assert peer(5) not in bench.machine.leaf_set.members


def test_a_rumour_waits_for_the_helpers_that_were_asked() -> None:
    bench = Bench(1).adopt(peer(3), peer(5))
    bench.give(LinkLost(peer(5).node))
    assert sent(bench.effects, IndirectProbe)
    bench.receive(peer(3), DeclaredFailed(peer(5), 0))
    assert of(bench.effects, PeerFailed) == []
    assert of(bench.wait(3_000), PeerFailed)


def test_a_joiner_that_is_watched_already_is_admitted() -> None:
    """A node that starts again is greeted by one that has lost all others, or needed by an application, before it is a member."""
    bench = Bench(1).adopt(peer(3), peer(5))
    bench.give(WatchPeer(peer(2)))
    bench.receive(peer(2), JoinRequest(peer(2), 1))
    assert sent(bench.effects, JoinRefused) == []
    assert sent(bench.effects, InviteJoiner)


def test_a_copy_of_a_member_is_refused() -> None:
    bench = Bench(1).adopt(peer(3), peer(5))
    bench.receive(peer(3), JoinRequest(peer(3), 1))
    assert sent(bench.effects, JoinRefused)
