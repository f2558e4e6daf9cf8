"""A watched peer is in the book without being in a table; the tables must take it all the same when it shows itself."""

from agiledart_overlay.events import Watch
from agiledart_overlay.messages import Probe
from tests.unit.overlay.bench import Bench, peer


def test_a_watched_stranger_that_shows_itself_as_a_member_becomes_a_leaf() -> None:
    bench = Bench(1).adopt(peer(3))
    bench.give(Watch(peer(5)))
    assert peer(5) not in bench.machine.leaf_set.members
    bench.receive(peer(5), Probe(1, 0, joined=True))
    assert peer(5) in bench.machine.leaf_set.members


def test_a_watched_peer_that_is_outside_does_not_come_back_because_another_leaf_died() -> None:
    bench = Bench(1).adopt(peer(3), peer(5))
    bench.give(Watch(peer(5)))
    bench.receive(peer(5), Probe(1, 1, joined=False))
    view = bench.machine._view
    view.step_aside(view.book.alive[peer(5).node])
    view.remove(peer(3), 0, has_left=False)
    assert bench.machine.leaf_set.members == ()
