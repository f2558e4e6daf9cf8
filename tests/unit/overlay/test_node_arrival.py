"""From which member a join starts, and what a new member does once it is in; one machine and hand-made messages."""

from collections.abc import Iterable
from dataclasses import replace

from agiledart_kernel.coordinates import ORIGIN, Coordinate
from agiledart_kernel.instants import MILLISECOND, Instant
from agiledart_kernel.machine import Effect, SetTimer
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire import messages as wire
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_overlay.wire.events import JoinRing, SetCongestion, SetLoad
from agiledart_overlay.wire.sightings import Sighting, Vitals
from tests.unit.overlay.bench import Bench, peer, sent

LAN = OverlayConfig.lan()


def seeking(**figures: int) -> Bench:
    bench = Bench(5, replace(LAN, **figures))
    bench.give(JoinRing((peer(2), peer(9))))
    return bench


def member(bench: Bench, number: int) -> list:  # type: ignore[type-arg]
    return bench.receive(peer(number), wire.ProbeAck(1, 0, joined=True))


def test_section_5_the_first_seed_that_answers_is_the_nearest() -> None:
    bench = seeking(bootstrap_rounds=0)
    bench.wait(3)
    assert [to for to, _ in sent(member(bench, 9), wire.JoinRequest)] == [peer(9)]
    assert sent(member(bench, 2), wire.JoinRequest) == []


def test_section_5_the_search_continues_from_a_nearer_leaf() -> None:
    """Seed 9 answers after 8 ms; of its leaves 7 answers after 3; of the leaves of 7 none is nearer: the join starts at 7."""
    bench = seeking()
    bench.wait(8)
    ((to, question),) = sent(member(bench, 9), wire.LeafRequest)
    assert (to, question.joined) == (peer(9), False)
    bench.wait(8)
    leaves = tuple(Sighting(peer(number)) for number in (6, 7, 9))
    effects = bench.receive(peer(9), wire.LeafState(question.number, 0, joined=True, sightings=leaves))
    assert {to.node for to, _ in sent(effects, wire.PeerProbe)} == {peer(6).node, peer(7).node}
    bench.wait(3)
    member(bench, 7)
    effects = bench.wait(6)
    ((to, question),) = sent(effects, wire.LeafRequest)
    assert to == peer(7), "the round ended after 8 ms, without 6"
    effects = bench.receive(peer(7), wire.LeafState(question.number, 0, joined=True, sightings=leaves))
    assert sent(effects, wire.PeerProbe) == [], "all were tried"
    assert [to for to, _ in sent(bench.wait(10), wire.JoinRequest)] == [peer(7)]


def test_section_5_a_seed_that_does_not_send_its_leaves_is_still_used() -> None:
    bench = seeking()
    bench.wait(8)
    member(bench, 9)
    assert [to for to, _ in sent(bench.wait(40), wire.JoinRequest)] == [peer(9)]


def test_section_5_the_search_is_bounded() -> None:
    bench = seeking(bootstrap_rounds=3, bootstrap_probes=2)
    bench.wait(100)
    effects = member(bench, 9)
    delay = 90
    for turn in range(3):
        ((to, question),) = sent(effects, wire.LeafRequest)
        leaves = tuple(Sighting(peer(20 + 5 * turn + number)) for number in range(5))
        effects = bench.receive(to, wire.LeafState(question.number, 0, joined=True, sightings=leaves))
        probed = [to for to, _ in sent(effects, wire.PeerProbe)]
        assert len(probed) == 2
        bench.wait(delay)
        effects = bench.receive(probed[0], wire.ProbeAck(1, 0, joined=True)) + bench.wait(100)
        delay //= 2
    assert [to for to, _ in sent(effects, wire.JoinRequest)] == [probed[0]]


# ---- second stage

HERE = Vitals(Coordinate(error=100_000))


def settled_among(*others: int, **figures: int) -> Bench:
    """A member with these leaves."""
    return Bench(1, replace(LAN, **figures)).adopt(*(peer(number) for number in others))


def arrive(bench: Bench, told: Iterable[Sighting]) -> list[Effect]:
    """The join is over, and reported these."""
    view = bench.machine._view
    view.now, view.effects = Instant(bench.now), []
    bench.machine._arrival.begin(told)
    bench.timers.update({each.name: each.at for each in view.effects if isinstance(each, SetTimer)})
    bench.effects.extend(view.effects)
    return view.effects


def answer_all(bench: Bench, effects: list, after_ms: int = 2) -> list:  # type: ignore[type-arg]
    """All announcements are answered after a while."""
    announced = sent(effects, wire.Announce)
    later = bench.wait(after_ms)
    for to, message in announced:
        later += bench.receive(to, wire.Announced(message.number, 0, (), HERE))
    return later


def test_section_5_step_4_the_leaf_set_is_announced_until_each_leaf_answers() -> None:
    bench = settled_among(2, 3)
    effects = arrive(bench, ())
    assert {to.node for to, _ in sent(effects, wire.Announce)} == {peer(2).node, peer(3).node}
    ((_, first),) = [pair for pair in sent(effects, wire.Announce) if pair[0] == peer(2)]
    bench.receive(peer(2), wire.Announced(first.number, 0, ()))
    again = [to for to, _ in sent(bench.wait(450), wire.Announce)]
    assert again == [peer(3)]
    assert [to for to, _ in sent(bench.wait(900), wire.Announce)] == [peer(3)], "three times in all"


def test_section_5_step_3_the_best_node_of_each_slot_is_contacted() -> None:
    bench = settled_among(2, 3, arrival_candidates=1, arrival_neighbours=0)
    near, far = Coordinate(x=500, error=100_000), Coordinate(x=50_000, error=100_000)
    told = (
        Sighting(Peer(NodeId(0x81 << 120), 1), 0, far),
        Sighting(Peer(NodeId(0x82 << 120), 1), 0, near),
        Sighting(Peer(NodeId(0x91 << 120), 1), 0, far),
    )
    effects = answer_all(bench, arrive(bench, told))
    assert sorted(to.node for to, _ in sent(effects, wire.PeerProbe)) == [0x82 << 120, 0x91 << 120]


def test_section_5_step_5_near_entries_and_a_near_neighbour_are_asked_for_rows() -> None:
    bench = settled_among(2, 3, 0x80, second_stage_questions=8)
    effects = answer_all(bench, arrive(bench, ()))
    assert [message.row for _, message in sent(effects, wire.RowRequest)] == [0, 1]
    assert len(sent(effects, wire.NeighbourRequest)) == 1
    stranger = Sighting(Peer(NodeId(0xA1 << 120), 1), 0, Coordinate(x=100, error=100_000))
    effects = bench.receive(peer(0x80), wire.RowState((stranger,), 0, -1))
    assert [to for to, _ in sent(effects, wire.PeerProbe)] == [stranger.peer]


def test_section_5_step_5_is_bounded_by_the_configuration() -> None:
    for most in (0, 1, 2):
        bench = settled_among(2, 3, 0x80, second_stage_questions=most)
        effects = answer_all(bench, arrive(bench, ()))
        assert len(sent(effects, wire.RowRequest)) + len(sent(effects, wire.NeighbourRequest)) == most
    bench = settled_among(2, 3, arrival_contacts=4)
    told = [Sighting(Peer(NodeId((0x20 + 16 * number) << 120), 1)) for number in range(9)]
    assert len(sent(answer_all(bench, arrive(bench, told)), wire.PeerProbe)) == 4


def test_section_5_step_6_a_leaf_that_knows_more_reports_it() -> None:
    bench = settled_among(2, 3, 4)
    effects = bench.receive(peer(5), wire.Announce(7, 0, (Sighting(peer(2)), Sighting(bench.machine.me))))
    ((to, answer),) = sent(effects, wire.Announced)
    assert to == peer(5)
    assert {each.peer.node for each in answer.sightings} == {peer(3).node, peer(4).node}
    effects = bench.receive(peer(5), wire.Announce(8, 0, tuple(Sighting(peer(number)) for number in (2, 3, 4))))
    ((_, answer),) = sent(effects, wire.Announced)
    assert answer.sightings == (), "a node that knows all gets no further report"


def test_equal_leaf_digests_are_not_answered() -> None:
    first, second = Bench(1).adopt(peer(2), peer(3)), Bench(2).adopt(peer(1), peer(3))
    first.wait(20_000)
    digest = next(digest for to, digest in sent(first.effects, wire.LeafDigest) if to == peer(2))
    assert second.receive(peer(1), digest) == []
    third = Bench(2).adopt(peer(1), peer(3), peer(4))
    effects = third.receive(peer(1), digest)
    ((_, request),) = sent(effects, wire.LeafRequest)
    effects = first.receive(peer(2), request)
    assert [to for to, _ in sent(effects, wire.PeerProbe)] == [peer(4)], "hearsay is checked by contact"


def test_a_new_member_finds_its_place_once_from_all_its_leaves() -> None:
    """Single steps before would be work for nothing: all answers are taken several times when the last one is in."""
    bench = settled_among(2, 9)
    (first, second) = sent(arrive(bench, ()), wire.Announce)
    bench.wait(3)
    vitals = Vitals(Coordinate(x=500, error=1_000))
    bench.receive(first[0], wire.Announced(first[1].number, 0, (), vitals))
    assert bench.machine.coordinate == ORIGIN
    bench.receive(second[0], wire.Announced(second[1].number, 0, (), vitals))
    assert bench.machine.coordinate != ORIGIN


def test_an_invalid_coordinate_is_counted_and_discarded() -> None:
    bench = settled_among(2)
    ((_, announce),) = sent(arrive(bench, ()), wire.Announce)
    bench.wait(1)
    bench.receive(peer(2), wire.Announced(announce.number, 0, (), Vitals(Coordinate(x=1 << 40))))
    assert ("coordinate", 1) in bench.machine.statistics().dropped
    assert bench.machine.coordinate_of(peer(2).node) is None
    assert bench.machine.rtt_ns(peer(2).node) == MILLISECOND


def test_section_3_load_and_congestion_come_from_the_parent_node() -> None:
    bench = settled_among(2)
    bench.give(SetLoad(5_000))
    ((_, announce),) = sent(arrive(bench, ()), wire.Announce)
    assert announce.vitals is not None
    assert announce.vitals.load_permille == 1_000
    before = bench.machine._view.distances.cost(peer(2))
    bench.give(SetCongestion(peer(2).node, 500))
    bench.give(SetCongestion(peer(3).node, 500))
    assert bench.machine._view.distances.cost(peer(2)) == before + 0.5
