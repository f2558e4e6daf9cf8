"""Joining and admitting; one machine and hand-made messages."""

from agiledart_overlay import messages as wire
from agiledart_overlay.effects import Joined, JoinFailed, Left, NeighboursChanged
from agiledart_overlay.events import JoinRing, LeaveRing
from tests.unit.overlay.bench import Bench, of, peer, sent


def test_the_first_node_founds_a_ring() -> None:
    bench = Bench()
    assert not bench.machine.joined
    assert of(bench.give(JoinRing(())), Joined) == [Joined()]
    assert bench.machine.joined
    assert bench.machine.next_hop(peer(77).node) is None


def test_a_join_step_by_step() -> None:
    bench = Bench(5)
    effects = bench.give(JoinRing((peer(2), peer(9))))
    assert [to for to, _ in sent(effects, wire.Probe)] == [peer(2), peer(9)]
    assert sent(bench.receive(peer(9), wire.ProbeAck(1, 0, joined=False)), wire.JoinRequest) == []
    effects = bench.receive(peer(2), wire.ProbeAck(1, 0, joined=True))
    ((_, request),) = sent(effects, wire.JoinRequest)
    assert request.joiner == bench.machine.me
    effects = bench.receive(peer(4), wire.Welcome(request.attempt, (peer(2), peer(4)), 0, (wire.Sighting(peer(7)),)))
    questions = dict(sent(effects, wire.LeafRequest))
    assert set(questions) == {peer(4), peer(7)}
    assert not bench.machine.joined, "it answers for nothing before its leaves have answered"
    bench.receive(peer(4), wire.LeafState(questions[peer(4)].number, 0, joined=True, sightings=()))
    effects = bench.receive(peer(7), wire.LeafState(questions[peer(7)].number, 0, joined=True, sightings=()))
    assert of(effects, Joined)
    assert of(effects, NeighboursChanged)
    assert {to for to, _ in sent(effects, wire.Announce)} == {peer(4), peer(7)}
    assert [each.node for each in bench.machine.known_peers()] == [peer(4).node, peer(7).node]


def test_a_silent_leaf_does_not_stop_a_join() -> None:
    bench = Bench(5)
    bench.give(JoinRing((peer(2),)))
    bench.receive(peer(2), wire.ProbeAck(1, 0, joined=True))
    effects = bench.receive(peer(2), wire.Welcome(1, (peer(2),), 0, (wire.Sighting(peer(7)),)))
    ((_, question),) = [pair for pair in sent(effects, wire.LeafRequest) if pair[0] == peer(2)]
    bench.receive(peer(2), wire.LeafState(question.number, 0, joined=True, sightings=()))
    assert not bench.machine.joined
    assert of(bench.wait(1_000), Joined)


def admitted(effects: list) -> list:  # type: ignore[type-arg]
    return [to.node for to, _ in sent(effects, wire.Welcome)]


def test_one_joiner_at_a_time() -> None:
    bench = Bench(1).found()
    first, second, third = peer(5), peer(6), peer(7)
    assert admitted(bench.receive(first, wire.JoinRequest(first, 1))) == [first.node]
    assert admitted(bench.receive(second, wire.JoinRequest(second, 1))) == []
    assert admitted(bench.receive(third, wire.JoinRequest(third, 1))) == []
    assert admitted(bench.receive(first, wire.JoinRequest(first, 2))) == [first.node], "its Welcome was lost"
    effects = bench.receive(first, wire.Announce(1, 0, ()))
    forwarded = [(to, message.joiner) for to, message in sent(effects, wire.JoinRequest)]
    assert forwarded == [(first, third), (first, second)], "they lie beyond the new member, which guards that gap now"


def test_a_joiner_that_vanishes_makes_room() -> None:
    bench = Bench(1).found()
    bench.receive(peer(5), wire.JoinRequest(peer(5), 1))
    bench.receive(peer(6), wire.JoinRequest(peer(6), 1))
    assert admitted(bench.wait(1_100)) == [peer(6).node]


def test_the_queue_is_bounded() -> None:
    bench = Bench(1).found()
    for number in range(2, 68):
        bench.receive(peer(number), wire.JoinRequest(peer(number), 1))
    effects = bench.receive(peer(99), wire.JoinRequest(peer(99), 1))
    assert sent(effects, wire.JoinRefused) == [(peer(99), wire.JoinRefused(1, "busy"))]


def test_an_equal_or_lower_incarnation_is_refused() -> None:
    bench = Bench(1).adopt(peer(5, 3))
    for incarnation in (2, 3):
        effects = bench.receive(peer(5, 3), wire.JoinRequest(peer(5, incarnation), 1))
        assert sent(effects, wire.JoinRefused)[0][1].reason == "incarnation"
    effects = bench.receive(peer(5, 4), wire.JoinRequest(peer(5, 4), 1))
    assert admitted(effects) == [peer(5).node]


def test_refused_joiner_reports_why() -> None:
    bench = Bench(5)
    bench.give(JoinRing((peer(2),)))
    bench.receive(peer(2), wire.ProbeAck(1, 0, joined=True))
    (failed,) = of(bench.receive(peer(2), wire.JoinRefused(1, "incarnation", 7)), JoinFailed)
    assert "incarnation 7" in failed.reason


def test_nobody_joins_through_a_node_outside() -> None:
    bench = Bench(1)
    assert bench.receive(peer(5), wire.JoinRequest(peer(5), 1)) == []
    assert ("outside", 1) in bench.machine.statistics().dropped


def test_smallest_id_founds_when_nobody_is_a_member() -> None:
    low, high = Bench(1), Bench(9)
    for bench, other in ((low, peer(9)), (high, peer(1))):
        bench.give(JoinRing((other,)))
        for _ in range(5):
            bench.receive(other, wire.ProbeAck(1, 0, joined=False))
            bench.wait(500)
    assert low.machine.joined
    assert not high.machine.joined


def test_leaving() -> None:
    bench = Bench(1).adopt(peer(2))
    effects = bench.give(LeaveRing())
    assert of(effects, Left)
    assert sent(effects, wire.Leave) == [(peer(2), wire.Leave())]
    assert not bench.machine.joined
    ((_, answer),) = sent(bench.receive(peer(2), wire.Probe(1, 0, joined=True)), wire.ProbeAck)
    assert not answer.joined
    assert of(Bench(1).give(LeaveRing()), Left), "also when it was never in"
